//go:build bench

package interference

import (
	"runtime"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// TestGarbage: a second of a node with 110 pods makes at most 80 KiB of garbage, once in five seconds, when there is a
// sample more and a suspect is searched.
func TestGarbage(t *testing.T) {
	var s State
	in := crowd(110)
	waited := false
	for range 700 {
		next(in)
		var r model.Interference
		r, s = Decide(*in, s)
		waited = waited || r.Finding.Victim != ""
	}
	if !waited {
		t.Fatal("no pod waits")
	}
	most := uint64(0)
	for range 50 {
		next(in)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, s = Decide(*in, s)
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("%d bytes at most", most)
	if most > 80<<10 {
		t.Errorf("%d bytes", most)
	}
}
