package node_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// everything is a node with every feature on: weights, CPU sets, batch that is suppressed, bursts, protected memory,
// interference and evictions. Batch makes the web pods wait, and later takes nearly all of the memory.
func everything(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	for _, line := range []string{
		"node real=32/128Gi v2 cpus=1x1x2x8x2",
		"policy mode=Enforce cpu=Predicted:900 memory=Predicted:900 suppress=Arithmetic interference burst protectmemory " +
			"evict=6",
		"load node=20/60Gi pods=19/56Gi best=8/20Gi",
		"pod home class=Guaranteed request=4000 limit=4000 qos=LSE cpus=exclusive app=a:4 used=2/4Gi memory=8Gi",
		"pod heavy class=Burstable request=500 weight=20480 qos=LS used=1/1Gi",
	} {
		if err := w.do(line); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// live lets a second pass in the world of [everything].
func (w *world) live(t *testing.T, r *rand.Rand, second int) {
	t.Helper()
	guilty := second/45%2 == 1
	lines := []string{"load node=20/60Gi pods=19/56Gi best=8/20Gi"}
	if second > 700 {
		lines[0] = "load node=20/126Gi pods=19/124Gi best=8/90Gi"
	}
	for i := range 4 {
		wait := 30 + r.IntN(20)
		if guilty {
			wait += 550
		}
		lines = append(lines,
			fmt.Sprintf("pod web%d class=Burstable request=1000 limit=2000 qos=LS app=main:2:1 used=1.%d/2Gi waits=%d "+
				"delays=-1 "+
				"memory=2Gi", i, r.IntN(9), wait))
	}
	for i := range 3 {
		used := fmt.Sprintf("0.%d/6Gi", 1+r.IntN(9))
		if i == 1 && guilty {
			used = fmt.Sprintf("4.%d/6Gi", r.IntN(9))
		}
		if second > 700 {
			used = "1.5/30Gi"
		}
		lines = append(lines, fmt.Sprintf("pod job%d class=BestEffort qos=BE batch=4/8Gi job=a:4 used=%s", i, used))
	}
	for _, line := range lines {
		if err := w.do(line); err != nil {
			t.Fatal(err)
		}
	}
	w.node.Now = w.node.Now.Add(time.Second)
	w.measure()
}

// TestReplay checks that a journal of twenty minutes with every feature on replays without a difference, whichever of
// its rounds were recorded.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir, 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	w, r := everything(t), rand.New(rand.NewPCG(1, 90))
	recorded := 0
	var throttled, limited, exclusive, evicted, suppressed bool
	for second := range 1200 {
		w.live(t, r, second)
		round := &node.Round{Node: w.node, Policy: w.policy, State: w.state}
		round.Plan, w.state = node.Decide(w.node, w.policy, w.state)
		p := &round.Plan
		throttled = throttled || p.Interference != nil && len(p.Interference.Throttles) > 0
		exclusive = exclusive || p.CPUs != nil && !p.CPUs.Exclusive.Empty()
		evicted = evicted || p.Evict.Requested() != nil
		suppressed = suppressed || p.Suppress != nil
		for _, s := range p.Settings {
			limited = limited || s.Knob == model.MemoryHigh && s.Deferred == nil
		}
		if second%7 < 3 || second > 1000 { // some in a row, with gaps between
			if err := j.Append(round); err != nil {
				t.Fatal(err)
			}
			recorded++
		}
		w.carryOut(&round.Plan)
	}
	if !throttled || !limited || !exclusive || !evicted || !suppressed {
		t.Errorf("throttled %v, memory limited %v, exclusive CPUs %v, evicted %v, suppressed %v: little was shown", throttled,
			limited, exclusive, evicted, suppressed)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	replayed := 0
	for round, err := range journal.Read(dir) {
		if err != nil {
			t.Fatal(err)
		}
		differences, err := journal.Replay(&round)
		if err != nil || len(differences) > 0 {
			t.Fatalf("the round of %s: %v, %+v", round.Node.Now, err, differences)
		}
		replayed++
	}
	if replayed != recorded {
		t.Errorf("%d rounds were recorded and %d replayed", recorded, replayed)
	}
}
