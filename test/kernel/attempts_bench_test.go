//go:build bench

package kernel_test

import (
	"testing"

	"github.com/waterline-io/waterline/test/attempts"
)

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
