package load

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs on which this process may run.
func AllowedCPUs() (cpus []int, err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, fmt.Errorf("reading which CPUs may be used: %w", err)
	}
	for cpu := 0; len(cpus) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Separate keeps a server off the last CPU that may be used, and returns that CPU, for the generator of its requests;
// -1 where there is only one. A generator that preempts the server lets the kernel run batch next
// (docs/design/contention.md), and clients on other machines preempt no server.
func Separate(server int) (cpu int, err error) {
	cpus, err := AllowedCPUs()
	if err != nil || len(cpus) < 2 {
		return -1, err
	}
	cpu = cpus[len(cpus)-1]
	return cpu, keepOff(server, cpu)
}

// keepOff binds all threads of a process to the CPUs other than one.
func keepOff(pid, cpu int) error {
	var others unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &others); err != nil {
		return fmt.Errorf("reading on which CPUs process %d may run: %w", pid, err)
	}
	others.Clear(cpu)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("listing the threads of process %d: %w", pid, err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(tid, &others)
		}
		if err != nil {
			return fmt.Errorf("keeping thread %s off CPU %d: %w", t.Name(), cpu, err)
		}
	}
	return nil
}

// stayOn binds this thread to a CPU. It locks the thread to its goroutine.
func stayOn(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	runtime.LockOSThread()
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("staying on CPU %d: %w", cpu, err)
	}
	return nil
}

// Prioritize makes this thread run before all others that are not as urgent, and returns its scheduling class: the
// real-time class where the kernel allows it, else the best of the normal one. On a 6.18 whose CPUs other machines kept
// busy the generator was late by 0.2 to 2.6 ms, p99, in the first, by 0.9 to 4.8 ms in the second, and by 3.6 to 5.4 ms
// there without the short slice, which kernels before 6.12 ignore.
func Prioritize() string {
	fifo := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1,
	}
	if unix.SchedSetAttr(0, &fifo, 0) == nil {
		return "SCHED_FIFO"
	}
	best := unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Nice: -20,
		Runtime: uint64(100 * time.Microsecond),
	}
	if unix.SchedSetAttr(0, &best, 0) == nil {
		return "nice -20"
	}
	return "normal"
}

// Nap sleeps without the Go scheduler, which would add its own latency.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // a signal only makes it shorter
}

// readable waits for something to read, without the Go scheduler: that would add its own latency and wake up a thread
// of its own for each call that waits.
func readable(fds []unix.PollFd, longest time.Duration) bool {
	timeout := unix.NsecToTimespec(int64(longest))
	n, _, failed := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return failed == 0 && n > 0
}
