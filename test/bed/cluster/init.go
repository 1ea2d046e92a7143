package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The descriptors that Up hands to Init. Each is a pipe end or a lock that nobody else must hold.
const (
	fdLock  = 3 // the lock on the state directory; held for as long as the cluster lives
	fdSweep = 4 // closed by our end, which wakes the sweeper
	fdLeash = 5 // reads the end of whoever called Up; only if it wants the cluster to end with it
)

// Init is the first process inside: it starts the supervisor, reaps whatever is orphaned, and ends when the supervisor
// does or when the leash is let go. With its end the kernel ends every process inside. self is the bed's command, dir
// where the cluster's state is.
func Init(self, dir string) error {
	_, o, err := readOptions(dir)
	if err != nil {
		return err
	}
	for _, fd := range []int{fdLock, fdSweep, fdLeash} {
		unix.CloseOnExec(fd)
	}
	supervisor, err := os.StartProcess(self, []string{self, "supervise", dir}, &os.ProcAttr{
		Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	if o.Leash {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(fdLeash, "leash"))
			os.Exit(0)
		}()
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for processes: %w", err)
		}
		if pid == supervisor.Pid {
			if status.ExitStatus() != 0 {
				return fmt.Errorf("the supervisor ended with status %d", status.ExitStatus())
			}
			return nil
		}
	}
}

// readOptions returns what the cluster that this process is part of was asked to be.
func readOptions(dir string) (p paths, o Options, err error) {
	if p, err = placeAt(dir); err != nil {
		return p, o, err
	}
	content, err := os.ReadFile(p.options())
	if err != nil {
		return p, o, err
	}
	return p, o, json.Unmarshal(content, &o)
}
