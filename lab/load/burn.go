// Package load runs the load of experiments in a sandbox: busy loops, a server of one thread, and a generator of
// requests.
package load

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/waterline-io/waterline/internal/progress"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// settle is how long load runs before it is measured: many times what the scheduler averages over.
const settle = 1500 * time.Millisecond

// Helpers returns what an executable must pass to [sandbox.RunHelper] for this package.
func Helpers() []sandbox.Helper {
	return []sandbox.Helper{{Name: "burn", Run: burn}, {Name: "serve", Run: serve}, {Name: "request", Run: request}}
}

// Threads returns how many loops the load of a pod has: more than there are CPUs, so that it can use all of them at any
// moment.
func Threads() int { return 2 * runtime.NumCPU() }

// loop is the input of helper burn.
type loop struct {
	Number  int  // of the loop in its pod; it decides on which CPU the loop stays
	Unbound bool // it may run on any CPU that its cgroup allows
	Wakes   bool // it runs for toils and sleeps for rests, again and again
}

// Threads that wait for each other, as those of an encoder or a compiler do, sleep and wake all the time. The kernel
// gives a thread that wakes the CPU at once, so that they harm a server more than loops that never sleep.
const (
	toils = 2 * time.Millisecond
	rests = time.Millisecond
)

// toil runs and sleeps until the process is killed.
func toil() {
	for {
		for start := time.Now(); time.Since(start) < toils; {
		}
		Nap(rests)
	}
}

// burn becomes a busy loop that runs until it is killed. It is the shell's, because a Go program cannot keep one thread
// busy and do nothing else: its runtime's own threads wake up a hundred times a second, and each time the kernel
// divides the group's weight anew among the CPUs. Measured with such load, two pods of 8192 and 16384 came out at 2.33
// : 1; with this one, at 2.00 : 1.
func burn(in sandbox.HelperInput) error {
	var l loop
	if err := in.Decode(&l); err != nil {
		return err
	}
	if !l.Unbound {
		// Each CPU gets as many loops: the weights are to be measured, not the luck of the load balancer.
		cpus, err := AllowedCPUs()
		if err != nil {
			return err
		}
		if err := stayOn(cpus[l.Number%len(cpus)]); err != nil {
			return err
		}
	}
	if l.Wakes {
		toil()
	}
	return in.Become([]string{"/bin/sh", "-c", "while :; do :; done"}, nil)
}

// BurnName returns the name of the processes that are a pod's load.
func BurnName(p *sandbox.Pod) string { return "the load of pod " + p.Name }

// Burn starts the busy loops of a pod and waits until all of them are in it.
func Burn(ctx context.Context, s *sandbox.Sandbox, p *sandbox.Pod) (loops []*sandbox.Process, err error) {
	group := s.ContainerGroup(p)
	for i := range p.Threads {
		one, err := s.Start(sandbox.Command{
			Name: BurnName(p), Group: group, Helper: "burn", Input: loop{Number: i, Unbound: p.Unbound, Wakes: p.Wakes},
		})
		if err != nil {
			return nil, err
		}
		loops = append(loops, one)
	}
	s.AddLoad(p)
	return loops, s.Poll(ctx, "for "+BurnName(p), func() (bool, error) {
		count, err := s.Population(group)
		return count == p.Threads, err
	})
}

// BurnAll starts the busy loops of pods and lets the scheduler's averages settle.
func BurnAll(ctx context.Context, s *sandbox.Sandbox, pods ...*sandbox.Pod) error {
	s.Report(progress.Step{Doing: "starting the load"})
	for _, p := range pods {
		if _, err := Burn(ctx, s, p); err != nil {
			return err
		}
	}
	return Settle(ctx)
}

// Settle lets the scheduler's averages settle.
func Settle(ctx context.Context) error { return sandbox.Sleep(ctx, settle) }

// CPUTime measures the CPU time that a pod spends while do runs.
func CPUTime(s *sandbox.Sandbox, p *sandbox.Pod, do func() error) (time.Duration, error) {
	before, err := s.Usage(s.PodGroup(p))
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := s.Usage(s.PodGroup(p))
	if err != nil {
		return 0, fmt.Errorf("after the work: %w", err)
	}
	return after - before, nil
}
