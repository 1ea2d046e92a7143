package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// supervisor starts the components, inside the namespaces, and obeys the control socket.
type supervisor struct {
	paths
	Options

	mu      sync.Mutex
	known   map[string]component
	running map[string]*process
}

type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Supervise brings the cluster whose state is in dir up and serves until the context ends. It runs inside the
// namespaces.
func Supervise(ctx context.Context, dir string) error {
	p, o, err := readOptions(dir)
	if err != nil {
		return err
	}
	s := &supervisor{paths: p, Options: o, known: map[string]component{}, running: map[string]*process{}}
	if err := s.up(ctx); err != nil {
		_ = writeFile(s.failed(), err.Error(), 0o644)
		return err
	}
	listener, err := net.Listen("unix", s.control())
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	if err := writeFile(s.ready(), "", 0o644); err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return s.closed(ctx, err)
		}
		go s.serve(conn)
	}
}

// closed says whether the end of listening was meant.
func (s *supervisor) closed(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return fmt.Errorf("listening for commands: %w", err)
	}
}

func (s *supervisor) up(ctx context.Context) error {
	if err := s.mounts(); err != nil {
		return err
	}
	if err := s.network(ctx); err != nil {
		return err
	}
	if err := writePKI(s.paths); err != nil {
		return err
	}
	if err := writeAPIServerConfig(s.paths, s.Bin); err != nil {
		return err
	}
	for _, c := range controlPlane(s.paths, s.Bin) {
		s.known[c.name] = c
		if err := s.start(c.name); err != nil {
			return err
		}
		if c.name != "apiserver" {
			continue
		}
		if err := s.until(ctx, time.Minute, "the API server to be ready",
			s.kubectl("get", "--raw", "/readyz")...); err != nil {
			return err
		}
	}
	// Pods cannot be made before their namespace's service account is.
	if err := s.until(ctx, time.Minute, "the controllers to work",
		s.kubectl("get", "serviceaccount", "default")...); err != nil {
		return err
	}
	// The virtual machine boots while this machine's node starts.
	if s.VM != "" {
		if err := s.startVM(ctx); err != nil {
			return err
		}
	}
	if s.Node {
		if err := s.startNode(ctx); err != nil {
			return err
		}
	}
	if s.VM != "" {
		return s.untilReady(ctx, vmnode.Name)
	}
	return nil
}

// startNode starts this machine's node, with the images.
func (s *supervisor) startNode(ctx context.Context) error {
	if err := writeNodeConfig(s.paths, s.Options); err != nil {
		return err
	}
	for _, c := range node(s.paths, s.Bin) {
		s.known[c.name] = c
		if err := s.start(c.name); err != nil {
			return err
		}
		if c.name != "containerd" {
			continue
		}
		if err := s.until(ctx, time.Minute, "containerd to answer", s.ctr("version")...); err != nil {
			return err
		}
		for _, image := range s.Images {
			if out, err := s.command(ctx, s.ctr("-n", "k8s.io", "image", "import", image)...).CombinedOutput(); err != nil {
				return fmt.Errorf("importing %s: %w: %s", image, err, out)
			}
		}
	}
	return s.untilReady(ctx, NodeName)
}

func (s *supervisor) untilReady(ctx context.Context, node string) error {
	return s.until(ctx, 10*time.Minute, "the node "+node+" to be ready",
		s.kubectl("wait", "--for=condition=Ready", "node/"+node, "--timeout=2s")...)
}

// startVM boots the node in a virtual machine.
func (s *supervisor) startVM(ctx context.Context) error {
	// qemu is to have the guest's address on this side, so that the API server reaches the kubelet at the address of its
	// node. The source must be another one: a guest drops what comes from its own address.
	route := strings.Fields("ip route replace local " + vmnode.Address + "/32 dev lo src 127.0.0.1 table local")
	if out, err := s.command(ctx, route...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(route, " "), err, out)
	}
	config := vmConfig(s.paths, s.Options)
	if err := vmnode.WriteInitramfs(s.in("vm.initramfs"), config); err != nil {
		return err
	}
	s.known["vm"] = component{"vm", vmnode.Command(s.in("vm.initramfs"), config)}
	return s.start("vm")
}

// mounts hides what the host has under names that the components insist on.
func (s *supervisor) mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("taking the mounts private: %w", err)
	}
	// Pods' mounts are to propagate from the kubelet to containers, inside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the mounts inside: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if !s.nodes {
		return nil // it has no kubelet, for which the rest is
	}
	for _, dir := range privateDirs {
		if dir == "/run/waterline" {
			if err := unix.Mount(s.runWaterline(), dir, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("covering %s: %w", dir, err)
			}
			continue
		}
		if err := unix.Mount("bed", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("covering %s: %w", dir, err)
		}
	}
	for path, value := range tunables {
		if _, err := os.Stat(path); err != nil {
			continue // this kernel does not have it
		}
		cover := s.in("tunables", filepath.Base(path))
		if err := writeFile(cover, value+"\n", 0o644); err != nil {
			return fmt.Errorf("covering %s: %w", path, err)
		}
		if err := unix.Mount(cover, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("covering %s: %w", path, err)
		}
	}
	return nil
}

// network waits for the cluster's end of the veth pair and sets up addresses.
func (s *supervisor) network(ctx context.Context) error {
	for _, err := net.InterfaceByName("eth0"); err != nil; _, err = net.InterfaceByName("eth0") {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the network device: %w", ctx.Err())
		}
	}
	for _, args := range []string{
		"link set lo up", "addr add " + serviceAddress + "/32 dev lo",
		"link set eth0 up", "addr add " + s.address + vethPrefix + " dev eth0", "route add default via " + s.host,
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("letting pods reach out: %w", err)
	}
	return nil
}

func (s *supervisor) kubectl(args ...string) []string {
	return append([]string{filepath.Join(s.Bin, "kubectl"), "--kubeconfig", s.kubeconfig()}, args...)
}

func (s *supervisor) ctr(args ...string) []string {
	return append([]string{filepath.Join(s.Bin, "ctr"), "--address", "/run/containerd/containerd.sock"}, args...)
}

func (s *supervisor) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = environment(s.Bin)
	return c
}

// until runs a command again and again until it succeeds.
func (s *supervisor) until(ctx context.Context, limit time.Duration, what string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		out, err := s.command(ctx, args...).CombinedOutput()
		if err == nil {
			return nil
		}
		if dead := s.dead(); dead != "" {
			return fmt.Errorf("waiting for %s: %s has ended; see %s", what, dead, s.log(dead))
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %s", what, err, out)
		}
	}
}

// dead returns a component that has ended by itself, "" if all run.
func (s *supervisor) dead() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.running {
		select {
		case <-p.done:
			return name
		default:
		}
	}
	return ""
}

// start starts a component that does not run.
func (s *supervisor) start(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, known := s.known[name]
	if !known {
		return fmt.Errorf("there is no component %q", name)
	}
	if p := s.running[name]; p != nil {
		select {
		case <-p.done: // it has crashed
		default:
			return fmt.Errorf("%s runs already", name)
		}
	}
	if err := os.MkdirAll(filepath.Dir(s.log(name)), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has it
	cmd := s.command(context.Background(), c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	s.running[name] = p
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return nil
}

// stop ends a component with a signal, and with SIGKILL after a while.
func (s *supervisor) stop(name string, signal os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.running[name]
	if p == nil {
		return fmt.Errorf("%q does not run", name)
	}
	delete(s.running, name)
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
	case <-time.After(15 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	return nil
}

// serve obeys one command: "VERB COMPONENT", answered by one line that is empty if it was carried out.
func (s *supervisor) serve(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return
	}
	verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch verb {
	case "start":
		err = s.start(name)
	case "stop":
		err = s.stop(name, syscall.SIGTERM)
	case "kill":
		err = s.stop(name, syscall.SIGKILL)
	case "restart":
		if err = s.stop(name, syscall.SIGTERM); err == nil {
			err = s.start(name)
		}
	default:
		err = errors.New("commands are start, stop, kill and restart")
	}
	answer := ""
	if err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	fmt.Fprintln(conn, answer)
}
