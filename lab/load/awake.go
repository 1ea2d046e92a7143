package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/lab/sandbox"
)

// Awake keeps the CPUs from sleeping, as batch does, until the sandbox is closed: by a loop on each, of class
// SCHED_IDLE, in the root cgroup. It returns the loops' processes, whose CPU time is to count as idle. A virtual CPU
// that sleeps runs again only when the hypervisor gets to that. On a 6.18 in a virtual machine, a real-time thread that
// slept for a few milliseconds was late by 1.0 to 1.3 ms, p99, and by 0.1 ms beside such loops. Without them, a server
// alone answers later than beside batch, for a reason that has nothing to do with either.
func Awake(s *sandbox.Sandbox) (pids []int, err error) {
	cpus, err := AllowedCPUs()
	if err != nil {
		return nil, err
	}
	for i := range cpus {
		one, err := s.Start(sandbox.Command{
			Name: "the loop that keeps a CPU awake", Group: "/", Helper: "awake", Input: loop{Number: i},
		})
		if err != nil {
			return nil, err
		}
		pids = append(pids, one.PID())
	}
	return pids, nil
}

// awake becomes a loop that keeps a CPU awake.
func awake(in sandbox.HelperInput) error {
	var l loop
	if err := in.Decode(&l); err != nil {
		return err
	}
	cpus, err := AllowedCPUs()
	if err != nil {
		return err
	}
	if err := stayOn(cpus[l.Number%len(cpus)]); err != nil {
		return err
	}
	// Most kernels make a group of each session in the root cgroup, with the weight of this nice value: 15.
	if err := os.WriteFile("/proc/self/autogroup", []byte("19"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving the session of a loop the least weight: %w", err)
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &idle, 0); err != nil {
		return fmt.Errorf("becoming a thread of class SCHED_IDLE: %w", err)
	}
	return in.Become(endless(), nil)
}
