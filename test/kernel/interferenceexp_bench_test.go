//go:build bench

package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/waterline-io/waterline/lab/interference"
	"github.com/waterline-io/waterline/lab/sandbox"
)

// TestInterferenceExperiment runs lab interference. The guilty pod takes the server's CPU, the agent measures the
// server's waiting, the guilty pod is named and throttled, and the server waits less.
func TestInterferenceExperiment(t *testing.T) {
	newNode(t) // or skip
	cfg := interference.Config{Config: sandboxConfig(t, "lab"), Repeats: 1, Nobody: 1}
	retry(t, 2, func() (map[string]float64, string) {
		r, err := interference.Run(t.Context(), cfg)
		if errors.Is(err, sandbox.ErrUnusable) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s\n%s\n%v\n%v", r.Headline, r.Table, r.Metrics, r.Series)
		m := r.Metrics
		if m["guilty_runs"] != 1 || m["nobody_runs"] != float64(cfg.Nobody) {
			t.Fatalf("%v runs with a guilty pod, %v without", m["guilty_runs"], m["nobody_runs"])
		}
		problem := interferenceNamed(m)
		if m["waiting_wait_percent"] < 30 { // other processes on the machine can only increase it
			problem = fmt.Sprintf("the server waits for %v %% of the time while a pod is guilty", m["waiting_wait_percent"])
		}
		if problem == "" {
			problem = interferenceWaits(m)
		}
		return m, problem
	})
}

// interferenceNamed returns an error unless the guilty pod alone was named and throttled; "": none.
func interferenceNamed(m map[string]float64) string {
	if wrongly := m["named_wrongly_runs"] + m["false_alarm_runs"]; wrongly != 0 {
		return fmt.Sprintf("an innocent pod was named in %v runs", wrongly)
	}
	if m["named_rightly_runs"] != 1 || m["innocent_trials"] != 0 || m["trials_kept"] < 1 {
		return fmt.Sprintf("the guilty pod was named in %v runs, innocent pods throttled %v times, %v trials kept",
			m["named_rightly_runs"], m["innocent_trials"], m["trials_kept"])
	}
	if m["throttled_wait_percent"] > m["waiting_wait_percent"]/2 {
		return fmt.Sprintf("while the guilty pod is throttled, the server waits for %v %% of the time, before for %v %%",
			m["throttled_wait_percent"], m["waiting_wait_percent"])
	}
	return ""
}

// interferenceWaits returns an error if the server waits for more than the guilty pod, or the agent does not measure
// its waiting; "": none.
func interferenceWaits(m map[string]float64) string {
	// The median counts, because the first requests may find the server still starting.
	if m["before_wait_percent"] > m["waiting_wait_percent"]/2 || m["waiting_p50_ms"] < 2*m["before_p50_ms"] {
		return fmt.Sprintf("the server waits for %v %% of the time, and for %v %% before a pod is guilty; p50 %v and %v ms",
			m["waiting_wait_percent"], m["before_wait_percent"], m["waiting_p50_ms"], m["before_p50_ms"])
	}
	if m["waiting_seen_percent"] < m["before_seen_percent"]+5 {
		return fmt.Sprintf("of this waiting, the agent measures %v %%, and %v %% before", m["waiting_seen_percent"],
			m["before_seen_percent"])
	}
	return ""
}
