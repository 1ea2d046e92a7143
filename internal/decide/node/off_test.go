package node

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestOffersAfterOff checks a policy that is disabled and enabled again. The former offers do not return at once: the
// room for them must have been clear for as long as for any offer.
func TestOffersAfterOff(t *testing.T) {
	policy := fixture.Policy()
	policy.CPU = model.SellPolicy{Method: model.SellStatic, Ratio: 500, Waterline: 1000}
	node := fixture.Node(model.Amount{CPU: 4000})
	var state State
	var clock time.Duration
	round := func(mode model.Mode) int64 {
		policy.Mode = mode
		clock += time.Second
		used := fixture.Usage(clock, 100, 1<<20)
		node.Now, node.Load = node.Now.Add(time.Second), &model.Load{Clock: clock, CPUMilli: 4000, Memory: 8 << 30,
			Node: used}
		node.Load.Classes[model.Guaranteed] = used
		if mode == model.ModeDisabled {
			node.Load = nil // the agent measures nothing then
		}
		var plan model.Plan
		if plan, state = Decide(node, policy, state); plan.Slack == nil {
			return 0
		}
		return plan.Slack.CPU.Offer.Batch
	}
	offer := int64(0)
	for range 60 {
		offer = round(model.ModeEnforce)
	}
	if offer == 0 {
		t.Fatal("nothing was sold within a minute")
	}
	if offer = round(model.ModeDisabled); offer != 0 {
		t.Errorf("when it is off %d are sold", offer)
	}
	for i := range 30 {
		if offer = round(model.ModeEnforce); offer != 0 {
			t.Fatalf("%d s after it was on again %d are sold", i, offer)
		}
	}
}

// TestDisabledReportsNothing checks a node whose policy becomes disabled. It reports neither an offer nor an account at
// once, though it was measured, and the plan requests no measurements.
func TestDisabledReportsNothing(t *testing.T) {
	used := fixture.Usage(time.Hour, 100, 1<<20)
	n := fixture.Node(model.Amount{CPU: 4000})
	n.Object.UID = "uid"
	n.Load = &model.Load{Clock: time.Hour, CPUMilli: 4000, Memory: 8 << 30, Node: used}
	n.Load.Classes[model.Guaranteed] = used
	policy := fixture.Policy()
	policy.CPU = model.SellPolicy{Method: model.SellStatic, Ratio: 500, Waterline: 1000}
	plan, state := Decide(n, policy, State{})
	if plan.Report.Slack == nil || !plan.Report.Write || !plan.Observe.Load {
		t.Fatalf("enforced: %+v, %+v", plan.Report, plan.Observe)
	}
	policy.Mode = model.ModeDisabled
	plan, _ = Decide(n, policy, state)
	if r := plan.Report; r.Slack != nil || !r.Write || r.Mode != model.ModeDisabled || plan.Observe.Load {
		t.Errorf("disabled: %+v, %+v", r, plan.Observe)
	}
}

// TestUnrestored checks that a node whose policy is disabled reports the files that are still to be restored, by this
// version or by a newer one.
func TestUnrestored(t *testing.T) {
	n := fixture.Node(model.Amount{CPU: 4000})
	n.PodsKnown, n.Foreign = true, 2
	n.Owned = []model.Owned{{File: model.File{Dir: "kubepods/burstable/poda", Knob: model.Shares}}}
	policy := fixture.Policy()
	for mode, want := range map[model.Mode]int64{model.ModeEnforce: 0, model.ModeDisabled: 3} {
		policy.Mode = mode
		if plan, _ := Decide(n, policy, State{}); plan.Report.Unrestored != want {
			t.Errorf("%v: %d files are unrestored, want %d", mode, plan.Report.Unrestored, want)
		}
	}
}
