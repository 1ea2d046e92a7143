package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// Command says what to run as a process of its own, and where.
type Command struct {
	Name     string // in errors, such as "the agent"
	Group    string // cgroup to run in; "": that of this process
	OOMScore int    // oom_score_adj to start with; 0: that of this process
	Ends     bool   // the process ends by itself, or may be killed: its end is no error
	Stdout   io.Writer

	Program []string // executable and arguments; nil: Helper
	Helper  string   // name of a [Helper] of this executable
	Input   any      // of the helper, encoded as JSON
}

// Process is a process that a sandbox started. It dies with this process, however that ends.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{}
	err    error // after done
	killed bool  // by Kill: it had to end
}

// Start runs a command in a cgroup. No instruction of it runs elsewhere.
func (s *Sandbox) Start(c Command) (*Process, error) {
	h := helperCall{Parent: os.Getpid(), OOMScore: c.OOMScore, Program: c.Program}
	if c.Group != "" {
		h.Procs = s.procsFiles(c.Group)
	}
	var err error
	if h.Input, err = json.Marshal(c.Input); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	call, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	p := &Process{
		name: c.Name, cmd: exec.Command(s.helper, HelperCommand, c.Helper, string(call)), done: make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = c.Stdout, &p.stderr
	// Linux sends this signal when the thread that started the process ends. Go ends a thread before the process only
	// if a goroutine locked it and did not unlock it. There is no such goroutine here.
	// In the session of this process, a process could not have the least weight without this one having it too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	if !c.Ends {
		s.processes = append(s.processes, p)
	}
	return p, nil
}

// Name returns the name that errors have for the process.
func (p *Process) Name() string { return p.name }

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended returns an error if the process has ended.
func (p *Process) Ended() error {
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

// Killed reports whether the process was ended by a signal.
func (p *Process) Killed() bool {
	select {
	case <-p.done:
		status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return status.Signaled()
	default:
		return false
	}
}

// Wait waits until a process that ends by itself has ended, and returns an error unless it ended with code 0.
func (p *Process) Wait(ctx context.Context) error {
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

// Kill ends the process and waits until it has ended.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	<-p.done
	p.killed = true
	return nil
}

// tail keeps the last 4 KiB that are written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write appends and drops what is too old.
func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-most):]
	return len(b), nil
}

// String returns what was kept, without space around it.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
