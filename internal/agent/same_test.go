package agent

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestSameInterference: a new suspect or throttle is written down; that a pod still waits is not.
func TestSameInterference(t *testing.T) {
	tried := model.Throttle{UID: "job", Code: model.ThrottleTried}
	waits := &model.Interference{Finding: model.Finding{Victim: "web", Wait: 300}}
	for name, c := range map[string]struct {
		a, b *model.Interference
		same bool
	}{
		"somebody waits":      {nil, waits, true},
		"somebody is named":   {waits, found(5, ""), false},
		"somebody is tried":   {waits, found(0, "", tried), false},
		"it was given back":   {nil, found(0, "job"), false},
		"all is as it was":    {found(5, "", tried), found(5, "", tried), true},
		"nobody is throttled": {found(0, "", tried), nil, false},
	} {
		if same := sameDecisions(&model.Plan{Interference: c.a}, &model.Plan{Interference: c.b}); same != c.same {
			t.Errorf("%s: the same: %v", name, same)
		}
	}
}

func found(named time.Duration, undone string, throttles ...model.Throttle) *model.Interference {
	r := &model.Interference{Throttles: throttles, Undone: model.Throttle{UID: undone}}
	if named > 0 {
		r.Named, r.NamedAt = model.Finding{Victim: "web", Suspect: "job", Code: model.SuspectNamed}, named
	}
	return r
}

// TestSameEvictions: another request, and what came of the last one, is written down.
func TestSameEvictions(t *testing.T) {
	request := func(uid string) *model.Evictions {
		why := model.Reason{Code: model.MemoryExhausted}
		return &model.Evictions{Hot: why, Request: &model.Eviction{UID: uid, Reason: why}}
	}
	left := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100}}
	seen := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100, Seen: true, Observed: 70}}
	for name, c := range map[string]struct {
		a, b *model.Evictions
		same bool
	}{
		"nothing":          {nil, nil, true},
		"a pod left":       {nil, left, false},
		"its relief":       {left, seen, false},
		"another request":  {request("a"), request("b"), false},
		"the same request": {request("a"), request("a"), true},
	} {
		if same := sameDecisions(&model.Plan{Evict: c.a}, &model.Plan{Evict: c.b}); same != c.same {
			t.Errorf("%s: the same: %v", name, same)
		}
	}
}
