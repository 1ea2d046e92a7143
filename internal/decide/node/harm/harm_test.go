package harm

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// node is a node with one online pod, web, whose tasks are sampled.
type node struct {
	n       model.Node
	p       model.Policy
	state   State
	quiet   bool
	useless bool
}

func newNode() *node {
	w := &node{
		n: fixture.Node(model.Amount{}),
		p: model.Policy{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressOnHarm}},
	}
	w.n.Load = &model.Load{Clock: time.Hour, CPUMilli: 4000}
	w.pod("web")
	return w
}

func (w *node) pod(uid string) *model.Pod {
	p := fixture.Pod(uid, model.Burstable)
	p.Class = model.ClassLS
	fixture.Run(&w.n, p)
	w.n.Load.Pods = append(w.n.Load.Pods, model.PodUsage{UID: uid})
	w.n.Waits = append(w.n.Waits, model.PodWait{UID: uid})
	return p
}

// uses lets the first pod use so much CPU for some time, and wait for a part of the time that it ran, in thousandths.
func (w *node) uses(milli, waits int64, length time.Duration) *model.Harm {
	w.n.Load.Clock += length
	u, s := &w.n.Load.Pods[0], &w.n.Waits[0]
	u.CPU.At, u.CPU.Milli = w.n.Load.Clock, milli
	ran := length * time.Duration(milli) / 1000
	s.At, s.Ran, s.Waited = w.n.Load.Clock, s.Ran+ran, s.Waited+ran*time.Duration(waits)/1000
	return w.decide()
}

func (w *node) decide() *model.Harm {
	var h *model.Harm
	h, w.state = Decide(&w.n, &w.p, w.quiet, w.useless, w.state)
	return h
}

// wait lets time pass in which only the first pod is sampled.
func (w *node) wait(length time.Duration) {
	for range length / time.Second {
		w.uses(1000, 20, time.Second)
	}
}

// learn lets the pod wait while batch is quiet.
func (w *node) learn(milli, waits int64) {
	w.quiet = true
	for range 40 {
		w.uses(milli, waits, seldom)
	}
	w.quiet = false
	w.uses(milli, waits, time.Second)
}

// TestHarm checks what counts as harm, and how much CPU the pod lacks.
func TestHarm(t *testing.T) {
	w := newNode()
	w.learn(1000, 20)
	if h := w.uses(1000, 115, time.Second); h.Milli != 0 || !h.Known || h.Signal != model.HarmByDelay {
		t.Errorf("wait within what is tolerated is harm: %+v", h)
	}
	h := w.uses(1000, 320, time.Second)
	if h.Milli != 200 || h.Worst != (model.PodHarm{UID: "web", Milli: 200, Waits: 320, Allowed: 120}) {
		t.Errorf("%+v", h)
	}
	if h := w.uses(2000, 320, 100*time.Millisecond); h.Milli != 400 {
		t.Errorf("in a tenth of a second, at twice the use: %+v", h)
	}
	w.n.Load.Clock += 10 * time.Millisecond
	if h := w.decide(); h.Milli != 400 {
		t.Errorf("a moment later it is as harmed as before: %+v", h)
	}
	if h := w.uses(1000, 20, time.Second); h.Milli != 0 {
		t.Errorf("harm stays when waiting ended: %+v", h)
	}
}

// TestFreeWait checks that a pod that runs often and shortly may wait a tenth of a millisecond each time, one that uses
// little a tenth of the time besides, and the agent itself as long as it does.
func TestFreeWait(t *testing.T) {
	w := newNode()
	w.learn(4, 0)
	often := func(times, waits int64) *model.Harm {
		w.n.Waits[0].Times += times
		return w.uses(4, waits/4*1000, time.Second)
	}
	for range 10 {
		if h := often(3000, 300); h.Milli != 0 {
			t.Fatalf("0.1 ms each time: %+v", h)
		}
		if h := often(100, 100); h.Milli != 0 {
			t.Fatalf("1 ms each time: %+v", h)
		}
	}
	if often(100, 300); w.decide().Milli == 0 {
		t.Error("3 ms each time is no harm")
	}
	w.n.Pods[0].Self = true
	if h := often(100, 300); h.Milli != 0 {
		t.Errorf("the agent waits: %+v", h)
	}
}

// TestSpikes checks that single waits are no harm, and that a little harm is found when it lasts.
func TestSpikes(t *testing.T) {
	w := newNode()
	w.learn(300, 50)
	for i := range 600 {
		waits := int64(50)
		if i%10 == 0 {
			waits = 200 // 15 ms more than allowed in a second
		}
		if h := w.uses(300, waits, time.Second); h.Milli != 0 {
			t.Fatalf("second %d: %+v", i, h)
		}
	}
	for i := range 5 {
		if h := w.uses(300, 200, time.Second); h.Milli == 15 {
			if i == 0 {
				t.Error("a second is enough")
			}
			return
		}
	}
	t.Error("what lasts is not found")
}

// TestBaseline checks that a pod is compared with itself at the same load, and with others of its template.
func TestBaseline(t *testing.T) {
	w := newNode()
	w.n.Pods[0].Owner, w.n.Pods[0].Labels = "Deployment/shop/web", map[string]string{"pod-template-hash": "1a2b"}
	w.learn(200, 10)
	w.learn(1600, 400) // it waits for itself
	if h := w.uses(1600, 420, time.Second); h.Milli != 0 {
		t.Errorf("it waits as without batch: %+v", h)
	}
	if h := w.uses(200, 420, time.Second); h.Milli == 0 {
		t.Errorf("at a low load it waits as otherwise only at a high one: %+v", h)
	}
	w.learn(10, 3000) // a few wakeups, each of which waits
	if h := w.uses(200, 420, time.Second); h.Milli == 0 {
		t.Errorf("what it waits when it uses nearly nothing counts at a higher load: %+v", h)
	}
	text, err := json.Marshal(w.state)
	var read State
	if err != nil || json.Unmarshal(text, &read) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	if d := cmp.Diff(w.state, read); d != "" {
		t.Errorf("%s: decoded with differences (-want +got):\n%s", text, d)
	}

	// Its successor is of the same template, on a machine that has booted since.
	next := newNode()
	next.state, next.n.Load.Clock = read.Learned(), time.Minute
	next.n.Pods[0].UID, next.n.Pods[0].Owner, next.n.Pods[0].Labels = "web", w.n.Pods[0].Owner, w.n.Pods[0].Labels
	next.uses(1600, 400, time.Second)
	if h := next.uses(1600, 420, time.Second); h.Milli != 0 {
		t.Errorf("the baseline is lost: %+v", h)
	}
	// Another template is another pod.
	next.n.Pods[0].Labels = map[string]string{"pod-template-hash": "3c4d"}
	if h := next.uses(1600, 420, time.Second); h.Milli == 0 {
		t.Errorf("the baseline of another template counts: %+v", h)
	}
}

// TestBaselinesAreBounded checks that baselines of pods that are gone are forgotten.
func TestBaselinesAreBounded(t *testing.T) {
	w := newNode()
	w.quiet = true
	for i := range 2 * capped {
		w.n.Pods[0].Owner, w.n.Pods[0].Labels = "Job", map[string]string{"pod-template-hash": fmt.Sprint(i)}
		w.uses(100, 10, seldom)
	}
	if got := len(w.state.Baselines); got > capped {
		t.Errorf("%d baselines", got)
	}
	if w.state.baseline(fmt.Sprintf("Job/%d", 2*capped-1)) == nil {
		t.Error("the newest is forgotten")
	}
	w.n.Load.Clock += forgets
	w.uses(100, 10, seldom)
	w.uses(100, 10, seldom)
	if got := len(w.state.Baselines); got != 1 {
		t.Errorf("a week later there are %d baselines", got)
	}
}

// TestUnknown checks that old, stuck and missing samples are not taken for an unharmed pod.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*node)
		known   bool
	}{
		"nothing":                  {func(*node) {}, true},
		"not sampled":              {func(w *node) { w.n.Waits = nil; w.n.Load.Clock += fresh }, false},
		"not sampled for a moment": {func(w *node) { w.n.Waits = nil }, false},
		"no task is found": {func(w *node) {
			w.n.Waits[0] = model.PodWait{UID: "web"}
			w.n.Load.Clock += fresh
		}, false},
		"the samples are stuck": {func(w *node) { w.n.Load.Clock += fresh }, false},
		"a pod began":           {func(w *node) { w.pod("zoo"); w.n.Load.Pods[1].CPU.Milli = 900 }, true},
		"a pod is not sampled": {func(w *node) {
			w.pod("zoo")
			w.n.Load.Pods[1].CPU.Milli = 900
			w.wait(2 * fresh)
		}, false},
		"it uses nothing":   {func(w *node) { w.pod("zoo"); w.wait(2 * fresh) }, true},
		"the pod is gone":   {func(w *node) { delete(w.n.Tree.Pods, "web") }, true},
		"the pod has ended": {func(w *node) { w.n.Pods[0].Ended = true }, true},
		"by pressure":       {func(w *node) { w.n.Waits = nil; w.n.Load.Pods[0].Pressure.At = w.n.Load.Clock }, true},
		"by pressure that is old": {func(w *node) {
			w.n.Waits = nil
			w.n.Load.Pods[0].Pressure.At = w.n.Load.Clock
			w.n.Load.Clock += fresh
		}, false},
		"it began to count anew":   {func(w *node) { w.n.Waits[0].Ran, w.n.Waits[0].Waited = 0, 0 }, true},
		"the machine booted since": {func(w *node) { w.n.Load.Clock, w.n.Waits[0].At = time.Second, time.Second }, true},
	} {
		w := newNode()
		w.learn(1000, 20)
		w.uses(1000, 20, time.Second)
		c.happens(w)
		w.n.Load.Clock += 100 * time.Millisecond
		if h := w.decide(); h.Known != c.known || h.Milli != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
	w := newNode()
	w.p.Suppress.By = model.SuppressByQuota
	if h := w.decide(); h != nil {
		t.Errorf("with suppression by quota: %+v", h)
	}
}

// TestPressure checks harm by pressure, where tasks cannot be sampled.
func TestPressure(t *testing.T) {
	w := newNode()
	w.n.Waits = nil
	second := func(milli, some int64) *model.Harm {
		w.n.Load.Clock += time.Second
		u := &w.n.Load.Pods[0].Usage
		u.CPU = model.CPUUsage{At: w.n.Load.Clock, Milli: milli}
		u.Pressure = model.Pressure{At: w.n.Load.Clock, CPU: model.Stall{Some: some}}
		return w.decide()
	}
	second(1000, 0)
	if h := second(1000, 30); h.Milli != 0 || h.Signal != model.HarmByPressure {
		t.Errorf("%+v", h)
	}
	if h := second(1000, 300); h.Milli != 200 {
		t.Errorf("%+v", h)
	}
}

// TestOwnFault checks that a pod that its own quota throttles, or that waits although batch was pushed back as far as
// possible, is not harmed.
func TestOwnFault(t *testing.T) {
	w := newNode()
	w.learn(1000, 20)
	w.n.Load.Pods[0].CPU.Throttled = 3
	if h := w.uses(1000, 500, time.Second); h.Milli != 0 {
		t.Errorf("throttled: %+v", h)
	}
	w.n.Load.Pods[0].CPU.Throttled = 0
	w.useless = true
	w.uses(1000, 500, time.Second)
	w.useless = false
	if h := w.uses(1000, 500, time.Second); h.Milli != 0 {
		t.Errorf("it waited as long without batch: %+v", h)
	}
	if h := w.uses(1000, 600, time.Second); h.Milli != 100 {
		t.Errorf("it waits longer: %+v", h)
	}
	for range 3600 {
		w.uses(1000, 100, time.Second)
	}
	if h := w.uses(1000, 300, time.Second); h.Milli == 0 {
		t.Errorf("after an hour: %+v, %+v", h, w.state.Pods)
	}
}

// TestMarks checks how often pods are sampled, and which waits bring a round forward.
func TestMarks(t *testing.T) {
	w := newNode()
	w.learn(1000, 20)
	marks, every := Marks(&w.n, &w.state, true, true)
	if every != seldom || len(marks) != 1 || marks[0].Most != 0 {
		t.Errorf("while batch is quiet: %s, %+v", every, marks)
	}
	if marks, every = Marks(&w.n, &w.state, false, false); every != often || marks[0].Most != 0 {
		t.Errorf("without act: %s, %+v", every, marks)
	}
	marks, _ = Marks(&w.n, &w.state, false, true)
	sum := w.n.Waits[0]
	for _, c := range []struct {
		ran, waited time.Duration
		want        bool
	}{
		{100 * time.Millisecond, 7 * time.Millisecond, false},
		{100 * time.Millisecond, 36 * time.Millisecond, false},
		{100 * time.Millisecond, 38 * time.Millisecond, true},
		{0, 26 * time.Millisecond, true},
	} {
		s := sum
		s.Ran, s.Waited = s.Ran+c.ran, s.Waited+c.waited
		if got := marks[0].Exceeded(&s); got != c.want {
			t.Errorf("ran %s, waited %s: %v", c.ran, c.waited, got)
		}
	}
}
