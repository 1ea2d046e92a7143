package evict

import (
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// newFreezer is a node on which nothing is left, and the pod that is to leave is frozen.
func newFreezer() *world {
	w := newWorld()
	w.policy.Protect.Memory, w.policy.Protect.Freeze, w.held = true, true, true
	w.online = 62 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 12*gib, 10*time.Minute)
	return w
}

// freezes lets some time pass, carries out what is decided, and returns who stood still, one after the other, and for how long in all.
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

// TestFreezes: nobody before what keeps batch running was tried, nor where it is not; who is frozen then is asked to leave, and
// stands still for so long at most, and nobody else soon after.
func TestFreezes(t *testing.T) {
	w := newFreezer()
	if who, _ := w.freezes(deferredFor); who != nil {
		t.Errorf("%v frozen at once", who)
	}
	if who, _ := w.freezes(time.Second); !slices.Equal(who, []string{"b"}) {
		t.Errorf("%v frozen, not b", who)
	}
	w.node.Pods[0].Created = w.node.Now // now it would be better that the other one left
	w.freezes(tried - deferredFor)
	if w.last.Request == nil || w.last.Request.UID != "b" {
		t.Errorf("%+v should leave, not who is frozen", w.last.Request)
	}
	if _, long := w.freezes(time.Minute); long != frozenFor-(tried-deferredFor)-time.Second {
		t.Errorf("it stood still for %s more", long)
	}
	for range 4 {
		w.state.Aside = nil // somebody could be asked for
		if who, _ := w.freezes(time.Minute); who != nil {
			t.Errorf("%v frozen soon after", who)
		}
	}
	w.state.Aside = nil
	if who, long := w.freezes(2 * time.Minute); len(who) != 1 || long != frozenFor {
		t.Errorf("later %v stood still for %s", who, long)
	}
}

// TestFreezesNobody: where it is not asked for, not carried out, or would do nothing.
func TestFreezesNobody(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"not by this policy":            func(w *world) { w.policy.Protect.Freeze = false },
		"it is only observed":           func(w *world) { w.policy.Mode = model.ModeObserve },
		"nobody is evicted":             func(w *world) { w.policy.Protect.EvictPerHour = 0 },
		"batch is not held":             func(w *world) { w.held = false },
		"nothing can be written":        func(w *world) { w.node.Tree.ReadOnly = true },
		"what was measured is old":      func(w *world) { w.age = 6 * time.Second },
		"a little is left":              func(w *world) { w.online = 80*gib - 20*gib - gib },
		"somebody leaves, which is all": func(w *world) { w.node.Pods[1].Leaving, w.node.Pods[1].Grace = true, 5*time.Minute },
		"all say never": func(w *world) {
			w.node.Pods[0].Annotations.Evict, w.node.Pods[1].Annotations.Evict = model.EvictNever, model.EvictNever
		},
		"online, and critical": func(w *world) { w.node.Pods[0].Critical, w.node.Pods[1].Class = true, model.ClassLS },
	} {
		w := newFreezer()
		change(w)
		if who, _ := w.freezes(time.Minute); who != nil {
			t.Errorf("%s: %v frozen", name, who)
		}
	}
}

// TestThaws: at once when there is no reason any more, or the pod must run to end.
func TestThaws(t *testing.T) {
	file := model.File{Dir: "b", Knob: model.Freeze}
	for name, change := range map[string]func(w *world){
		"it leaves":                  func(w *world) { w.node.Pods[1].Leaving = true },
		"it ended":                   func(w *world) { w.node.Pods[1].Ended = true },
		"it is gone":                 func(w *world) { w.gone("b") },
		"it says never":              func(w *world) { w.node.Pods[1].Annotations.Evict = model.EvictNever },
		"it became online":           func(w *world) { w.node.Pods[1].Class = model.ClassLS },
		"enough is left":             func(w *world) { w.online = 58 * gib },
		"what was measured is old":   func(w *world) { w.age = 6 * time.Second },
		"nobody watched":             func(w *world) { w.node.Load.Clock += 5 * time.Second },
		"another agent":              func(w *world) { w.state = w.state.Restarted() },
		"another boot":               func(w *world) { w.node.Load.Clock = time.Second },
		"the policy says so no more": func(w *world) { w.policy.Protect.Freeze = false },
		"it is only observed":        func(w *world) { w.policy.Mode = model.ModeObserve },
		"switched off":               func(w *world) { w.policy.Mode = model.ModeDisabled },
		"batch is not held":          func(w *world) { w.held = false },
		"it could not be frozen":     func(w *world) { w.node.Owned = nil },
		"somebody else thawed it":    func(w *world) { w.node.Incidents = []model.Incident{{File: file, Kind: model.Overwritten}} },
	} {
		w := newFreezer()
		if who, _ := w.freezes(10 * time.Second); !slices.Equal(who, []string{"b"}) {
			t.Fatalf("%s: %v frozen, not b", name, who)
		}
		change(w)
		w.second()
		if s := Settings(&w.node, w.last); s != nil {
			t.Errorf("%s, and still: %+v", name, s)
		}
	}
}
