//go:build bench

package e2e_test

import (
	"encoding/json"
	"os"
	"testing"
)

// attempt appends a line about one measurement of a figure to the file that WATERLINE_ATTEMPTS names, if any. Figures
// are measured again when the machine stood still meanwhile; a figure that often needs it shows in that file. why says
// what was wrong; "": nothing.
func attempt(t testing.TB, number int, values map[string]float64, why string) {
	t.Helper()
	name := os.Getenv("WATERLINE_ATTEMPTS")
	if name == "" {
		return
	}
	line, err := json.Marshal(map[string]any{
		"test": t.Name(), "attempt": number, "values": values, "passed": why == "", "why": why,
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
}
