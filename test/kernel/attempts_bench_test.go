//go:build bench

package kernel_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/test/attempts"
)

// benchFile returns the file for a bench's figures, for which it measures as long as docs/results.md wants; "": none.
// Only one bench runs with it, see test/bench.sh.
func benchFile() string { return os.Getenv("WATERLINE_BENCH") }

// writeFigures writes figures into the file of [benchFile], if there is one.
func writeFigures(t *testing.T, v cgroup.Version, name string, metrics map[string]float64) {
	t.Helper()
	if benchFile() == "" {
		return
	}
	r := report.Begin(name, "")
	r.Machine, r.Metrics = measure.DescribeMachine(v), metrics
	commit, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err := r.Save(benchFile(), "", strings.TrimSpace(string(commit))); err != nil {
		t.Fatal(err)
	}
}

// retry tries until the figures are within their bounds, at most so many times, and records every attempt. A virtual
// machine is slow for seconds at a time, without visible steal; an error of Waterline occurs every time.
//
// An attempt returns its figures and what is wrong with them; "": nothing.
func retry(t *testing.T, most int, try func() (values map[string]float64, why string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		values, why := try()
		attempts.Record(t, attempt, values, why)
		switch {
		case why == "":
			return
		case attempt >= most:
			t.Fatalf("in attempt %d: %s: %v", attempt, why, values)
		}
		t.Logf("attempt %d: %s: %v", attempt, why, values)
	}
}
