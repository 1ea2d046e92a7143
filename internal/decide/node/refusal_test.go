package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// refusing is a node whose kernel refuses every write of some files.
type refusing struct {
	t       *testing.T
	node    model.Node
	policy  model.Policy
	state   State
	plan    model.Plan
	refuses func(model.File) bool
	holds   map[model.File]model.Value
	writes  int // that were refused
	rounds  int // in which a write was refused
	texts   map[string]bool
}

func newRefusing(t *testing.T, pods int, refuses func(model.File) bool) *refusing {
	w := &refusing{
		t: t, node: fixture.Node(model.Amount{CPU: 64_000}), policy: fixture.Policy(), refuses: refuses,
		holds: map[model.File]model.Value{}, texts: map[string]bool{},
	}
	for i := range pods {
		pod := fixture.Pod(fmt.Sprintf("p%03d", i), model.Burstable)
		pod.RequestMilli, pod.Annotations.Shares = 100, 1000
		fixture.Bind(&w.node, pod)
		fixture.Run(&w.node, pod)
	}
	return w
}

// round decides, and carries the plan out as far as the kernel lets it.
func (w *refusing) round(after time.Duration) {
	w.node.Now = w.node.Now.Add(after)
	w.plan, w.state = Decide(w.node, w.policy, w.state)
	w.node.Incidents = nil
	for _, s := range w.plan.Settings {
		switch {
		case s.Deferred != nil || w.holds[s.File] == s.Value:
		case w.refuses(s.File):
			w.node.Incidents = append(w.node.Incidents,
				model.Incident{File: s.File, Kind: model.Rejected, Value: s.Value, Errno: "EINVAL"})
			w.writes++
		default:
			w.holds[s.File] = s.Value
		}
	}
	if len(w.node.Incidents) > 0 {
		w.rounds++
	}
	for _, fault := range w.plan.Report.Faults {
		w.texts[fault] = true
	}
}

// TestRefusesEverything checks what a file costs that refuses every write: with the same value for a day, with another
// value in each second, and with a kind of file that is refused in 250 pods. People are told once, with the file, the
// first value and the error, until a write succeeds.
func TestRefusesEverything(t *testing.T) {
	one := model.File{Dir: "kubepods/burstable/podp000", Knob: model.Shares}
	ofOne := func(f model.File) bool { return f == one }
	for _, c := range []struct {
		name           string
		pods           int
		refuses        func(model.File) bool
		changes        bool
		hours          int
		writes, rounds int // at most
	}{
		{"the same value", 2, ofOne, false, 24, 24, 24},
		{"another value in each second", 2, ofOne, true, 12, 26, 26},
		{"a kind of file", 250, func(f model.File) bool { return f.Knob == model.Shares && strings.Contains(f.Dir, "/pod") },
			false, 4, 250 * 4, 4},
	} {
		w := newRefusing(t, c.pods, c.refuses)
		step := time.Second
		if !c.changes {
			step = 10 * time.Second
		}
		for i := range c.hours * int(time.Hour/step) {
			if c.changes {
				w.node.Pods[0].Annotations.Shares = 1000 + int64(i%7)
			}
			w.round(step)
			if i == 60 && w.writes > max(8, c.pods) { // two at once, then after 1, 2, 4, 8, 16 and 32 s
				t.Errorf("%s: %d writes in the first %s", c.name, w.writes, 60*step)
			}
		}
		if w.writes > c.writes || w.rounds > c.rounds {
			t.Errorf("%s: %d writes in %d rounds were refused within %d h, not %d in %d at most", c.name, w.writes, w.rounds,
				c.hours, c.writes, c.rounds)
		}
		if w.writes < c.pods/2+c.hours/2 {
			t.Errorf("%s: only %d writes were tried", c.name, w.writes)
		}
		if len(w.texts) != 1 || len(w.plan.Report.Faults) != 1 || len(w.plan.Notices) != 1 {
			t.Fatalf("%s: %v, at last %v, %+v", c.name, w.texts, w.plan.Report.Faults, w.plan.Notices)
		}
		for _, part := range []string{one.Dir, one.Knob.String(), "1000: EINVAL"} {
			if fault := w.plan.Report.Faults[0]; !strings.Contains(fault, part) {
				t.Errorf("%s: %q does not name %s", c.name, fault, part)
			}
		}
		t.Logf("%s: %d writes in %d rounds within %d h: %s", c.name, w.writes, w.rounds, c.hours, w.plan.Report.Faults[0])
		w.refuses = func(model.File) bool { return false }
		for range 2 * int(time.Hour/step) {
			w.round(step)
		}
		if w.round(step); len(w.plan.Report.Faults) > 0 || len(w.plan.Notices) > 0 || len(w.state.Files) > 0 {
			t.Errorf("%s: after a write succeeded: %v, %v", c.name, w.plan.Report.Faults, w.state.Files)
		}
	}
}

// TestRefusedForAMoment checks that a write that is refused once is repeated at once with another value, and that
// people are told nothing.
func TestRefusedForAMoment(t *testing.T) {
	one := model.File{Dir: "kubepods/burstable/podp000", Knob: model.Shares}
	w := newRefusing(t, 1, func(f model.File) bool { return f == one })
	w.round(time.Second)
	w.refuses = func(model.File) bool { return false }
	w.node.Pods[0].Annotations.Shares = 2000
	w.round(time.Second)
	if w.holds[one].Number != 2000 || w.writes != 1 {
		t.Errorf("%v after %d refusals", w.holds[one], w.writes)
	}
	w.round(time.Minute)
	if len(w.texts) > 0 || len(w.state.Files) > 0 {
		t.Errorf("%v, %+v", w.texts, w.state.Files)
	}
}

// TestRefusedGoesBack checks that what gives a file back waits for no pause, however often it refused.
func TestRefusedGoesBack(t *testing.T) {
	one := model.File{Dir: "kubepods/burstable/podp000", Knob: model.Shares}
	w := newRefusing(t, 1, func(f model.File) bool { return f == one })
	for i := range 3600 {
		w.node.Pods[0].Annotations.Shares = 1000 + int64(i%7)
		w.round(time.Second)
	}
	w.node.Owned = []model.Owned{{File: one, Ours: model.Number(1000), Theirs: model.Number(102)}}
	w.node.Pods[0].Annotations.Shares = 0
	w.refuses = func(model.File) bool { return false }
	if w.round(time.Second); w.holds[one].Number != 102 {
		t.Errorf("%v: %+v", w.holds[one], w.state.Files)
	}
}
