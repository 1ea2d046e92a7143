package workers

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/lab/dataset"
)

// options returns a small cluster of generated machines, of which the second day is simulated.
func options(nodes int) Options {
	o := Defaults()
	o.Day, o.Cores, o.Memory = 2, 16, 64<<10
	for i := range nodes {
		quiet := trace.Shape{Days: o.Day, Base: 0.08, Daily: 0.15, Noise: 0.02, Burst: 0.1}
		o.Machines = append(o.Machines, dataset.Generate(quiet, uint64(i)))
	}
	return o
}

func run(t *testing.T, o Options, name string) Result {
	t.Helper()
	p, found := Find(name)
	if !found {
		t.Fatalf("there is no policy %q", name)
	}
	r, err := Run(t.Context(), o, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStages compares the policies on generated usage: each stage uses more of the cluster, and the naive policy
// resizes more, and leaves online services short of CPU for longer, than the one that waits.
func TestStages(t *testing.T) {
	o := options(3)
	nodes := float64(len(o.Machines))
	all := map[string]Result{}
	for _, p := range Policies() {
		all[p.Name] = run(t, o, p.Name)
	}
	stages := []string{"alone", "night", "oversubscribed", "memory"}
	for i := range stages[1:] {
		before, after := all[stages[i]], all[stages[i+1]]
		if after.CPUPercent <= before.CPUPercent || after.Goodput <= before.Goodput {
			t.Errorf("%s: %.1f %% and %.0f core-hours, %s: %.1f %% and %.0f", stages[i], before.CPUPercent, before.Goodput,
				stages[i+1], after.CPUPercent, after.Goodput)
		}
	}
	naive, memory := all["naive"], all["memory"]
	if naive.ResizesPerHour() < 5*memory.ResizesPerHour() || naive.Short <= memory.Short {
		t.Errorf("naive: %.1f resizes an hour, short for %.1f s; memory: %.1f, %.1f s", naive.ResizesPerHour(), naive.Short,
			memory.ResizesPerHour(), memory.Short)
	}
	for name, r := range all {
		if r.OnlinePercent != all["alone"].OnlinePercent || r.CPUPercent > 100 || r.Served > 100.001 || len(r.Online) != 96 {
			t.Errorf("%s: online %.2f %% of %.2f %%, served %.3f %%, %d parts", name, r.OnlinePercent, r.CPUPercent, r.Served,
				len(r.Online))
		}
		// Work that was begun in the warm-up ends in the day, and other work has not ended yet.
		used := (r.CPUPercent - r.OnlinePercent) / 100 * 24 * float64(o.Cores) * float64(len(o.Machines))
		if left := used - r.Goodput - r.Lost/3600; left < -30 || left > 30 {
			t.Errorf("%s: of %.0f core-hours, %.0f ended and %.0f were lost", name, used, r.Goodput, r.Lost/3600)
		}
	}
	if r := all["alone"]; r.Goodput != 0 || r.Short != 0 || r.ManagerHours != 0 {
		t.Errorf("alone: %+v", r)
	}
	if r := all["night"]; r.ManagerHours > 9*nodes+0.1 || r.ManagerHours < 8*nodes {
		t.Errorf("at night: %.1f hours of NodeManagers", r.ManagerHours)
	}
}

// TestSameSeed checks that the same options give the same figures, and another seed others.
func TestSameSeed(t *testing.T) {
	o := options(1)
	first := run(t, o, "24h")
	if again := run(t, o, "24h"); !reflect.DeepEqual(first, again) {
		t.Errorf("%+v, and then %+v", first, again)
	}
	if o.Seed = 2; run(t, o, "24h").Goodput == first.Goodput {
		t.Error("another seed changes nothing")
	}
}

// TestOptions checks that what cannot be simulated is refused, and that a simulation can be cancelled.
func TestOptions(t *testing.T) {
	p, _ := Find("memory")
	for want, change := range map[string]func(o *Options){
		"there are no machines": func(o *Options) { o.Machines = nil },
		"no day 3":              func(o *Options) { o.Day = 3 },
		"3 cores":               func(o *Options) { o.Cores = 3 },
		"at a load of 0":        func(o *Options) { o.Load = 0 },
	} {
		o := options(1)
		change(&o)
		if _, err := Run(t.Context(), o, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, options(1), p); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestSpread checks that each node gets a day of its own.
func TestSpread(t *testing.T) {
	machines := []dataset.Machine{dataset.Generate(trace.Online(4), 1), dataset.Generate(trace.Online(3), 2)}
	all, err := Spread(machines, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]bool{}
	for i := range all {
		day, err := all[i].Day(2)
		if err != nil {
			t.Fatal(err)
		}
		seen[day[0]] = true
	}
	if len(seen) != 4 {
		t.Errorf("the days begin with %v", seen)
	}
	if _, err := Spread(machines, 6, 2); err == nil || !strings.Contains(err.Error(), "5 days") {
		t.Errorf("six days of five: %v", err)
	}
}
