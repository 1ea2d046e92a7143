package node_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// FuzzNode checks on any machine, possible or not, that a round ends, that equal inputs give equal plans, that a second
// round without news changes nothing, and the invariants of the published amounts.
func FuzzNode(f *testing.F) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 30))
		bytes := make([]byte, r.IntN(600))
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		f.Add(bytes, seed%2 == 1)
	}
	f.Fuzz(func(t *testing.T, bytes []byte, absurd bool) {
		r := newTape(bytes)
		w := randomMachine(r)
		round := decision(node.Decide)
		if r.IntN(2) == 0 { // the predictor of a machine that has just started has no samples
			randomPeaks(r, w)
			round = w.knowing
		}
		for range r.IntN(4) {
			var plan model.Plan
			plan, w.state = round(w.node, w.policy, w.state)
			w.carryOut(&plan)
			w.pass()
		}
		randomOffers(r, w)
		if absurd {
			spoil(r, w)
		}
		if err := checkRound(w, round); err != nil {
			t.Fatal(err)
		}
	})
}

// checkRound decides about a machine three times.
func checkRound(w *world, round decision) error {
	plan, state, err := purely(round, w.node, w.policy, w.state)
	if err != nil {
		return err
	}
	if e := plan.Evict.Requested(); e != nil {
		pod := model.FindPod(w.node.Pods, e.UID)
		if pod == nil || pod.Class != model.ClassBE || pod.Ended || pod.Leaving ||
			pod.Annotations.Evict == model.EvictNever || w.policy.Mode != model.ModeEnforce ||
			w.policy.Protect.EvictPerHour == 0 {
			return fmt.Errorf("%+v should leave under %+v: %+v", pod, w.policy.Protect, e)
		}
	}
	if hot := plan.Evict.HotFor(); hot.Code != "" && plan.Publish.Decided && plan.Publish.Reason.Code == "" {
		return fmt.Errorf("a hot node sells %+v", plan.Publish)
	}
	second, _ := round(w.node, w.policy, state)
	if !reflect.DeepEqual(plan.Publish, second.Publish) {
		return fmt.Errorf("the second round publishes something else:\n%s", fixture.Diff(plan.Publish, second.Publish))
	}
	// The parts of batch pods depend on those of the round before.
	parts := func(s model.Setting) bool { return s.Reason.Code == model.BatchSuppressed }
	one := slices.DeleteFunc(slices.Clone(plan.Settings), parts)
	other := slices.DeleteFunc(slices.Clone(second.Settings), parts)
	if !reflect.DeepEqual(one, other) {
		return fmt.Errorf("the second round has other settings:\n%s", fixture.Diff(one, other))
	}
	if plan.Slack == nil {
		return nil
	}
	// Without measurements, the previous offers remain: the machine has offers that no round made.
	cpu, memory, n := &plan.Slack.CPU, &plan.Slack.Memory, &w.node
	return errors.Join(
		checkPublished(w, &plan.Publish, false, filled(cpu, n.Load.CPUMilli, n.Capacity.CPU), !cpu.Use.Measured ||
			w.policy.CPU.Method == model.SellStatic),
		checkPublished(w, &plan.Publish, true, filled(memory, n.Load.Memory, n.Capacity.Memory), !memory.Use.Measured),
	)
}

// filled returns the largest ceiling of a machine, whose capacity may be smaller on the Node object.
func filled(a *model.Account, machine, object int64) int64 {
	if object > 0 {
		machine = min(machine, object)
	}
	return min(a.Ceiling, machine)
}

// checkPublished checks the published amounts of one resource. They are positive and at least the bound amount. A
// withdrawn offer is not above the bound amount. The sum is at most the ceiling, unless more is bound.
func checkPublished(w *world, p *model.Publication, memory bool, ceiling int64, beyond bool) error {
	if !p.Decided {
		if len(p.Resources) > 0 {
			return fmt.Errorf("published though nothing was decided: %+v", p)
		}
		return nil
	}
	var total, promised int64
	for _, r := range model.NodeResources() {
		if r.Memory != memory {
			continue
		}
		bound, stands := boundTo(w, r), int64(0)
		for _, published := range p.Resources {
			if published.NodeResource == r {
				if stands = published.Amount; stands <= 0 {
					return fmt.Errorf("%+v is published", published)
				}
			}
		}
		keeps := stands != 0 || r.Koordinator && slices.ContainsFunc(w.node.Object.Published,
			func(p model.Published) bool { return p.NodeResource == r })
		switch {
		case keeps && stands < bound:
			return fmt.Errorf("%d stands of %+v, and %d is bound", stands, r, bound)
		case p.Reason.Code != "" && stands > bound:
			return fmt.Errorf("%s, and of %+v %d stands with %d bound", p.Reason, r, stands, bound)
		}
		total, promised = total+stands, promised+bound
	}
	if !beyond && total > max(ceiling, promised) {
		return fmt.Errorf("%d stands under %d with %d bound: %+v", total, ceiling, promised, p)
	}
	return nil
}

// boundTo returns the amount of a resource that a machine's pods request. Absurd amounts are clamped like in the rules.
func boundTo(w *world, r model.NodeResource) int64 {
	const most = 1 << 50
	sum := int64(0)
	for _, p := range w.node.Pods {
		asks := p.Batch
		if r.Tier == model.TierMid {
			asks = p.Mid
		}
		amount := asks.CPU
		if r.Memory {
			amount = asks.Memory
		}
		if !p.Ended && p.Koordinator == r.Koordinator {
			sum = min(sum+min(max(amount, 0), most), most)
		}
	}
	return sum
}
