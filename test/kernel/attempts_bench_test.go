//go:build bench

package kernel_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"
)

// attempts tries until the figures are within their bounds, at most so many times, and records every attempt. A virtual
// machine is slow for seconds at a time, without visible steal; an error of Waterline occurs every time. The record
// shows how often a figure needed more than one attempt.
//
// An attempt returns its figures and what is wrong with them; "": nothing.
func attempts(t *testing.T, most int, try func() (values map[string]float64, why string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		values, why := try()
		if err := record(t.Name(), attempt, values, why); err != nil {
			t.Fatal(err)
		}
		switch {
		case why == "":
			return
		case attempt >= most:
			t.Fatalf("in attempt %d: %s: %v", attempt, why, values)
		}
		t.Logf("attempt %d: %s: %v", attempt, why, values)
	}
}

// record appends an attempt, as a line of JSON, to the file that WATERLINE_ATTEMPTS names.
func record(test string, attempt int, values map[string]float64, why string) error {
	name := os.Getenv("WATERLINE_ATTEMPTS")
	if name == "" {
		return nil
	}
	line, err := json.Marshal(map[string]any{
		"test": test, "attempt": attempt, "values": values, "passed": why == "", "why": why,
	})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// fullForm skips a test in short form.
func fullForm(t *testing.T, why string) {
	t.Helper()
	if !soak() {
		t.Skip("WATERLINE_SOAK is not set: in short form, " + why)
	}
}
