//go:build bench

package e2e_test

import (
	"strconv"
	"testing"
)

// TestNodeQuickstartFigures measures what docs/quickstart.md promises: the Job uses what is idle, and gives way to an
// online pod.
func TestNodeQuickstartFigures(t *testing.T) {
	oneNode(t, "its commands are the same there")
	uses := func(explained string) float64 {
		t.Helper()
		m := batchUses.FindStringSubmatch(explained)
		if m == nil {
			t.Fatalf("nothing says what batch uses:\n%s", explained)
		}
		cpus, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return cpus
	}
	first, second := quickstart(t, "")
	alone, beside := uses(first), uses(second)
	t.Logf("batch uses %.2f CPUs alone and %.2f beside an online pod that wants all", alone, beside)
	if alone < 0.5 {
		t.Errorf("a Job that requests 0.1 CPUs uses %.2f idle ones:\n%s", alone, first)
	}
	if beside > alone/2 {
		t.Errorf("it uses %.2f CPUs beside an online pod that wants all, and %.2f alone:\n%s", beside, alone, second)
	}
}
