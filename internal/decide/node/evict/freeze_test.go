package evict

import (
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// newFreezer returns a world without memory left for batch, in which a pod is about to be frozen.
func newFreezer() *world {
	w := newWorld()
	w.policy.Protect.Memory, w.policy.Protect.Freeze, w.limited = true, true, true
	w.online = 62 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 12*gib, 10*time.Minute)
	return w
}

// freezes advances the world and carries out the plans. It returns the pods that were frozen, in order, and the total
// time.
func (w *world) freezes(d time.Duration) (who []string, long time.Duration) {
	last := ""
	if len(w.node.Owned) > 0 {
		last = w.last.Frozen.UID
	}
	for range d / time.Second {
		w.second()
		w.node.Owned = nil
		for _, s := range Settings(&w.node, w.last) {
			w.node.Owned = append(w.node.Owned, model.Owned{File: s.File, Ours: s.Value})
			long += time.Second
		}
		now := ""
		if len(w.node.Owned) > 0 {
			now = w.last.Frozen.UID
		}
		if now != last && now != "" {
			who = append(who, now)
		}
		last = now
	}
	return who, long
}

// TestFreezes checks that a pod is frozen only after limits and reclaim were tried, that the frozen pod is the one
// requested later, that it is thawed in time, and that no other pod is frozen soon after.
func TestFreezes(t *testing.T) {
	w := newFreezer()
	if who, _ := w.freezes(deferredFor); who != nil {
		t.Errorf("%v frozen at once", who)
	}
	if who, _ := w.freezes(time.Second); !slices.Equal(who, []string{"b"}) {
		t.Errorf("%v frozen, not b", who)
	}
	w.node.Pods[0].Created = w.node.Now // now the other pod would be the better choice
	w.freezes(exhaustedFor - deferredFor)
	if w.last.Request == nil || w.last.Request.UID != "b" {
		t.Errorf("%+v is requested, not the frozen pod", w.last.Request)
	}
	if _, long := w.freezes(time.Minute); long != frozenFor-(exhaustedFor-deferredFor)-time.Second {
		t.Errorf("it stayed frozen for another %s", long)
	}
	for range 4 {
		w.state.Skipped = nil // another pod could be requested
		if who, _ := w.freezes(time.Minute); who != nil {
			t.Errorf("%v frozen soon after", who)
		}
	}
	w.state.Skipped = nil
	if who, long := w.freezes(2 * time.Minute); len(who) != 1 || long != frozenFor {
		t.Errorf("later %v were frozen for %s", who, long)
	}
}

// TestFreezesNoPod checks the cases in which freezing is not wanted, not possible or useless.
func TestFreezesNoPod(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"off by policy":        func(w *world) { w.policy.Protect.Freeze = false },
		"mode Observe":         func(w *world) { w.policy.Mode = model.ModeObserve },
		"no evictions":         func(w *world) { w.policy.Protect.EvictPerHour = 0 },
		"batch is not limited": func(w *world) { w.limited = false },
		"read-only mount":      func(w *world) { w.node.Tree.ReadOnly = true },
		"old measurements":     func(w *world) { w.age = 6 * time.Second },
		"a little is left":     func(w *world) { w.online = 80*gib - 20*gib - gib },
		"a leaving pod frees enough": func(w *world) {
			w.node.Pods[1].Leaving, w.node.Pods[1].Grace = true, 5*time.Minute
		},
		"all pods have evict=never": func(w *world) {
			w.node.Pods[0].Annotations.Evict, w.node.Pods[1].Annotations.Evict = model.EvictNever, model.EvictNever
		},
		"online, and critical": func(w *world) { w.node.Pods[0].Critical, w.node.Pods[1].Class = true, model.ClassLS },
	} {
		t.Run(name, func(t *testing.T) {
			w := newFreezer()
			change(w)
			if who, _ := w.freezes(time.Minute); who != nil {
				t.Errorf("%v frozen", who)
			}
		})
	}
}

// TestThaws checks that a pod is thawed at once when there is no reason any more, or when it must run to terminate.
func TestThaws(t *testing.T) {
	file := model.File{Dir: "kubepods/besteffort/podb", Knob: model.Freeze}
	for name, change := range map[string]func(w *world){
		"it leaves":            func(w *world) { w.node.Pods[1].Leaving = true },
		"it ended":             func(w *world) { w.node.Pods[1].Ended = true },
		"it is gone":           func(w *world) { w.gone("b") },
		"it has evict=never":   func(w *world) { w.node.Pods[1].Annotations.Evict = model.EvictNever },
		"it became online":     func(w *world) { w.node.Pods[1].Class = model.ClassLS },
		"enough is left":       func(w *world) { w.online = 58 * gib },
		"old measurements":     func(w *world) { w.age = 6 * time.Second },
		"a gap between rounds": func(w *world) { w.node.Load.Clock += 5 * time.Second },
		"the agent restarted":  func(w *world) { w.state = w.state.Restarted() },
		"another boot":         func(w *world) { w.node.Load.Clock = time.Second },
		"off by policy":        func(w *world) { w.policy.Protect.Freeze = false },
		"mode Observe":         func(w *world) { w.policy.Mode = model.ModeObserve },
		"mode Disabled":        func(w *world) { w.policy.Mode = model.ModeDisabled },
		"batch is not limited": func(w *world) { w.limited = false },
		"the freeze failed":    func(w *world) { w.node.Owned = nil },
		"another writer thawed it": func(w *world) {
			w.node.Incidents = []model.Incident{{File: file, Kind: model.Overwritten}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFreezer()
			if who, _ := w.freezes(10 * time.Second); !slices.Equal(who, []string{"b"}) {
				t.Fatalf("%v frozen, not b", who)
			}
			change(w)
			w.second()
			if s := Settings(&w.node, w.last); s != nil {
				t.Errorf("still frozen: %+v", s)
			}
		})
	}
}
