package publish

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

func random(r *rand.Rand) (*model.Node, *model.Policy, *model.Slack) {
	n := &model.Node{PodsKnown: r.IntN(10) > 0, Withdrawn: r.IntN(5) == 0}
	for range r.IntN(6) {
		p := &model.Pod{Koordinator: r.IntN(3) == 0, Ended: r.IntN(6) == 0}
		p.Mid = model.Amount{CPU: r.Int64N(3000), Memory: r.Int64N(1 << 34)}
		p.Batch = model.Amount{CPU: r.Int64N(9000), Memory: r.Int64N(1 << 34)}
		if r.IntN(4) == 0 {
			p.Held = r.Int64N(1 << 36)
		}
		if r.IntN(20) == 0 {
			p.Batch = model.Amount{CPU: math.MaxInt64, Memory: -5}
		}
		n.Pods = append(n.Pods, p)
	}
	methods := []model.SellMethod{"", model.SellRealtime, model.SellPredicted}
	modes := []model.Mode{model.ModeEnforce, model.ModeEnforce, model.ModeObserve, model.ModeDisabled}
	n.Koordinator = r.IntN(3) == 0
	p := &model.Policy{
		Mode: modes[r.IntN(4)],
		CPU:  model.SellPolicy{Method: methods[r.IntN(3)]}, Memory: model.SellPolicy{Method: methods[r.IntN(3)]},
	}
	var s *model.Slack
	if r.IntN(6) > 0 {
		s = &model.Slack{}
		s.CPU.Offer = model.TierAmounts{Mid: r.Int64N(2000), Batch: r.Int64N(20_000)}
		s.Memory.Offer = model.TierAmounts{Batch: r.Int64N(1 << 36)}
	}
	for _, res := range model.NodeResources() {
		if r.IntN(2) == 0 {
			n.Object.Published = append(n.Object.Published, model.Published{NodeResource: res, Amount: 1 + r.Int64N(9000)})
		}
	}
	return n, p, s
}

// TestKubeletRestartFailsNoPod checks the Node against the admission of a restarting kubelet: each resource that
// bound pods request is published in full, or, under Waterline's name, not at all. A resource under Koordinator's
// name that is neither sold nor on the Node as Waterline's belongs to another system, and is not published. No
// resource is 0 or sold twice.
func TestKubeletRestartFailsNoPod(t *testing.T) {
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 3))
		n, p, s := random(r)
		hot := model.Reason{}
		if r.IntN(5) == 0 {
			hot.Code = model.MemoryExhausted
		}
		got := Decide(n, p, s, hot)
		if got.Decided && hot.Code != "" && got.Reason.Code == "" {
			t.Fatalf("seed %d: a hot node sells", seed)
		}
		if d := cmp.Diff(got, Decide(n, p, s, hot)); d != "" {
			t.Fatalf("seed %d: the second decision differs:\n%s", seed, d)
		}
		if !got.Decided {
			if len(got.Resources) > 0 || n.PodsKnown && s != nil {
				t.Fatalf("seed %d: %+v", seed, got)
			}
			continue
		}
		published := map[model.NodeResource]int64{}
		for _, of := range got.Resources {
			if of.Amount <= 0 {
				t.Fatalf("seed %d: %+v is published", seed, of)
			}
			published[of.NodeResource] = of.Amount
		}
		for _, res := range model.NodeResources() {
			requested, there := bound(n.Pods, res), published[res]
			sells := got.Reason.Code == "" && res.Koordinator == n.Koordinator
			if res.Koordinator && !stands(n, res) && !sells && there != 0 {
				t.Fatalf("seed %d: %+v is published, which is another system's", seed, res)
			}
			if there < requested && (sells || res.Koordinator && stands(n, res) || there != 0) {
				t.Fatalf("seed %d: of %+v %d is published and %d requested", seed, res, there, requested)
			}
			free := there - requested
			if got.Reason.Code != "" && free > 0 {
				t.Fatalf("seed %d: withdrawn, but %d of %+v is free", seed, free, res)
			}
			other := res
			other.Koordinator = !res.Koordinator
			if free > 0 && there+bound(n.Pods, other) > offer(s, res) {
				t.Fatalf("seed %d: more of %+v is published than is offered", seed, res)
			}
		}
	}
}
