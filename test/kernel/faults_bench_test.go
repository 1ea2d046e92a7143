//go:build bench

package kernel_test

import (
	"testing"
)

// TestFightFigures measures how often the agent answers a writer in a tight loop once it reports it, and what that
// costs.
func TestFightFigures(t *testing.T) {
	liveKernel(t, "who writes and how often looks the same with cgroup v2")
	f := fight(t)
	t.Logf("%v", f)
	if f["repairs"] > 2*f["seconds"]+5 {
		t.Errorf("%v repairs within %.1f s, want about one a second", f["repairs"], f["seconds"])
	}
	if cpus := f["cpu_seconds"] / f["seconds"]; cpus > slower(0.5, 1) {
		t.Errorf("the fight costs %.2f CPU", cpus)
	}
}

// slower returns the bound for this machine: the second one for the emulated CPUs of the virtual machine.
func slower(here, there float64) float64 {
	if emulated() {
		return there
	}
	return here
}

// within checks that each of these figures is at most a number of seconds of CPU, five times as many on emulated CPUs.
func (f figures) within(t *testing.T, seconds float64, names ...string) {
	t.Helper()
	t.Logf("%v", f)
	for _, name := range names {
		if got, known := f[name]; !known || got > slower(seconds, 5*seconds) {
			t.Errorf("%s: %.2f s, want at most %.2f", name, got, slower(seconds, 5*seconds))
		}
	}
}

// TestOverflowCost measures the CPU time in which the agent finds what it missed.
func TestOverflowCost(t *testing.T) {
	liveKernel(t, "the queue of events is the same with cgroup v2")
	overflow(t).within(t, 3, "cpu_seconds")
}

// TestNoWatchesCost measures the CPU time that an agent without watches uses in a few seconds.
func TestNoWatchesCost(t *testing.T) {
	for limit, value := range watchLimits {
		t.Run(limit, func(t *testing.T) { noWatches(t, limit, value).within(t, 1, "cpu_seconds") })
	}
}

// TestMountCost measures the CPU time that an agent uses while its mount is read-only, or gone.
func TestMountCost(t *testing.T) {
	f := movingMount(t)
	f.within(t, 0.5, "read_only_cpu_seconds")
	f.within(t, 1, "unmounted_cpu_seconds")
}

// TestFullDiskCost measures the CPU time that an agent uses in a few seconds while it cannot record what it would undo.
func TestFullDiskCost(t *testing.T) {
	fullDisk(t).within(t, 1, "cpu_seconds")
}

// TestClockCost measures how often the agent audits after a step of the clock, and the CPUs that it uses.
func TestClockCost(t *testing.T) {
	if !emulated() {
		t.Skip("the test must not set the clock of this machine; it runs in the virtual machine")
	}
	f := clockSteps(t)
	t.Logf("%v", f)
	if f["audits_too_many"] > 2 || f["cpus"] > 0.5 {
		t.Errorf("want one audit a second, and at most half a CPU")
	}
}
