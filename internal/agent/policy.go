package agent

import (
	"reflect"
	"time"

	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// loadPolicy finds out which policy governs the node and what it says now, and reports whether that changed. Where policies
// cannot be read, what they said before stays in force. Until the cluster's are known nothing is decided anyway.
func (a *Agent) loadPolicy() bool {
	all := a.pods.Policies
	if a.cfg.Policies != nil {
		var err error
		all, err = a.cfg.Policies()
		a.log.report("policy", err)
		if err != nil {
			return false
		}
	}
	node := policy.Node{UID: a.pods.UID, Labels: a.pods.Labels, OptedOut: kube.OptedOut(a.pods.Labels)}
	a.choice = policy.Choose(node, all)
	effect := policy.At(&a.choice.Policy, time.Now())
	changed := !reflect.DeepEqual(effect.Policy, a.effect.Policy) || effect.Selling != a.effect.Selling
	a.effect = effect
	a.unsettled = a.unsettled || changed
	return changed
}

// report is what the node tells the cluster.
func (a *Agent) report() model.Report {
	return model.Report{
		Policy: a.choice.Policy.Name, Generation: a.choice.Policy.Generation, Mode: a.effect.Policy.Mode, Selling: a.effect.Selling,
		Slack: a.plan.Slack,
	}
}
