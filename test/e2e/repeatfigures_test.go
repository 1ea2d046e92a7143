//go:build bench

package e2e_test

import (
	"testing"

	"github.com/waterline-io/waterline/test/attempts"
)

// repeat measures a figure until nothing is wrong with it, at most a number of times, and records each attempt. It
// returns what was wrong with the last one, "" if nothing was. A machine that stood still spoils one attempt; a wrong
// program is wrong every time. Attempts count from 1.
func repeat(t testing.TB, most int, measure func(try int) (values map[string]float64, wrong string)) (wrong string) {
	t.Helper()
	for try := 1; ; try++ {
		values, wrong := measure(try)
		attempts.Record(t, try, values, wrong)
		if wrong == "" || try == most {
			return wrong
		}
		t.Log(wrong, "; once more")
	}
}
