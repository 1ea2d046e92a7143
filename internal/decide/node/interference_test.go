package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// contended is a machine with 110 pods, of which half are batch.
func contended(tb testing.TB) *world {
	w := newWorld()
	for _, line := range []string{"node real=64/256Gi v2", "policy mode=Enforce cpu=realtime:1000 suppress=quota culprit", "load node=40/64Gi pods=40/64Gi best=20"} {
		if err := w.do(line); err != nil {
			tb.Fatal(err)
		}
	}
	for i := range 110 {
		args := []string{"class=Burstable", "qos=LS", "request=200", "used=0.3/1Gi", "waits=20"}
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
	for i := range l.Pods {
		l.Pods[i].CPU.At += passed
		if l.Pods[i].Pressure.At != 0 {
			l.Pods[i].Pressure.At += passed
		}
	}
	var plan model.Plan
	plan, w.state = node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
	return plan
}

// TestBlameNoGarbage: while nobody waits for longer than before, to look for whom they wait makes no garbage.
func TestBlameNoGarbage(t *testing.T) {
	w := contended(t)
	with := testing.AllocsPerRun(100, func() { w.second() })
	if w.state.Interference == nil {
		t.Fatal("nobody looks")
	}
	w.policy.Protect.Interference = false
	without := testing.AllocsPerRun(100, func() { w.second() })
	if w.state.Interference != nil {
		t.Error("switched off, something is remembered")
	}
	if with > without {
		t.Errorf("%v allocations a round, %v without", with, without)
	}
}

// TestBlameWithoutBatch: without batch nobody looks, and what bounds trials is not forgotten.
func TestBlameWithoutBatch(t *testing.T) {
	w := contended(t)
	looked := w.state.Interference.Clock
	for _, p := range w.node.Pods {
		p.Ended = p.Class == model.ClassBE
	}
	w.second()
	if s := w.state.Interference; s == nil || s.Clock != looked {
		t.Errorf("%+v", s)
	}
	if node.Interferes(w.node.Pods, &w.policy) {
		t.Error("the pressure of online pods is to be read")
	}
}

// TestBlameOff: where nothing is measured because the policy is off, nothing is remembered.
func TestBlameOff(t *testing.T) {
	w := contended(t)
	w.policy.Mode, w.node.Load = model.ModeDisabled, nil
	if _, state := node.Decide(w.node, w.policy, w.state); state.Interference != nil {
		t.Errorf("%+v", state.Interference)
	}
}

// BenchmarkBlame110 is a round of a node with 110 pods, half of them batch.
func BenchmarkBlame110(b *testing.B) {
	for _, on := range []bool{true, false} {
		b.Run(fmt.Sprintf("culprit=%v", on), func(b *testing.B) {
			w := contended(b)
			w.policy.Protect.Interference = on
			b.ReportAllocs()
			for b.Loop() {
				w.second()
			}
		})
	}
}
