package yarn

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// workerRange has the addresses of workers. An API server refuses to have pods at 127.0.0.0/8.
const workerRange = "10.77.0.0/16"

// NameHost gives a host a name and an address of its own, before a NodeManager uses it. It is called inside only.
func (b *Bed) NameHost(name string) (address string, err error) {
	n := b.hosts.Add(1)
	if n == 1 {
		if out, err := exec.Command("ip", "route", "add", "local", workerRange, "dev", "lo").CombinedOutput(); err != nil {
			return "", fmt.Errorf("giving the namespace the addresses %s: %w: %s", workerRange, err, out)
		}
	}
	address = fmt.Sprintf("10.77.%d.%d", n/250, n%250+1)
	file, err := os.OpenFile("/etc/hosts", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", fmt.Errorf("naming a host: %w", err)
	}
	if _, err := fmt.Fprintf(file, "%s %s\n", address, name); err != nil {
		_ = file.Close()
		return "", fmt.Errorf("naming a host: %w", err)
	}
	return address, file.Close()
}

// ConfDir returns the directory of the configuration that daemons, jobs and clients share.
func (b *Bed) ConfDir() string { return b.layout.Conf }

// WorkerOptions are those of a NodeManager that runs as in a pod.
type WorkerOptions struct {
	Name    string            // of its directories and its log
	Host    string            // name of [Bed.NameHost]
	Conf    map[string]string // files of its configuration; names may have a directory
	Env     []string          // of its container, such as NAME=value
	Shuffle int               // port of the shuffle, which listens on all addresses
}

// container is the first process of a worker's namespaces. It reaps what containers leave behind, as the pause process
// of a pod with one process namespace does. When the NodeManager ends, it ends too, and with it every process inside.
const container = `mount -t proc proc /proc || exit 1
"$@" &
manager=$!
trap 'kill -TERM $manager' TERM
wait $manager
code=$?
while kill -0 $manager 2>/dev/null; do
  wait $manager
  code=$?
done
exit $code
`

// Worker writes the configuration of a NodeManager, and returns it. It is not started. It has a process namespace of
// its own, so that its containers end with it.
func (b *Bed) Worker(o WorkerOptions) (*Daemon, error) {
	l := b.layout
	l.Conf = b.in("workers", o.Name, "conf")
	for name, content := range o.Conf {
		path := filepath.Join(l.Conf, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("configuring %s: %w", o.Name, err)
		}
		// Where a pod has its configuration, this one has none.
		content = strings.ReplaceAll(content, "/etc/hadoop/waterline/", l.Conf+"/")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return nil, fmt.Errorf("configuring %s: %w", o.Name, err)
		}
	}
	// A pod has addresses, directories and ports for itself. The size is that of the configuration.
	own := properties{
		"yarn.nodemanager.bind-host":  o.Host,
		"yarn.nodemanager.local-dirs": b.in("workers", o.Name, "local"),
		"yarn.nodemanager.log-dirs":   filepath.Join(b.logs, o.Name),
		"mapreduce.shuffle.port":      strconv.Itoa(o.Shuffle),
	}
	java := append([]string{"-c", container, "worker", filepath.Join(b.java, "bin/java")},
		b.javaArgs(l, 256, "org.apache.hadoop.yarn.server.nodemanager.NodeManager", own.definitions()...)...)
	return &Daemon{name: o.Name, log: filepath.Join(b.logs, o.Name+".log"), new: func() *exec.Cmd {
		c := exec.Command("bash", java...)
		c.Env = append(append(b.Env(), o.Env...), "HADOOP_CONF_DIR="+l.Conf, "YARN_CONF_DIR="+l.Conf)
		c.Dir = b.dir
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		return c
	}}, nil
}

// Entering returns how a command is started in the namespaces of a worker, each time in those that it has then.
func (d *Daemon) Entering(command ...string) func() *exec.Cmd {
	return func() *exec.Cmd { return d.Inside(context.Background(), command...) }
}

// Inside returns a command that runs in the namespaces of a worker, as a hook of its pod does.
func (d *Daemon) Inside(ctx context.Context, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter",
		append([]string{"-t", strconv.Itoa(d.cmd.Process.Pid), "-p", "-m", "--"}, command...)...)
}

// RemoveWorker removes the directories of a worker that has ended, but not its logs.
func (b *Bed) RemoveWorker(name string) error { return os.RemoveAll(b.in("workers", name)) }
