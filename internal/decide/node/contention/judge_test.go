package contention

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestFullNodeTeachesNothing checks that nothing is learned of what pods wait anyway while others use nearly the whole
// node, all the time or in a rhythm: a tenant decides when it does. So it is where a part of the node belongs to a pod
// that hardly uses it.
func TestFullNodeTeachesNothing(t *testing.T) {
	for i, every := range []int{1, 4, 15, 1, 4, 15} {
		w := newNode(model.SuppressOnHarm)
		w.wants = 0
		w.left.CPU.Use.IdleExclusive = int64(i/3) * 8000
		evil := w.pod("evil", load{uses: 500})
		evil.Namespace = "evil"
		w.run(120, quietly)
		for s := range 300 {
			w.pods["evil"].uses, w.pods["web"].waits = 500, 20
			if s/every%2 == 0 || every == 1 {
				w.pods["evil"].uses, w.pods["web"].waits = 12_000-w.left.CPU.Use.IdleExclusive, 6000
			}
			w.second(quietly)
		}
		w.pods["evil"].uses, w.pods["web"].waits = 500, 20
		w.wants = 16_000
		w.run(15, quietly)
		w.pods["web"].waits = 1500 // a third of what it runs
		if w.run(4, quietly); w.may() == 16_000 {
			t.Errorf("each %d s, %d idle and not shared: web may wait for %v", every, w.left.CPU.Use.IdleExclusive,
				knownPod(w.state.Pods, "web").Tolerated)
		}
	}
}

// TestBaselineIsBounded checks that a pod which waits for very long without batch may not wait for as long beside
// batch.
func TestBaselineIsBounded(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.wants = 0
	w.run(180, func() { w.pods["web"].waits = 40_000 })
	w.wants = 16_000
	w.pods["web"].waits = 20
	w.run(30, quietly)
	w.pods["web"].waits = 6000 // half as long again as it runs
	if w.run(4, quietly); w.may() == 16_000 {
		t.Errorf("web may wait for %v", knownPod(w.state.Pods, "web").Tolerated)
	}
}

// TestThrottledNowAndThen checks that a pod is judged although a quota stops a part of it, or all of it now and then.
func TestThrottledNowAndThen(t *testing.T) {
	for name, c := range map[string]struct{ app, proxy int64 }{
		"its proxy, always": {0, 10}, "the pod, now and then": {1, 0},
	} {
		w := newNode(model.SuppressOnHarm)
		w.contain(model.FindPod(w.n.Pods, "web"), 5000)
		w.pods["web"].app, w.pods["web"].proxy = c.app, c.proxy
		w.run(20, quietly)
		if w.may() != 16_000 {
			t.Fatalf("%s: batch may use %d", name, w.may())
		}
		if w.run(10, w.waits(10_500)); w.used() > 11_000 {
			t.Errorf("a quota stops %s: batch uses %d, %+v", name, w.used(), w.result.Harm)
		}
	}
}

// TestThrottledLongAgo checks that a pod is judged although its quota stopped all of it when its CPU use was measured
// last, half an hour ago.
func TestThrottledLongAgo(t *testing.T) {
	for _, old := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		w.run(60, quietly)
		if u := w.n.Load.Pod("web"); old {
			u.CPU.At, u.CPU.Periods, u.CPU.Throttled = w.n.Load.Clock-30*time.Minute, 10, 10
		}
		l := w.pods["web"]
		for range 20 {
			w.n.Load.Clock += 100 * time.Millisecond
			l.wait.Ran += 400 * time.Millisecond
			l.wait.Waited += 900 * time.Millisecond
			l.wait.At = w.n.Load.Clock
			w.n.Waits = []model.PodWait{l.wait}
			w.decide()
		}
		if w.result.Harm.Milli == 0 || w.may() == 16_000 {
			t.Errorf("measured long ago %v: batch may use %d, %+v", old, w.may(), w.result.Harm)
		}
	}
}

// TestPressureOfLargePods checks that a pod which uses many CPUs is harmed when its tasks wait all the time, where only
// pressure shows that.
func TestPressureOfLargePods(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.tasks = false
	w.pods["web"].uses = 12_000
	w.run(20, quietly)
	if w.may() != 16_000 {
		t.Fatalf("batch may use %d", w.may())
	}
	w.pods["web"].waits = 900
	if w.run(8, quietly); w.may() == 16_000 {
		t.Errorf("%+v", w.result.Harm)
	}
}

// TestYoungBatchIsNotQuiet checks that what pods wait because of batch that has just started teaches nothing: its use
// is measured from its second second on.
func TestYoungBatchIsNotQuiet(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.wants = 0
	w.run(120, quietly)
	for s := range 600 {
		w.wants, w.young = 0, false
		w.pods["web"].waits = 20
		if s%12 < 2 {
			w.wants, w.young, w.pods["web"].waits = 16_000, true, 20_000
		}
		w.second(quietly)
	}
	if got := w.state.Baselines[0].at(4000); got > 50 {
		t.Errorf("without batch, web waits for %d thousandths of the time that it runs", got)
	}
}

// TestRestart checks that the first round of an agent that was away knows what the last one knew, until samples can be
// there.
func TestRestart(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.n.Tree.NoPressure = true
	w.run(20, quietly)
	w.n.Load.Clock += time.Minute
	w.n.Waits = nil
	w.measure()
	if w.decide(); !w.result.Harm.Known || w.may() != 16_000 {
		t.Errorf("batch may use %d, %+v", w.may(), w.result.Harm)
	}
	w.tasks = false
	if w.run(6, quietly); w.result.Harm.Known {
		t.Errorf("nothing is sampled, and harm is known: %+v", w.result.Harm)
	}
}

// TestOwnFaultIsOver checks that what a pod waited whatever batch did is not tolerated any more when it has waited far
// less for a minute.
func TestOwnFaultIsOver(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(60, quietly)
	web := w.pods["web"]
	for _, c := range []struct {
		waits   int64
		seconds int
	}{{3000, 60}, {20, 60}} {
		web.waits = c.waits
		w.run(c.seconds, quietly)
	}
	if w.may() != 16_000 {
		t.Fatalf("batch may use %d, %+v", w.may(), w.result.Harm)
	}
	web.waits = 2500
	if w.run(5, quietly); w.may() == 16_000 {
		t.Errorf("web may wait for %v", knownPod(w.state.Pods, "web").Tolerated)
	}
}

// TestSleepShowsNothing checks that time in which batch sleeps is no time in which online pods bear it.
func TestSleepShowsNothing(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	harm := w.waits(10_500)
	w.run(300, harm)
	w.wants = 0
	w.run(1800, harm)
	if w.may() > 11_000 {
		t.Errorf("batch that slept may use %d, and web bears 10500", w.may())
	}
}

// TestOtherBoot checks that harm is seen at once where the state is of another boot, with later times.
func TestOtherBoot(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(20, quietly)
	w.n.Load.Clock, w.n.Load.Pods, w.looked = time.Minute, nil, 0
	w.run(20, quietly)
	w.pods["web"].waits = 6000
	if w.run(5, quietly); w.may() == 16_000 {
		t.Errorf("%+v", w.result.Harm)
	}
}

// TestRestartBesideFigure checks an agent that starts half a minute after another one was killed that held batch back
// for a figure. Batch pods that began meanwhile had no limit, so a figure that is too high is not the service's own
// fault; and that none was fetched yet is no doubt.
func TestRestartBesideFigure(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	value := int64(10_000)
	figure := w.serves(func() int64 { return value })
	w.run(60, figure)
	value = 60_000
	if w.run(10, figure); w.may() > 1000 {
		t.Fatalf("the figure pushes batch to %d only", w.may())
	}
	w.n.Load.Clock += 30 * time.Second
	w.n.Waits, w.n.Figures, w.left.CPU.Use.Measured = nil, nil, false
	if w.decide(); w.result.Harm.Doubted {
		t.Errorf("%+v", w.result.Harm)
	}
	w.left.CPU.Use.Measured = true
	if w.run(5, figure); w.state.Services[0].Own != 0 || w.may() > 1000 {
		t.Errorf("batch may use %d beside %+v", w.may(), w.state.Services[0])
	}
}

// TestStateOfOlderAgent checks the state of an agent that did not say which services pushed batch back, and for how
// long figures are too high by a fault of their own: a figure that is too high pushes batch back again.
func TestStateOfOlderAgent(t *testing.T) {
	for _, own := range []time.Duration{0, time.Hour} {
		w := newNode(model.SuppressOnHarm)
		value := int64(10_000)
		figure := w.serves(func() int64 { return value })
		w.run(60, figure)
		value = 60_000
		w.run(8, figure)
		s := &w.state.Services[0]
		s.Own, s.Test, s.Pause, s.Pushes = own, 0, 0, false
		if w.run(6, figure); w.may() > 1000 {
			t.Errorf("own %s: batch may use %d, %+v", own, w.may(), w.state.Services)
		}
	}
}

// TestRoundWithoutSample checks rounds that have no sample of tasks yet: they say by what signal pods are judged.
func TestRoundWithoutSample(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(20, quietly)
	for name, waits := range map[string][]model.PodWait{
		"an agent starts": nil,
		"a look has ended since the clock was read": {{UID: "web", At: w.n.Load.Clock + 1}},
	} {
		w.n.Waits = waits
		if w.decide(); !w.result.Harm.Known || w.result.Harm.Signal != model.HarmByDelay {
			t.Errorf("%s: %+v", name, w.result.Harm)
		}
	}
}

// TestOldUseIsNotQuiet checks that batch does not count as quiet because it was when its use was measured last.
func TestOldUseIsNotQuiet(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.wants = 0
	w.run(60, quietly)
	w.left.CPU.Use.Age = time.Minute
	w.pods["web"].waits = 6000
	if w.run(5, quietly); w.may() == 16_000 {
		t.Errorf("quiet %v, %+v", w.result.Batch.Quiet, w.result.Harm)
	}
}

// TestForgetsInTime checks that what pods bore is forgotten ten minutes after the last time, though the last harmed pod
// left before.
func TestForgetsInTime(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(60, quietly)
	h := &w.state.Harm
	h.Limit, h.From, h.Bears, h.Grew, h.Soon, h.Cut = 9000, 9000, 9000, 0, maxRecovery, w.n.Load.Clock
	h.Pods, h.Anew = []string{"gone"}, w.n.Load.Clock-9*time.Minute
	if w.run(50, quietly); w.may() > 10_000 {
		t.Errorf("it is forgotten sooner, and batch may use %d", w.may())
	}
	if w.run(20, quietly); w.may() != 16_000 {
		t.Errorf("batch may use %d", w.may())
	}
}

// TestLongCalm checks that no time without harm is too long to be counted.
func TestLongCalm(t *testing.T) {
	for days := range time.Duration(1000) {
		w := newNode(model.SuppressOnHarm)
		w.run(1, quietly)
		h := &w.state.Harm
		h.Limit, h.From, h.Bears, h.Grew = 9000, 9000, 9000, days*24*time.Hour
		if w.run(1, quietly); days > 0 && w.may() != 16_000 {
			t.Fatalf("after %d days batch may use %d", days, w.may())
		}
	}
}
