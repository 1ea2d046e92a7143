package node_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// The tests of this file check whole decisions about a node against known defects of Koordinator.

// selling returns a machine on which everything is known, and that has sold something for a while.
func selling(r *rand.Rand) *world {
	for {
		w := randomMachine(r)
		randomPeaks(r, w)
		randomOffers(r, w)
		w.policy.Mode, w.node.PodsKnown, w.node.Withdrawn, w.node.Tree.ReadOnly = model.ModeEnforce, true, false, false
		if w.round(); w.node.Load.Node.CPU.At != 0 && w.policy.CPU.Method != "" && w.policy.Memory.Method != "" {
			return w
		}
	}
}

// round decides, and the host does it.
func (w *world) round() model.Plan {
	var plan model.Plan
	plan, w.state = node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
	w.carryOut(&plan)
	return plan
}

// free returns the published amounts beyond the bound ones.
func free(w *world, p *model.Publication) int64 {
	var sum int64
	for _, r := range p.Resources {
		sum += r.Amount - boundTo(w, r.NodeResource)
	}
	return sum
}

// standing returns the published amount of a resource.
func standing(p *model.Publication, r model.NodeResource) int64 {
	for _, of := range p.Resources {
		if of.NodeResource == r {
			return of.Amount
		}
	}
	return 0
}

// TestNewPodNeverRaisesWhatStands checks that a new online pod without measurements raises no published amount, by any
// method. In Koordinator, the conservative policy leaves out pods without a metric.
func TestNewPodNeverRaisesWhatStands(t *testing.T) {
	lowered := 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 40))
		w := selling(r)
		before, _ := node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
		class := one(r, model.ClassLS, model.ClassLSR, model.ClassLSE)
		pod := fixture.Pod("zz", one(r, model.Guaranteed, model.Burstable, model.BestEffort))
		pod.Class, pod.Created = class, w.node.Now
		pod.RequestMilli, pod.MemoryRequest = r.Int64N(w.node.Capacity.CPU), r.Int64N(w.node.Capacity.Memory)
		fixture.Bind(&w.node, pod)
		after, _ := node.DecideKnowing(w.peaks, w.node, w.policy, w.state)
		for _, res := range model.NodeResources() {
			was, is := standing(&before.Publish, res), standing(&after.Publish, res)
			if is > was {
				t.Fatalf("seed %d: of %+v %d stands, and with %+v %d", seed, res, was, pod, is)
			}
			if is < was {
				lowered++
			}
		}
	}
	if lowered == 0 {
		t.Error("nothing stood there that a pod could have lowered")
	}
}

// TestOffLeavesNothing checks a node that is disabled or opts out. Every file is restored, and the plan and the state
// contain no condition, no CPUs and no offer. Published amounts remain only where pods are bound to them under
// Koordinator's names. (In Koordinator, zones kept their amounts when the node's amount was removed.) This holds with
// and without measurements, and a second round changes nothing.
func TestOffLeavesNothing(t *testing.T) {
	owned, sold := 0, int64(0)
	for seed := range uint64(300) {
		w := selling(rand.New(rand.NewPCG(seed, 41)))
		plan := w.round()
		owned, sold = owned+len(w.node.Owned), sold+free(w, &plan.Publish)
		was := len(w.node.Owned)
		w.policy.Mode = model.ModeDisabled
		if seed%2 == 0 {
			w.node.Load = nil
		}
		plan = w.round()
		if len(plan.Settings) != was || len(w.node.Owned) > 0 {
			t.Fatalf("seed %d: %d files were owned, and %d stay: %+v", seed, was, len(w.node.Owned), plan.Settings)
		}
		if len(plan.Conditions) > 0 || plan.CPUs != nil {
			t.Fatalf("seed %d: conditions %+v, CPUs %+v", seed, plan.Conditions, plan.CPUs)
		}
		if !plan.Publish.Decided || free(w, &plan.Publish) != 0 {
			t.Fatalf("seed %d: %+v stands", seed, plan.Publish)
		}
		for _, p := range plan.Publish.Resources {
			if !p.Koordinator {
				t.Fatalf("seed %d: %+v stands in our own name", seed, p)
			}
		}
		if s := plan.Slack; s != nil && (s.CPU.Offer != model.TierAmounts{} || s.Memory.Offer != model.TierAmounts{}) {
			t.Fatalf("seed %d: the report offers %+v and %+v", seed, s.CPU.Offer, s.Memory.Offer)
		}
		if d := fixture.Diff(cpuset.State{Known: true}, w.state.CPUs); d != "" || len(w.state.Files) > 0 {
			t.Fatalf("seed %d: the state keeps files %+v and CPUs (-want +got):\n%s", seed, w.state.Files, d)
		}
		if s := w.state.Slack; w.node.Load != nil && (s.CPU.Batch != slack.Line{} || s.CPU.Mid != slack.Line{} ||
			s.Memory.Batch != slack.Line{} || s.Memory.Mid != slack.Line{}) {
			t.Fatalf("seed %d: remembered is %+v", seed, s)
		}
		if again := w.round(); len(again.Settings) > 0 {
			t.Fatalf("seed %d: a second round sets %+v", seed, again.Settings)
		}
	}
	if owned < 300 || sold == 0 {
		t.Errorf("only %d files were owned, and %d sold", owned, sold)
	}
}

// TestObservedLeavesNothing checks the same for a node whose policy changes to Observe. The plan still has its
// decisions.
func TestObservedLeavesNothing(t *testing.T) {
	for seed := range uint64(200) {
		w := selling(rand.New(rand.NewPCG(seed, 42)))
		w.round()
		w.policy.Mode = model.ModeObserve
		plan := w.round()
		if len(w.node.Owned) > 0 || len(plan.Conditions) > 0 || free(w, &plan.Publish) != 0 {
			t.Fatalf("seed %d: %d files are owned, %d conditions, %+v stands", seed, len(w.node.Owned), len(plan.Conditions),
				plan.Publish)
		}
	}
}

// TestSilenceTakesBack checks that without new measurements, the published amounts fall to the bound amounts within a
// minute, and the allowance of batch falls to zero. Only the timer that each round requests is needed. (In Koordinator,
// the amounts fell after a quarter of an hour, if an external event occurred.)
func TestSilenceTakesBack(t *testing.T) {
	sold := int64(0)
	for seed := range uint64(60) {
		w := selling(rand.New(rand.NewPCG(seed, 43)))
		plan := w.round()
		last := free(w, &plan.Publish)
		sold += last
		start := w.node.Now
		for wakes := 0; ; wakes++ {
			passed := w.node.Now.Sub(start)
			if plan.Slack.CPU.Allow+plan.Slack.Memory.Allow+last == 0 {
				break
			}
			switch {
			case plan.Next.IsZero() || wakes > 200:
				t.Fatalf("seed %d: after %s and %d wakes %d stands free, %+v may be used, and nobody comes back", seed, passed,
					wakes, last, plan.Slack)
			case plan.Next.Sub(w.node.Now) > 6*time.Second || passed > 5*time.Second && plan.Next.Sub(w.node.Now) > time.Second:
				t.Fatalf("seed %d: after %s somebody comes back in %s", seed, passed, plan.Next.Sub(w.node.Now))
			case passed > 61*time.Second:
				t.Fatalf("seed %d: after %s %d stands free", seed, passed, last)
			}
			l := *w.node.Load
			l.Clock += plan.Next.Sub(w.node.Now)
			w.node.Load, w.node.Now = &l, plan.Next
			plan = w.round()
			now := free(w, &plan.Publish)
			if now > last {
				t.Fatalf("seed %d: %d stands free after %s of silence, and %d before", seed, now, passed, last)
			}
			last = now
		}
	}
	if sold == 0 {
		t.Error("nothing was sold")
	}
}
