package guard

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
)

// signal sends a signal to the processes of a container, as the last scan found them, and returns how many got it.
func (s *scanner) signal(id string, signal shed.Signal) (delivered int, err error) {
	g := s.of[id]
	if g == nil {
		return 0, nil
	}
	number, known := map[shed.Signal]unix.Signal{
		shed.Decommission: unix.SIGPWR, shed.Terminate: unix.SIGTERM, shed.Kill: unix.SIGKILL,
	}[signal]
	if !known {
		return 0, fmt.Errorf("there is no signal %q", signal)
	}
	if signal == shed.Kill {
		g = s.stop(id)
	}
	delivered, errs := s.sendAll(g, number, map[identity]bool{})
	if len(errs) == 0 {
		return delivered, nil
	}
	return delivered, fmt.Errorf("%d of %d processes did not get SIG%s: %w", len(errs), len(g.members), signal, errs[0])
}

// mostLooks bounds how often processes are looked for before a container is killed.
const mostLooks = 5

// stop stops the processes of a container until a scan finds none that was not stopped, and returns all of them.
// Otherwise, children that a process starts between the scan and its SIGKILL would be left behind.
func (s *scanner) stop(id string) *group {
	stopped := map[identity]bool{}
	for range mostLooks {
		g, before := s.of[id], len(stopped)
		s.sendAll(g, unix.SIGSTOP, stopped)
		if len(stopped) == before || s.scan(s.at, s.others) != nil || s.of[id] == nil {
			return g
		}
	}
	return s.of[id]
}

// resume lets stopped processes go on, once: an earlier guard may have been killed between its SIGSTOP and its SIGKILL.
func (s *scanner) resume() {
	if s.resumed {
		return
	}
	s.resumed = true
	for _, g := range s.of {
		for _, p := range g.members {
			if status, err := os.ReadFile(s.path(p.pid, "status")); err == nil && field(status, "State:") == "T" {
				_, _ = s.send(p, unix.SIGCONT) // it has ended, or the first signal to it says why it gets none
			}
		}
	}
}

// sendAll sends a signal to the processes of a container, except those in done, to which it adds them. It returns how
// many got it.
func (s *scanner) sendAll(g *group, number unix.Signal, done map[identity]bool) (int, []error) {
	delivered, errs := 0, []error(nil)
	for _, p := range g.members {
		if done[p.identity()] {
			continue
		}
		done[p.identity()] = true
		sent, err := s.send(p, number)
		switch {
		case err != nil:
			errs = append(errs, err)
		case sent:
			delivered++
		}
	}
	return delivered, errs
}

// send sends a signal to a process, unless it has ended or is another one than the scan found. The file descriptor
// keeps the process, so what is checked after it was opened is true of the process that gets the signal. An exec since
// the scan may have changed the environment, but not the container.
func (s *scanner) send(p process, number unix.Signal) (bool, error) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return false, nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
		return false, fmt.Errorf("opening process %d by pidfd_open, which Linux has from 5.3 on and the pod's seccomp "+
			"profile must allow: %w", p.pid, err)
	case err != nil:
		return false, fmt.Errorf("opening process %d: %w", p.pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if same, err := s.same(p, number); !same || err != nil {
		return false, err
	}
	err = unix.PidfdSendSignal(fd, number, nil, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return false, nil
	case errors.Is(err, unix.EPERM):
		return false, fmt.Errorf("the kernel does not let the guard signal process %d of user %d: containers of other users "+
			"need the capability KILL, which spec.yarn.containerExecutor: Linux gives: %w", p.pid, p.uid, err)
	case err != nil:
		return false, fmt.Errorf("signalling process %d: %w", p.pid, err)
	}
	return true, nil
}

// same reports whether a process is still the one that was found, and may get the signal.
func (s *scanner) same(p process, number unix.Signal) (bool, error) {
	now, err := s.read(p.pid)
	if err != nil {
		return false, gone(err)
	}
	if now.start != p.start || now.uid != p.uid {
		return false, nil
	}
	return number != unix.SIGPWR || s.decommissions(p.pid), nil
}
