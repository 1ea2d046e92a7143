//go:build bench

package kernel_test

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/lab/experiment"
)

// TestExperimentFigures runs the short experiments of the lab, for fewer seconds, and checks their figures. Those about
// weights run beside a pod of 262144 shares that uses all CPUs, and without that pod too. The bounds are generous. They
// check that the kernel follows the weights, not how exactly this machine keeps time; docs/results.md has figures.
func TestExperimentFigures(t *testing.T) {
	n := newNode(t) // or skip
	// Most experiments take 3 s; cpuset and burst measure for this long in each of their modes.
	lengths := map[string]int{"burst": 6}
	for _, c := range []struct {
		name string
		hog  bool
		ok   func(m map[string]float64) bool
	}{
		{"fill", false, func(m map[string]float64) bool { return m["waterline_cpu_percent"] >= 90 }},
		{"weights", false, func(m map[string]float64) bool { return math.Abs(m["ratio"]-2) < 0.15 }},
		{"weights", true, func(m map[string]float64) bool { return math.Abs(m["ratio"]-2) < 0.3 }},
		{"preempt", false, func(m map[string]float64) bool { return math.Abs(m["share"]-m["theory"]) < 0.04 }},
		{"preempt", true, func(m map[string]float64) bool { return math.Abs(m["share"]-m["theory"]) < 0.04 }},
		{"drift", false, func(m map[string]float64) bool { return m["repair_p99_ms"] <= 100 }},
		{"drift", true, func(m map[string]float64) bool { return m["repair_p99_ms"] <= 100 }},
		{"cpuset", false, func(m map[string]float64) bool { return exclusive(t, m, emulated()) }},
		{"burst", false, func(m map[string]float64) bool {
			return m["p99_ms_with"] < m["p99_ms_without"] && m["throttled_percent_with"] < m["throttled_percent_without"]
		}},
	} {
		name := c.name
		if c.hog {
			name += ", beside a hog"
		}
		t.Run(name, func(t *testing.T) {
			if emulated() && slices.Contains([]string{"fill", "drift", "burst"}, c.name) {
				t.Skip("times of an emulated CPU mean nothing")
			}
			if c.name != "weights" {
				liveKernel(t, "the ratio of weights shows that cgroup v2 follows them, and TestCPUSets who has which CPUs")
			}
			alone := !c.hog && slices.Contains([]string{"weights", "preempt", "drift"}, c.name)
			if alone && emulated() { // the demo, which has them, runs there
				t.Skip("on an emulated machine, the experiment beside a hog stands for both")
			}
			if c.name == "cpuset" && (n.mount.Cpusets == "" || runtime.NumCPU() < 2) {
				t.Skip("no cpuset controller, or one CPU")
			}
			seconds := cmp.Or(lengths[c.name], 3)
			e, found := experiment.Find(c.name)
			if !found {
				t.Fatal("no such experiment")
			}
			// A slow second can hit one of two compared modes, or one of the few seconds of drift.
			retry(t, 3, func() (map[string]float64, string) {
				r, err := e.Run(t.Context(), experiment.Config{Config: sandboxConfig(t, "lab"), Seconds: seconds, Hog: c.hog})
				if errors.Is(err, experiment.ErrBusy) {
					t.Skip(err)
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %v", r.Headline, r.Metrics)
				if !c.ok(r.Metrics) {
					return r.Metrics, "out of bounds"
				}
				return r.Metrics, ""
			})
		})
	}
}

// exclusive reports whether, in experiment cpuset, no other process ran on the exclusive CPU and its owner gained from
// it. Processes outside of pods may run there too, so latencies are compared only if there were few of them.
func exclusive(t *testing.T, m map[string]float64, emulated bool) bool {
	const little = 0.2 // CPUs
	alone := m["exclusive_intruders"] == 0 && m["exclusive_batch_cpus"] <= m["cpus_machine"]-1+0.02
	if emulated || max(m["none_outsiders_cpus"], m["exclusive_outsiders_cpus"]) > little {
		t.Log("latencies are not compared: an emulated machine, or other load on this one")
		return alone
	}
	return alone && m["exclusive_p99_ms"] <= m["none_p99_ms"]
}
