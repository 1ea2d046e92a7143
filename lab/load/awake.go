package load

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/lab/sandbox"
)

// Loops are processes that keep CPUs from sleeping.
type Loops []*sandbox.Process

// Awake keeps the CPUs from sleeping, as batch does, until the loops are killed or the sandbox is closed. A loop runs
// on each CPU, in the root cgroup, with the least priority.
//
// A virtual CPU that sleeps runs again only when the hypervisor schedules it. On a 6.18 in a virtual machine, a
// real-time thread that slept for a few milliseconds was late by 1.0 to 1.3 ms, p99, and by 0.1 ms beside such loops.
// Without loops, this delay would be in the latency of a server alone, and not in its latency beside batch.
func Awake(s *sandbox.Sandbox) (Loops, error) {
	cpus, err := AllowedCPUs()
	if err != nil {
		return nil, err
	}
	var l Loops
	for i := range cpus {
		one, err := s.Start(sandbox.Command{
			Name: "the loop that keeps a CPU awake", Group: "/", Helper: "burn", Input: loop{Number: i, Least: true},
		})
		if err != nil {
			return nil, err
		}
		l = append(l, one)
	}
	return l, nil
}

// PIDs returns the numbers of the processes. Their CPU time is to count as idle.
func (l Loops) PIDs() []int {
	var pids []int
	for _, p := range l {
		pids = append(pids, p.PID())
	}
	return pids
}

// Kill ends the loops.
func (l Loops) Kill() error {
	var errs []error
	for _, p := range l {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// least gives this thread what all others of the machine come before: the class SCHED_IDLE, and for its session, of
// which most kernels make a group in the root cgroup, the weight of nice 19.
func least() error {
	if err := os.WriteFile("/proc/self/autogroup", []byte("19"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving the session of a loop the least weight: %w", err)
	}
	idle := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &idle, 0); err != nil {
		return fmt.Errorf("becoming a thread of class SCHED_IDLE: %w", err)
	}
	return nil
}
