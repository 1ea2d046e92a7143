package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/waterline-io/waterline/test/bed/vm/wire"
)

// A command that is out of time gets SIGQUIT, on which Go programs print their stacks, and this much later SIGKILL.
const graceAfterQuit = 5 * time.Second

// reapLimit bounds the wait for killed processes: those of a cgroup with a tiny quota take their time to exit.
const reapLimit = 20 * time.Second

// runAll runs the commands of the plan until one has run out of time.
func runAll(w *wire.Writer, plan wire.Plan, deadline time.Time) error {
	timedOut := false
	for _, c := range plan.Commands {
		exit := wire.Exit{Name: c.Name, Skipped: true}
		if !timedOut {
			if err := w.Send(wire.KindStart, []byte(c.Name)); err != nil {
				return err
			}
			var err error
			if exit, err = runOne(c, plan.Env, w.Stream(wire.KindOutput), deadline); err != nil {
				return err
			}
			timedOut = exit.TimedOut
		}
		if err := w.SendJSON(wire.KindExit, exit); err != nil {
			return err
		}
	}
	return nil
}

// runOne runs one command and then ends every process and removes every cgroup that it left behind. The error is about
// the guest; that of a command is in the Exit.
func runOne(c wire.Command, env []string, out io.Writer, deadline time.Time) (wire.Exit, error) {
	exit := wire.Exit{Name: c.Name}
	began := time.Now()
	r, pw, err := os.Pipe()
	if err != nil {
		return exit, fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return exit, err
	}
	defer null.Close()

	path, err := lookPath(c.Argv[0])
	var pid int
	if err == nil {
		pid, err = syscall.ForkExec(path, c.Argv, &syscall.ProcAttr{
			Dir: "/", Env: env,
			Files: []uintptr{null.Fd(), pw.Fd(), pw.Fd()},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	}
	pw.Close()
	if err != nil {
		exit.Code, exit.Err = 127, fmt.Sprintf("starting %s: %v", c.Argv[0], err)
		return exit, nil
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(writerOnly{out}, r)
		copied <- err
	}()

	stop := interruptAt(pid, deadline)
	status, err := reapUntil(pid)
	exit.TimedOut = stop()
	if err != nil {
		return exit, fmt.Errorf("waiting for %s: %w", c.Name, err)
	}
	exit.Took = time.Since(began)
	exit.Code = status.ExitStatus()
	if status.Signaled() {
		exit.Code, exit.Err = 128+int(status.Signal()), status.Signal().String()
	}
	if exit.TimedOut { // a shell dies of SIGQUIT at once, while the program that it ran still prints its stacks
		reapAll(graceAfterQuit, func() {})
	}
	if err := endAll(); err != nil {
		return exit, fmt.Errorf("after %s: %w", c.Name, err)
	}
	if err := <-copied; err != nil {
		return exit, fmt.Errorf("passing on the output of %s: %w", c.Name, err)
	}
	exit.Leftovers, err = removeCgroups(cgroupRoot)
	if err != nil {
		return exit, fmt.Errorf("after %s: %w", c.Name, err)
	}
	return exit, nil
}

// writerOnly keeps io.Copy from asking for anything but Write.
type writerOnly struct{ io.Writer }

// lookPath finds a program given by its name alone in the folders that the guest has.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range []string{"/usr/bin", "/bin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, os.ErrNotExist)
}

// interruptAt interrupts the session of a process at the deadline. The function that it returns calls this off and says
// whether it was too late for that.
func interruptAt(pid int, deadline time.Time) func() bool {
	kill := time.AfterFunc(time.Until(deadline)+graceAfterQuit, func() { _ = syscall.Kill(-1, syscall.SIGKILL) })
	quit := time.AfterFunc(time.Until(deadline), func() { _ = syscall.Kill(-pid, syscall.SIGQUIT) })
	return func() bool {
		kill.Stop()
		return !quit.Stop()
	}
}

// reapUntil collects children, as process 1 has to, until it has the one with this pid.
func reapUntil(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait4: %w", err)
		}
		if got == pid {
			return status, nil
		}
	}
}

// endAll kills and collects every process but this one and the kernel's.
func endAll() error {
	if !reapAll(reapLimit, func() { _ = syscall.Kill(-1, syscall.SIGKILL) }) {
		return fmt.Errorf("processes survived SIGKILL for %v", reapLimit)
	}
	return nil
}

// reapAll collects every child, urging them again and again, and says whether it had them all within the limit.
func reapAll(limit time.Duration, urge func()) bool {
	for giveUp := time.Now().Add(limit); time.Now().Before(giveUp); {
		urge()
		switch pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); {
		case err == syscall.ECHILD:
			return true
		case pid <= 0:
			time.Sleep(5 * time.Millisecond)
		}
	}
	return false
}
