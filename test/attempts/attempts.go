// Package attempts records attempts of figures. A bench measures a figure again when it is out of its bounds, because a
// virtual machine is slow for seconds at a time, without visible steal. The record shows how often that was necessary.
package attempts

import (
	"encoding/json"
	"os"
	"testing"
)

// Record appends an attempt of a test, as a line of JSON, to the file that the environment variable WATERLINE_ATTEMPTS
// names, if any. Attempts count from 1. why says what is wrong with the values; "": nothing.
func Record(t testing.TB, attempt int, values map[string]float64, why string) {
	t.Helper()
	name := os.Getenv("WATERLINE_ATTEMPTS")
	if name == "" {
		return
	}
	line, err := json.Marshal(map[string]any{
		"test": t.Name(), "attempt": attempt, "values": values, "passed": why == "", "why": why,
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(append(line, '\n'))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		t.Fatal(err)
	}
}
