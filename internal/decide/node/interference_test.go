package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// contended is a machine with 110 pods, of which half are batch.
func contended(tb testing.TB) *world {
	w := newWorld()
	for _, line := range []string{
		"node real=64/256Gi v2", "policy mode=Enforce cpu=Realtime:1000 suppress=Arithmetic interference",
		"load node=40/64Gi pods=40/64Gi best=20",
	} {
		if err := w.do(line); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range 110 {
		args := []string{"class=Burstable", "qos=LS", "request=200", "used=0.3/1Gi", "waits=20", "delays=-1"}
		if i%2 == 0 {
			args = []string{"class=BestEffort", "qos=BE", "batch=1/1Gi", "job=a:1", "used=0.4/1Gi"}
		}
		if err := w.setPod(fmt.Sprintf("p%03d", i), args); err != nil {
			tb.Fatal(err)
		}
	}
	for range 200 {
		w.node.Now = w.node.Now.Add(time.Second)
		w.measure()
		var plan model.Plan
		plan, w.state = node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
		w.carryOut(&plan)
	}
	return w
}

// second decides another second, in which the same was measured.
func (w *world) second() model.Plan {
	w.node.Now = w.node.Now.Add(time.Second)
	l := w.node.Load
	passed := time.Hour + w.node.Now.Sub(epoch) - l.Clock
	l.Clock += passed
	l.Node.CPU.At += passed
	for i := range l.Classes {
		l.Classes[i].CPU.At += passed
	}
	for i := range l.Pods {
		l.Pods[i].CPU.At += passed
		if l.Pods[i].Pressure.At != 0 {
			l.Pods[i].Pressure.At += passed
		}
	}
	var plan model.Plan
	plan, w.state = w.knowing(w.node, w.policy, w.state)
	return plan
}

// TestInterferenceForgets: the search remembers something, and nothing after it was switched off.
func TestInterferenceForgets(t *testing.T) {
	w := contended(t)
	if w.second(); w.state.Interference == nil {
		t.Error("switched on, nothing is remembered")
	}
	w.policy.Protect.Interference = false
	if w.second(); w.state.Interference != nil {
		t.Error("switched off, something is remembered")
	}
}

// TestInterferenceWithoutBatch: without batch nothing is searched, and what bounds trials is not forgotten.
func TestInterferenceWithoutBatch(t *testing.T) {
	w := contended(t)
	online := w.node.Pods[1].UID
	if plan := w.second(); !model.FindDetail(plan.Observe.Pods, online).Seconds {
		t.Error("the pressure of online pods is not measured each second")
	}
	looked := w.state.Interference.Clock
	for _, p := range w.node.Pods {
		p.Ended = p.Class == model.ClassBE
	}
	plan := w.second()
	if s := w.state.Interference; s == nil || s.Clock != looked {
		t.Errorf("%+v", s)
	}
	if model.FindDetail(plan.Observe.Pods, online).Seconds {
		t.Error("the pressure of online pods is measured each second")
	}
}

// TestInterferenceOff: where nothing is measured because the policy is off, nothing is remembered.
func TestInterferenceOff(t *testing.T) {
	w := contended(t)
	w.policy.Mode, w.node.Load = model.ModeDisabled, nil
	if _, state := node.Decide(w.node, w.policy, w.state); state.Interference != nil {
		t.Errorf("%+v", state.Interference)
	}
}

// TestInterferenceByDelay checks that the tasks of online pods are sampled while interference is searched, and that no
// wait runs a round for that.
func TestInterferenceByDelay(t *testing.T) {
	w := contended(t)
	pods := func(marks []model.WaitMark) (uids []string, most bool) {
		marks = slices.DeleteFunc(slices.Clone(marks), func(m model.WaitMark) bool { return model.IsSystem(m.UID) })
		for _, m := range marks {
			uids, most = append(uids, m.UID), most || m.Most > 0
		}
		return uids, most
	}
	var online []string
	for _, p := range w.node.Pods {
		if p.Class.Online() {
			online = append(online, p.UID)
		}
	}
	for _, c := range []struct {
		name       string
		by         model.SuppressMethod
		mode       model.Mode
		noPressure bool
		used       int64 // by each batch pod, in milli-cores
		want       time.Duration
	}{
		{"by arithmetic", model.SuppressByArithmetic, model.ModeEnforce, true, 400, time.Second},
		{"no suppression", model.SuppressByNone, model.ModeEnforce, true, 400, time.Second},
		{"only observed", model.SuppressByArithmetic, model.ModeObserve, true, 400, time.Second},
		{"the kernel has pressure", model.SuppressByArithmetic, model.ModeEnforce, false, 400, time.Second},
		{"by harm", model.SuppressOnHarm, model.ModeEnforce, true, 400, 100 * time.Millisecond},
		{"by harm, and batch sleeps", model.SuppressOnHarm, model.ModeEnforce, true, 0, time.Second},
		{"by harm, which is quiet, and the kernel has pressure", model.SuppressOnHarm, model.ModeEnforce, false, 0,
			time.Second},
	} {
		w.policy.Suppress.By, w.policy.Mode, w.node.Tree.NoPressure = c.by, c.mode, c.noPressure
		for i, p := range w.node.Pods {
			if p.Class == model.ClassBE {
				w.node.Load.Pods[i].CPU.Milli = c.used
			}
		}
		o := w.second().Observe
		uids, most := pods(o.Waits)
		if o.WaitsEvery != c.want || (c.want != 0) != slices.Equal(uids, online) ||
			most && c.by != model.SuppressOnHarm {
			t.Errorf("%s: every %s, %d of %d pods, rounds at once: %v", c.name, o.WaitsEvery, len(uids), len(online), most)
		}
	}
	w.policy.Suppress.By, w.node.Tree.NoPressure = model.SuppressByArithmetic, true
	for _, p := range w.node.Pods {
		p.Ended = p.Class == model.ClassBE
	}
	if o := w.second().Observe; len(o.Waits) > 0 || o.WaitsEvery != 0 {
		t.Errorf("without batch: every %s, %d pods", o.WaitsEvery, len(o.Waits))
	}
}

// BenchmarkInterference110 is a round of a node with 110 pods, half of them batch.
func BenchmarkInterference110(b *testing.B) {
	for _, on := range []bool{true, false} {
		b.Run(fmt.Sprintf("on=%v", on), func(b *testing.B) {
			w := contended(b)
			w.policy.Protect.Interference = on
			b.ReportAllocs()
			for b.Loop() {
				w.second()
			}
		})
	}
}
