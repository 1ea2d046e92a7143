package yarn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Daemon is one process of the cluster. Its methods are not for concurrent use.
type Daemon struct {
	name string
	new  func() *exec.Cmd
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is gone
}

// NewDaemon returns a process that a command runs, with its log. It is not started.
func NewDaemon(name, log string, command func() *exec.Cmd) *Daemon {
	return &Daemon{name: name, log: log, new: command}
}

// daemon returns a Java process with a heap of at most that many MiB. It is not started.
func (b *Bed) daemon(name string, heap int, class string, args ...string) *Daemon {
	return &Daemon{name: name, log: filepath.Join(b.logs, name+".log"), new: func() *exec.Cmd {
		c := exec.Command(filepath.Join(b.java, "bin/java"), b.javaArgs(b.layout, heap, class, args...)...)
		c.Env, c.Dir = b.Env(), b.dir
		return c
	}}
}

// Start starts the process. Its log is appended to.
func (d *Daemon) Start() error {
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	defer log.Close()
	d.cmd = d.new()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if d.cmd.SysProcAttr == nil {
		d.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	d.cmd.SysProcAttr.Setpgid = true // ^C goes to the program, which then ends the daemons
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	d.done = make(chan struct{})
	go func(c *exec.Cmd, done chan struct{}) {
		_ = c.Wait()
		close(done)
	}(d.cmd, d.done)
	return nil
}

// Done returns a channel that is closed when the process is gone, for instance because it was decommissioned.
func (d *Daemon) Done() <-chan struct{} { return d.done }

// ExitCode returns the exit code of a process that is gone; -1 if a signal ended it.
func (d *Daemon) ExitCode() int {
	<-d.done
	return d.cmd.ProcessState.ExitCode()
}

// PID returns the number of the process, 0 before it was started.
func (d *Daemon) PID() int {
	if d.cmd == nil || d.cmd.Process == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Kill ends the process as kill -9 does, and waits until it is gone.
func (d *Daemon) Kill(ctx context.Context) error { return d.end(ctx, syscall.SIGKILL) }

// Stop asks the process to end, and waits until it is gone. A NodeManager that is started before that finds its state
// locked.
func (d *Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

func (d *Daemon) end(ctx context.Context, signal syscall.Signal) error {
	if err := d.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s %v: %w", d.name, signal, err)
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end after %v: %w; its log is %s", d.name, signal, ctx.Err(), d.log)
	}
}
