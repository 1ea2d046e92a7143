package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/test/bed/logs"
	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// The images that every cluster has. Pods use them with imagePullPolicy: Never; no registry has them.
const (
	PauseImage   = "wl.test/pause:1"
	BusyboxImage = "wl.test/busybox:1"
)

// Options say what cluster to bring up.
type Options struct {
	Bin    string   // directory with the bed's programs, among them this package's command, "bed"
	Node   bool     // with a node on this machine, not only an API server
	VM     string   // kernel of one more node, in a virtual machine; "": there is none
	Static bool     // this machine's kubelet has the CPU manager policy static, with one CPU reserved
	Images []string // archives of images to import
	Leash  bool     // the cluster ends when this process does
	// Dir is the directory of the cluster's state; "": a fixed one. An API server alone can have another, if the caller is
	// in mount and network namespaces of its own. [Attach] and the function [Down] do not find it there.
	Dir string
	// ShortBackOff lets a container that ended again and again start after 10 s, not after up to five minutes.
	ShortBackOff bool
}

// Bed is a running cluster.
type Bed struct {
	paths
	bin   string
	leash *os.File // kept open; its end is the cluster's
}

// Up brings a cluster up and returns when it is ready. One with nodes and one without can be up at the same time; if
// another of its kind is, that is an error which names its process.
func Up(ctx context.Context, o Options) (*Bed, error) {
	p := placeOf(o)
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster on this machine takes root")
	}
	for _, program := range []string{"bed", "kube-apiserver", "kubectl"} {
		if _, err := os.Stat(filepath.Join(o.Bin, program)); err != nil {
			return nil, fmt.Errorf("the bed's programs are not built; run make bed: %w", err)
		}
	}
	lock, err := takeLock(p)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := clean(p); err != nil {
		return nil, err
	}
	if p.nodes {
		if err := errors.Join(makeDirs(p), os.MkdirAll(p.runWaterline(), 0o755), makeGroups()); err != nil {
			return nil, err
		}
	}
	b := &Bed{paths: p, bin: o.Bin}
	if err := b.launch(o, lock); err != nil {
		return nil, err
	}
	// From here on only init holds the lock. If we did too, its end would not show, and Down would wait for ourselves.
	if err := lock.Close(); err != nil {
		return nil, fmt.Errorf("handing over the lock: %w", err)
	}
	if err := b.wait(ctx); err != nil {
		return nil, errors.Join(err, b.Down(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// launch starts the sweeper and, in new namespaces, init.
func (b *Bed) launch(o Options, lock *os.File) error {
	sweepRead, sweepWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer sweepRead.Close()
	defer sweepWrite.Close()
	leashRead, leashWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer leashRead.Close()
	b.leash = leashWrite
	log, err := os.OpenFile(b.in("bed.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()

	self := filepath.Join(o.Bin, "bed")
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := writeFile(b.options(), string(options), 0o644); err != nil {
		return err
	}
	sweeper := exec.Command(self, "sweep", b.dir)
	sweeper.Stdin, sweeper.Stdout, sweeper.Stderr = sweepRead, log, log
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := sweeper.Start(); err != nil {
		return fmt.Errorf("starting the sweeper: %w", err)
	}
	init := exec.Command(self, "init", b.dir)
	init.Stdout, init.Stderr = log, log
	init.ExtraFiles = []*os.File{lock, sweepWrite, leashRead}
	init.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := init.Start(); err != nil {
		return fmt.Errorf("starting the cluster's init: %w", err)
	}
	go func() { _ = init.Wait() }() // so that it is no zombie of ours
	if err := writeFile(b.initPID(), strconv.Itoa(init.Process.Pid), 0o644); err != nil {
		return err
	}
	setup := []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", b.veth, init.Process.Pid),
		"addr add " + b.host + vethPrefix + " dev " + b.veth,
		"link set " + b.veth + " up",
	}
	if b.nodes { // the route goes with the device
		setup = append(setup, "route replace "+podRange+" via "+b.address)
	}
	for _, args := range setup {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			_ = init.Process.Kill()
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// wait returns when the cluster is ready or has failed.
func (b *Bed) wait(ctx context.Context) error {
	for {
		if _, err := os.Stat(b.ready()); err == nil {
			return nil
		}
		if why, err := os.ReadFile(b.failed()); err == nil {
			return fmt.Errorf("the cluster did not come up: %s%s", why, b.LogTails())
		}
		if held, _ := locked(b.paths); !held {
			log, _ := os.ReadFile(b.in("bed.log"))
			return fmt.Errorf("the cluster ended while coming up: %s", log)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the cluster: %w%s", ctx.Err(), b.LogTails())
		}
	}
}

// Attach returns the cluster that is up; of two, that with nodes. bin has the bed's programs.
func Attach(bin string) (*Bed, error) {
	for _, at := range places() {
		if held, err := locked(paths{at}); err != nil {
			return nil, err
		} else if held {
			return &Bed{paths: paths{at}, bin: bin}, nil
		}
	}
	return nil, errors.New("no cluster is up; make cluster brings one up")
}

// Down ends the cluster, if it is up, and removes every trace of it.
func (b *Bed) Down(ctx context.Context) error {
	if b.leash != nil {
		_ = b.leash.Close()
	}
	return b.paths.down(ctx)
}

// Down ends every cluster that is up, and removes every trace of them.
func Down(ctx context.Context) error {
	var all error
	for _, at := range places() {
		all = errors.Join(all, paths{at}.down(ctx))
	}
	return all
}

func (p paths) down(ctx context.Context) error {
	if _, err := os.Stat(p.dir); errors.Is(err, fs.ErrNotExist) {
		return sweep(p)
	}
	if held, _ := locked(p); held {
		text, err := os.ReadFile(p.initPID())
		if err != nil {
			return fmt.Errorf("finding the cluster's init: %w", err)
		}
		if err := endInit(ctx, p.dir, string(text)); err != nil {
			return err
		}
	}
	for {
		lock, err := takeLock(p)
		if err == nil {
			defer lock.Close()
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for the cluster to end: %w", ctx.Err()), err)
		}
	}
	if err := clean(p); err != nil {
		return err
	}
	if err := os.RemoveAll(p.dir); err != nil {
		return fmt.Errorf("removing the cluster's files: %w", err)
	}
	return nil
}

// endInit kills the cluster's init and waits until it has gone, and with it every process inside. The lock alone does
// not tell: init lets go of it a moment before the kernel ends the others.
func endInit(ctx context.Context, dir, text string) error {
	pid, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("finding the cluster's init: %w", err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the cluster's init (process %d): %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The sweeper holds the lock too, when init has ended and its number may be another process's.
	line, err := os.ReadFile(filepath.Join("/proc", text, "cmdline"))
	if err != nil || !strings.Contains(string(line), "\x00init\x00") ||
		!strings.Contains(string(line), "\x00"+dir+"\x00") {
		return nil // gone already
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing the cluster's init (process %d): %w", pid, err)
	}
	for ctx.Err() == nil {
		const step = 200 // milliseconds
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, step); n > 0 ||
			(err != nil && err != unix.EINTR) {
			return nil // taking the lock shows whether it has gone
		}
	}
	return fmt.Errorf("waiting for the cluster's init (process %d) to end: %w", pid, ctx.Err())
}

// Sweep waits until the cluster in a directory has ended, which closes its end of the pipe, and removes what is left of
// it.
func Sweep(dir string, pipe io.Reader) error {
	p, err := placeAt(dir)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, pipe)
	// The kernel closes what init had open in no order that can be relied on: the lock may be let go after the pipe.
	for range 100 {
		lock, err := takeLock(p)
		if err == nil {
			defer lock.Close()
			return sweep(p)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil // another process has it, and cleans up first
}

// clean removes what an earlier cluster left, except the lock.
func clean(p paths) error {
	if err := sweep(p); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return fmt.Errorf("cleaning %s: %w", p.dir, err)
	}
	for _, e := range entries {
		if path := p.in(e.Name()); path != p.lock() {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("cleaning %s: %w", p.dir, err)
			}
		}
	}
	return nil
}

func takeLock(p paths) (*os.File, error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", p.dir, err)
	}
	lock, err := os.OpenFile(p.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", p.dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(p.initPID())
		return nil, errors.Join(fmt.Errorf("a cluster is up in %s (process %s); make cluster-down ends it: %w", p.dir, pid,
			err), lock.Close())
	}
	return lock, nil
}

// locked reports whether a cluster lives in the directory.
func locked(p paths) (bool, error) {
	if _, err := os.Stat(p.lock()); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock, err := takeLock(p)
	if err == nil {
		return false, lock.Close()
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Kubeconfig returns the path of the administrator's kubeconfig file, which works on this machine.
func (b *Bed) Kubeconfig() string { return b.kubeconfig() }

// HostAddress returns the address at which the cluster reaches what runs beside it on this machine.
func (b *Bed) HostAddress() string { return b.host }

// Shared returns a directory that pods of the node on this machine can mount, under the same name. It goes with the
// cluster.
func (b *Bed) Shared() string { return b.in("shared") }

// Resolver resolves names as pods do: those of Services and of their pods. Pods can be reached from this machine.
func (b *Bed) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(b.address, "53"))
	}}
}

// VM returns a client of the node in a virtual machine.
func (b *Bed) VM() (*vmnode.Client, error) {
	return vmnode.NewClient(b.address, b.pki("ca.crt"), b.pki("admin.crt"), b.pki("admin.key"))
}

// RunWaterline returns the directory that pods on this machine's node see as /run/waterline.
func (b *Bed) RunWaterline() string { return b.runWaterline() }

// PodResources returns the socket of the PodResources API of this machine's kubelet, as this machine sees it.
func (b *Bed) PodResources() (string, error) {
	pid, err := os.ReadFile(b.initPID())
	if err != nil {
		return "", fmt.Errorf("finding the cluster's init: %w", err)
	}
	return filepath.Join("/proc", string(pid), "root/var/lib/kubelet/pod-resources/kubelet.sock"), nil
}

// StaticPods returns the directory of static pods of this machine's kubelet.
func (b *Bed) StaticPods() string { return b.staticPods() }

// KubeletConfig returns the path of the configuration file of this machine's kubelet, which reads it when it starts.
func (b *Bed) KubeletConfig() string { return b.in("kubelet.yaml") }

// Kubectl returns the command kubectl for this cluster.
func (b *Bed) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(b.bin, "kubectl"),
		append([]string{"--kubeconfig", b.kubeconfig()}, args...)...)
	c.Env = append(os.Environ(), "GOGC=off") // a call lives for less than a second, and needs a quarter less CPU time then
	return c
}

// Inside returns a command that runs inside the cluster's namespaces.
func (b *Bed) Inside(ctx context.Context, args ...string) (*exec.Cmd, error) {
	pid, err := os.ReadFile(b.initPID())
	if err != nil {
		return nil, fmt.Errorf("finding the cluster's init: %w", err)
	}
	return exec.CommandContext(ctx, "nsenter",
		append([]string{"-t", string(pid), "-m", "-n", "-p", "-u", "-i", "--"}, args...)...), nil
}

// Dial connects to what listens inside the cluster's namespaces only, such as etcd at [EtcdAddress]. The address has no
// name in it.
func (b *Bed) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	pid, err := os.ReadFile(b.initPID())
	if err != nil {
		return nil, fmt.Errorf("finding the cluster's init: %w", err)
	}
	space, err := os.Open(filepath.Join("/proc", string(pid), "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("finding the cluster's network: %w", err)
	}
	defer space.Close()
	var conn net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocks it: the thread, which is inside, goes with the goroutine
		if err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err == nil {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
		}
	}()
	<-done
	if err != nil {
		return nil, fmt.Errorf("connecting to %s inside the cluster: %w", address, err)
	}
	return conn, nil
}

// Outside returns under which name a file inside the cluster's namespaces is reached from outside.
func (b *Bed) Outside(path string) (string, error) {
	pid, err := os.ReadFile(b.initPID())
	if err != nil {
		return "", fmt.Errorf("finding the cluster's init: %w", err)
	}
	return filepath.Join("/proc", string(pid), "root", path), nil
}

// Import imports an archive of images into the node.
func (b *Bed) Import(ctx context.Context, archive string) error {
	archive, err := filepath.Abs(archive) // inside, the working directory is another
	if err != nil {
		return fmt.Errorf("importing %s: %w", archive, err)
	}
	c, err := b.Inside(ctx, filepath.Join(b.bin, "ctr"), "--address", "/run/containerd/containerd.sock", "-n", "k8s.io",
		"image", "import", archive)
	if err != nil {
		return err
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s: %w: %s", archive, err, out)
	}
	return nil
}

// Control does something to a component: start, stop (SIGTERM), kill (SIGKILL) or restart it. The components are etcd,
// apiserver, controller-manager, scheduler, coredns, containerd, kubelet and vm.
func (b *Bed) Control(ctx context.Context, verb, component string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", b.control())
	if err != nil {
		return fmt.Errorf("reaching the cluster's supervisor: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	fmt.Fprintf(conn, "%s %s\n", verb, component)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, component, err)
	}
	if answer = strings.TrimSpace(answer); answer != "" {
		return fmt.Errorf("%s %s: %s", verb, component, answer)
	}
	return nil
}

// LogTails returns the end of every component's log, for when something went wrong.
func (b *Bed) LogTails() string { return logs.Tails(b.in("log")) }
