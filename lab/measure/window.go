// Package measure reads how much CPU time pods and the machine use, how threads are scheduled, and what machine it is.
// It also has the statistics that experiments need.
package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/progress"
)

// Source is the sandbox that a [Meter] reads.
type Source interface {
	LoadedGroups() map[string]string           // cgroups of the pods that bear load, by their names
	Usage(group string) (time.Duration, error) // CPU time used so far
	Running() error                            // an error if a process has ended that must not
	Report(progress.Step)
}

// Meter reads used CPU time.
type Meter struct {
	Source    Source
	Generator string // cgroup of the generator of requests, which is counted apart; "": none
}

// Reading is the CPU time that had been used at one moment.
type Reading struct {
	at        time.Time
	used      map[string]time.Duration // by pod
	generator time.Duration
	machine   machineCPU
}

// Window is the CPU time that was used between two readings.
type Window struct {
	Length    time.Duration
	Used      map[string]time.Duration // by pod
	Generator time.Duration            // used by the generator of requests
	Steal     float64                  // percent of the machine's CPU time that the hypervisor gave to other machines
	Busy      float64                  // CPUs of the machine that were not idle, on average; stolen time counts as busy
}

// Read takes a reading.
func (m Meter) Read() (Reading, error) {
	r := Reading{used: map[string]time.Duration{}}
	for name, group := range m.Source.LoadedGroups() {
		used, err := m.Source.Usage(group)
		if err != nil {
			return Reading{}, err
		}
		r.used[name] = used
	}
	var err error
	if m.Generator != "" {
		if r.generator, err = m.Source.Usage(m.Generator); err != nil {
			return Reading{}, err
		}
	}
	r.at = time.Now()
	r.machine, err = readMachineCPU()
	return r, err
}

// Since returns what was used after an earlier reading. A pod without an earlier reading had used nothing then.
func (r Reading) Since(before Reading) Window {
	w := Window{
		Length: r.at.Sub(before.at), Used: map[string]time.Duration{}, Generator: r.generator - before.generator,
		Steal: r.machine.stealSince(before.machine), Busy: r.machine.busySince(before.machine),
	}
	for name, used := range r.used {
		w.Used[name] = used - before.used[name]
	}
	return w
}

// Seconds measures for a number of seconds, calls each after every second, and returns the whole. What each returns is
// shown as the figure of the moment.
func (m Meter) Seconds(
	ctx context.Context, doing string, seconds int, each func(second Window) (now string),
) (Window, error) {
	first, err := m.Read()
	if err != nil {
		return Window{}, err
	}
	last := first
	total := time.Duration(seconds) * time.Second
	m.Source.Report(progress.Step{Doing: doing, Total: total})
	for i := range seconds {
		if err := sleepUntil(ctx, first.at.Add(time.Duration(i+1)*time.Second)); err != nil {
			return Window{}, fmt.Errorf("%s: %w", doing, err)
		}
		if err := m.Source.Running(); err != nil {
			return Window{}, fmt.Errorf("%s: %w", doing, err)
		}
		now, err := m.Read()
		if err != nil {
			return Window{}, err
		}
		m.Source.Report(progress.Step{
			Doing: doing, Now: each(now.Since(last)), Elapsed: now.at.Sub(first.at), Total: total,
		})
		last = now
	}
	return last.Since(first), nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-time.After(time.Until(at)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Join adds up windows, which follow each other or come from different runs.
func Join(windows []Window) Window {
	all := Window{Used: map[string]time.Duration{}}
	for _, w := range windows {
		all.Length += w.Length
		all.Generator += w.Generator
		all.Steal += w.Steal * w.Length.Seconds()
		all.Busy += w.Busy * w.Length.Seconds()
		for name, used := range w.Used {
			all.Used[name] += used
		}
	}
	all.Steal /= all.Length.Seconds()
	all.Busy /= all.Length.Seconds()
	return all
}

// Total returns the CPU time of all pods.
func (w Window) Total() time.Duration {
	var sum time.Duration
	for _, used := range w.Used {
		sum += used
	}
	return sum
}

// Share returns a pod's part of the CPU time of all pods, from 0 to 1.
func (w Window) Share(name string) float64 {
	total := w.Total()
	if total == 0 {
		return 0
	}
	return float64(w.Used[name]) / float64(total)
}

// CPUsOf returns how many CPUs a pod used, on average.
func (w Window) CPUsOf(name string) float64 { return float64(w.Used[name]) / float64(w.Length) }

// CPUs returns how many CPUs the pods used, on average.
func (w Window) CPUs() float64 { return float64(w.Total()) / float64(w.Length) }

// GeneratorCPUs returns how many CPUs the generator of requests used, on average.
func (w Window) GeneratorCPUs() float64 { return float64(w.Generator) / float64(w.Length) }
