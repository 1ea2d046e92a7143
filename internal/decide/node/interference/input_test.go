package interference

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

// machine is a node with pods of every kind.
func machine() *model.Node {
	const clock = time.Hour
	usage := func(uid string, milli, wait int64) model.PodUsage {
		u := model.PodUsage{
			UID: uid, Usage: model.Usage{CPU: model.CPUUsage{At: clock, Milli: milli, Periods: 10, Throttled: 2}},
		}
		u.Pressure = model.Pressure{At: clock - time.Second, CPU: model.Stall{Some: wait}}
		return u
	}
	n := &model.Node{Load: &model.Load{Clock: clock}, Pods: []*model.Pod{
		{UID: "agent", Class: model.ClassSystem, RequestMilli: 100},
		{UID: "ended", Class: model.ClassBE, Ended: true},
		{UID: "gone", Class: model.ClassBE},
		{UID: "job", Class: model.ClassBE, Grant: model.Grant{RequestMilli: 2000}},
		{UID: "web", Class: model.ClassLS, RequestMilli: 500, LimitMilli: 1000, Annotations: model.PodAnnotations{Shares: 7}},
	}}
	for i, uid := range []string{"agent", "ended", "job", "unknown", "web"} {
		n.Load.Pods = append(n.Load.Pods, usage(uid, int64(i+1)*100, 500))
	}
	n.Load.Pods[2].New = true
	return n
}

// TestNodeInput checks what of a node is compared: all that use the CPU, and of whom it counts that they wait, and who
// may be throttled.
func TestNodeInput(t *testing.T) {
	n := machine()
	p := &model.Policy{Mode: model.ModeEnforce}
	at := n.Load.Clock
	want := Input{Clock: at, Acts: true, Pods: []Pod{
		{UID: "agent", Shares: 102, UsedAt: at, Used: 100},
		{UID: "ended", UsedAt: at, Used: 200},
		{UID: "job", Batch: true, New: true, Shares: 2048, UsedAt: at, Used: 300},
		{UID: "unknown", UsedAt: at, Used: 400},
		// less two periods of ten
		{UID: "web", Online: true, Shares: 7, UsedAt: at, Used: 500, WaitAt: at - time.Second, Wait: 300},
	}}
	if diff := cmp.Diff(want, newInput(n, p)); diff != "" {
		t.Error(diff)
	}
	for _, change := range []func(){func() { p.Mode = model.ModeObserve },
		func() { p.Mode, n.Tree.ReadOnly = model.ModeEnforce, true }} {
		change()
		if newInput(n, p).Acts {
			t.Errorf("%s, read-only %v: batch may be throttled", p.Mode, n.Tree.ReadOnly)
		}
	}
}

// trying plays a world until the guilty neighbour is throttled.
func trying(t *testing.T, acts bool) *tester {
	t.Helper()
	p := newTester(newWorld(linear, 3, 4), func(int) bool { return true })
	p.in.Acts = acts
	for range 1200 {
		if b := p.second(); len(b.Throttles) > 0 || !acts && b.Waits {
			return p
		}
	}
	t.Fatal("nobody is throttled, or would be")
	return nil
}

// TestObserves: where nothing is carried out, who is named is not throttled, and who was throttled is so no more.
func TestObserves(t *testing.T) {
	p := trying(t, false)
	for range 600 {
		if b := p.second(); len(b.Throttles) > 0 {
			t.Fatalf("%+v", b.Throttles)
		}
	}
	if p.state.Trials != [hourly]time.Duration{} {
		t.Errorf("trials: %v", p.state.Trials)
	}
	p = trying(t, true)
	p.in.Acts = false
	for range 5 {
		p.second()
	}
	if len(p.last.Throttles) > 0 || len(p.state.Throttled) > 0 {
		t.Errorf("%+v", p.state.Throttled)
	}
}

// TestReport: a suspect is reported with the numbers of that moment for ten minutes, and another one a minute later at
// the soonest.
func TestReport(t *testing.T) {
	s := State{Clock: time.Hour}
	name := func(suspect string, wait int64) model.Finding {
		s.Result.Finding = model.Finding{Victim: "web", Suspect: suspect, Wait: wait}
		s.report()
		return s.Result.Named
	}
	if f := name("", 1); f != (model.Finding{}) {
		t.Errorf("no suspect: %+v", f)
	}
	first := name("a", 2)
	for _, c := range []struct {
		after   time.Duration
		suspect string
		want    int64
	}{
		{5 * time.Second, "a", 2}, {time.Second, "b", 2}, {59 * time.Second, "b", 3}, {9 * time.Minute, "", 3},
		{59 * time.Second, "b", 3}, {time.Second, "b", 6}, {10 * time.Minute, "", 0},
	} {
		s.Clock += c.after
		wait := map[bool]int64{true: c.want, false: 99}[c.want > s.Result.Named.Wait]
		if got := name(c.suspect, wait); got.Wait != c.want {
			t.Errorf("%s later %q: %+v, first %+v", c.after, c.suspect, got, first)
		}
	}
}
