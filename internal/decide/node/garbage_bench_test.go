//go:build bench

package node_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestGarbage checks the garbage of a round of decisions, with bursts, and with the search for interference as well.
func TestGarbage(t *testing.T) {
	const rounds, most = 20, 132 << 10
	for _, search := range []bool{false, true} {
		w := newBursts(t)
		if search {
			w.policy.Protect.Interference = true
			w.node.Pods[0].Class = model.ClassBE
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			w.node.Load.Clock += time.Second
			_, w.state = node.Decide(w.node, w.policy, w.state)
		}
		runtime.ReadMemStats(&after)
		each := (after.TotalAlloc - before.TotalAlloc) / rounds
		t.Logf("interference %v: %d bytes", search, each)
		if each > most || search != (w.state.Interference != nil) {
			t.Errorf("a round makes %d bytes of garbage, more than %d", each, most)
		}
	}
}

// TestInterferenceGarbage: a round that searches interference among 110 pods makes at most 128 KiB of garbage.
func TestInterferenceGarbage(t *testing.T) {
	const most = 128 << 10
	w := contended(t)
	worst := uint64(0)
	for range 20 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w.second()
		runtime.ReadMemStats(&after)
		worst = max(worst, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("%d bytes at most", worst)
	if w.state.Interference == nil || worst > most {
		t.Errorf("a round makes %d bytes of garbage, more than %d", worst, most)
	}
}
