package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// AgentName is the name of the agent's executable.
const AgentName = "waterline-agent"

// FindAgent returns the agent's executable: the one given, or the one beside this executable, or the one in PATH.
func FindAgent(given string) (string, error) {
	if given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("finding the agent: %w", err)
		}
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), AgentName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	found, err := exec.LookPath(AgentName)
	if err != nil {
		return "", fmt.Errorf("finding the agent: %s is neither beside this executable nor in PATH; build it with \"make build\", or say where it is with --agent: %w", AgentName, err)
	}
	return filepath.Abs(found)
}

// process is a helper that runs in a cgroup of its own.
type process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error // after done
}

// start runs a helper in a cgroup. It dies with us, however we die.
func (l *lab) start(name, dir, helper string, args ...string) (*process, error) {
	return l.startIn(name, dir, nil, helper, args...)
}

// startIn runs a helper in a cgroup. Its standard output goes to a writer, which may be nil.
func (l *lab) startIn(name, dir string, stdout io.Writer, helper string, args ...string) (*process, error) {
	var enter []string
	for _, file := range l.box.procs(dir) {
		enter = append(enter, "--procs", file)
	}
	return l.startHere(name, stdout, helper, append(enter, args...)...)
}

// startHere runs a helper where we are. Its standard output goes to a writer, which may be nil.
func (l *lab) startHere(name string, stdout io.Writer, helper string, args ...string) (*process, error) {
	argv := []string{HelperCommand, helper, "--parent", strconv.Itoa(os.Getpid())}
	p := &process{name: name, cmd: exec.Command(l.helper, append(argv, args...)...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = stdout, &p.stderr
	// Linux sends this signal when the thread that started the process ends. Go ends no thread before the process ends, save
	// those that a goroutine locked and did not unlock, of which there are none here.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	l.procs = append(l.procs, p)
	return p, nil
}

// ended returns an error if the process has ended, which none should before it is killed.
func (p *process) ended() error {
	select {
	case <-p.done:
		if p.err == nil {
			return fmt.Errorf("%s ended", p.name)
		}
		return fmt.Errorf("%s ended: %w: %s", p.name, p.err, p.stderr.String())
	default:
		return nil
	}
}

// wait waits until a process that ends by itself has ended well.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.name, p.err, p.stderr.String())
	}
	return nil
}

// kill ends the process and waits until it has.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	<-p.done
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write takes everything and drops the oldest of it.
func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-most):]
	return len(b), nil
}

// String returns what was kept, without the line's end.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
