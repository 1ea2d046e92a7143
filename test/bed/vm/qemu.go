package vm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const qemuName = "qemu-system-x86_64"

// The descriptors that qemu gets besides the standard ones.
const (
	consoleFD = 3
	initrdFD  = 4
	monitorFD = 5
)

// kernelArgs are the guest's command line. A panic ends qemu at once, because it restarts and qemu does not. The kernel
// prints all its messages, for half a second of a boot, so that the console of a guest that hangs shows where.
func kernelArgs() []string {
	return append([]string{
		"console=ttyS0", "panic=-1", "oops=panic", "unknown_nmi_panic",
		"psi=1", "cgroup_no_v1=all",
		"mitigations=off", "no5lvl", "random.trust_cpu=on",
	}, ClockArgs()...)
}

func qemuArgs(c Config) []string {
	// The emulated CPU claims five-level page tables, which cost an emulator a level on each walk.
	cpus := []string{"-cpu", "max,la57=off", "-smp", strconv.Itoa(c.CPUs)}
	if c.Topology != (Topology{}) {
		cpus = c.Topology.args(c.Memory)
	}
	return append(cpus,
		"-name", hostname, "-machine", "q35", "-accel", accel(c.Accel), "-m", strconv.Itoa(c.Memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-kernel", c.Kernel, "-initrd", fmt.Sprintf("/dev/fd/%d", initrdFD),
		"-append", strings.Join(append(kernelArgs(), c.KernelArgs...), " "),
		// ttyS0, the console
		"-chardev", fmt.Sprintf("file,id=console,path=/dev/fd/%d", consoleFD), "-serial", "chardev:console",
		// ttyS1, the frames
		"-chardev", "stdio,id=frames,signal=off", "-serial", "chardev:frames",
		"-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", monitorFD), "-mon", "chardev=monitor",
	)
}

func accel(name string) string {
	if name == "tcg" {
		return "tcg,thread=multi"
	}
	return name
}

// machine is a qemu that runs.
type machine struct {
	frames  *os.File
	monitor *os.File
	console *tail
	stderr  *tail
	process *os.Process
	exited  <-chan error
	drained *sync.WaitGroup
}

// startQemu starts qemu with an initramfs. The console is also copied to log.
func startQemu(c Config, initrd *os.File, log io.Writer) (*machine, error) {
	path, err := exec.LookPath(qemuName)
	if err != nil {
		return nil, fmt.Errorf("%w: install the package qemu-system-x86", err)
	}
	consoleR, consoleW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe for the console: %w", err)
	}
	defer consoleW.Close()
	framesR, framesW, err := os.Pipe()
	if err != nil {
		consoleR.Close()
		return nil, fmt.Errorf("making a pipe for the frames: %w", err)
	}
	defer framesW.Close()
	// Not blocking, so that reads have deadlines: a qemu that hangs itself says nothing.
	monitor, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		consoleR.Close()
		framesR.Close()
		return nil, fmt.Errorf("making a socket for the monitor: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(monitor[0]), "monitor"), os.NewFile(uintptr(monitor[1]), "monitor")
	defer theirs.Close()

	m := &machine{frames: framesR, monitor: ours, console: &tail{}, stderr: &tail{}, drained: new(sync.WaitGroup)}
	cmd := exec.Command(path, qemuArgs(c)...)
	cmd.Stdout, cmd.Stderr = framesW, m.stderr
	cmd.ExtraFiles = []*os.File{consoleFD - 3: consoleW, initrdFD - 3: initrd, monitorFD - 3: theirs}
	// In a process group of its own, so that Ctrl-C in a terminal is the caller's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	exited, err := startOnThread(cmd)
	if err != nil {
		consoleR.Close()
		framesR.Close()
		ours.Close()
		return nil, fmt.Errorf("starting qemu: %w", err)
	}
	m.process, m.exited = cmd.Process, exited
	m.drained.Go(func() {
		defer consoleR.Close()
		_, _ = io.Copy(io.MultiWriter(m.console, log), consoleR)
	})
	return m, nil
}

// startOnThread starts a command on a thread that lives as long as the command: the kernel sends the parent-death
// signal when the thread that forked ends, not when its process does, so that a SIGKILL of this process takes qemu with
// it but the end of an idle Go thread does not.
func startOnThread(cmd *exec.Cmd) (<-chan error, error) {
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	return exited, <-started
}

// examine lets a guest that hangs say where, before it is ended: qemu shows the registers of its CPUs, and a kernel
// that still takes interrupts prints a trace on its console.
func (m *machine) examine() {
	if err := m.monitor.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return
	}
	if _, err := fmt.Fprint(m.monitor, "info status\ninfo registers -a\nnmi\n"); err != nil {
		return
	}
	_, _ = io.Copy(m.stderr, m.monitor) // until qemu ends, as after a panic, or the deadline
}

// end waits for qemu to end, which a guest that is done makes it do.
func (m *machine) end(orderly bool) {
	if orderly {
		select {
		case <-m.exited: //nolint:errcheck // how qemu ended does not matter here
			m.drained.Wait()
			m.frames.Close()
			m.monitor.Close()
			return
		case <-time.After(poweroffLimit):
		}
	}
	_ = m.process.Kill()
	<-m.exited //nolint:errcheck // it was killed
	m.drained.Wait()
	m.frames.Close()
	m.monitor.Close()
}

// lastWords is what explains a failure, to be put after an error: qemu's own messages and the end of the console, and
// before them, because its call trace is long, the line of a kernel panic.
func (m *machine) lastWords() string {
	console, stderr := m.console.String(), m.stderr.String()
	text := "\n"
	if i := strings.Index(console, "Kernel panic"); i >= 0 {
		line, _, _ := strings.Cut(console[i:], "\n")
		text = ": " + line + "\n"
	}
	if stderr != "" {
		text += "--- qemu said:\n" + stderr + "\n"
	}
	if console != "" {
		text += "--- the end of the guest's console:\n" + console + "\n"
	}
	if stderr == "" && console == "" {
		text += "--- qemu said nothing, and the guest's console is empty\n"
	}
	return text + "---"
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(p), nil
}

// String returns the end, without the carriage returns of a console.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(strings.ReplaceAll(string(t.b), "\r", ""))
}
