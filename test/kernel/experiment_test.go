package kernel_test

import (
	"math"
	"os"
	"testing"

	"github.com/waterline-io/waterline/internal/experiment"
)

// TestExperiments runs what users run, in short, alone and while a pod of 262144 burns all CPUs. The bounds are generous:
// they say that the kernel does what the weights say, not how well this machine keeps time; docs/results.md has figures.
func TestExperiments(t *testing.T) {
	newNode(t) // or skip
	seconds := 5
	if os.Getenv("WATERLINE_SOAK") != "" {
		seconds = 30
	}
	emulated := os.Getenv("WATERLINE_VM") != ""
	for _, c := range []struct {
		name string
		hog  bool
		ok   func(m map[string]float64) bool
	}{
		{"weights", false, func(m map[string]float64) bool { return math.Abs(m["ratio"]-2) < 0.15 }},
		{"weights", true, func(m map[string]float64) bool { return math.Abs(m["ratio"]-2) < 0.3 }},
		{"preempt", false, func(m map[string]float64) bool { return math.Abs(m["share"]-m["theory"]) < 0.04 }},
		{"preempt", true, func(m map[string]float64) bool { return math.Abs(m["share"]-m["theory"]) < 0.04 }},
		{"drift", false, func(m map[string]float64) bool { return m["repair_p99_ms"] <= 100 }},
		{"drift", true, func(m map[string]float64) bool { return m["repair_p99_ms"] <= 100 }},
		{"hierarchy", false, func(map[string]float64) bool { return true }},
	} {
		name := c.name
		if c.hog {
			name += ", beside a hog"
		}
		t.Run(name, func(t *testing.T) {
			if emulated && (!c.hog || c.name == "drift") {
				t.Skip("the virtual machine runs the demo, and its latencies mean nothing")
			}
			e, found := experiment.Find(c.name)
			if !found {
				t.Fatal("there is no such experiment")
			}
			r, err := e.Run(t.Context(), experiment.Config{Seconds: seconds, AgentPath: binary(t, "waterline-agent"), Helper: binary(t, "waterline"), Hog: c.hog})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %v", r.Headline, r.Metrics)
			if !c.ok(r.Metrics) {
				t.Errorf("out of bounds: %s: %v", r.Headline, r.Metrics)
			}
		})
	}
}
