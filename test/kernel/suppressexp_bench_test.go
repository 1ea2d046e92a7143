//go:build bench

package kernel_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/waterline-io/waterline/lab/suppress"
)

// TestSuppressExperiment runs lab suppress. The delay until batch has less is checked only if no other process
// uses the rest of the machine. Otherwise the test checks only that steps are made and measured.
func TestSuppressExperiment(t *testing.T) {
	if emulated() {
		t.Skip("in an emulated machine, the agent and the reader alone use half of a CPU, and nothing is left; " +
			"TestSuppress runs there")
	}
	n := newNode(t) // or skip
	if n.mount.Cpusets == "" {
		t.Skip("no cpuset controller")
	}
	// The lab's own bench makes 100 steps, which takes 40 minutes.
	cfg := suppress.Config{Config: sandboxConfig(t, "lab"), Steps: 10}
	retry(t, 3, func() (map[string]float64, string) {
		r, err := suppress.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s\n%v", r.Headline, r.Table, r.Metrics)
		return r.Metrics, suppressed(t, r.Metrics)
	})
}

// suppressed returns the error in the figures of lab suppress; "": none.
func suppressed(t *testing.T, m map[string]float64) string {
	t.Helper()
	wants := 1000 * float64(max(runtime.NumCPU()/2, 1))
	if m["steps"] < 2 || m["online_milli_max"] < 0.3*wants || m["online_milli_max"] > 1.1*wants {
		return fmt.Sprintf("%v steps, in which the online pod used at most %v of %v mCPU", m["steps"], m["online_milli_max"],
			wants)
	}
	if m["reader_cpus"] <= 0 || m["reader_cpus"] > 0.5 {
		return fmt.Sprintf("the reader used %v CPUs", m["reader_cpus"])
	}
	const little = 0.2 // CPUs
	if others := m["other_cpus"] + m["steal_percent"]/100*m["cpus_machine"]; others > little {
		t.Logf("times are not judged: other processes took %.2f CPUs", others)
		return ""
	}
	if m["steps_not_smaller"] > 0 || m["steps_not_given_back"] > 0 {
		return fmt.Sprintf("in %v steps batch did not get less, after %v it did not get it back", m["steps_not_smaller"],
			m["steps_not_given_back"])
	}
	if m["suppress_p99_ms"] > 2000 {
		return fmt.Sprintf("batch is limited to the rest after %v ms", m["suppress_p99_ms"])
	}
	return ""
}
