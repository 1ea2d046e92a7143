// Package ruling finds the policy that governs a node, and its effect at the moment.
package ruling

import (
	"maps"
	"reflect"
	"time"

	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// again is when a policy is evaluated again although it named no time: it looks ahead three days.
const again = time.Hour

// Ruling is the governing policy of a node and its present effect. It is evaluated again only when its input differs,
// because the loop calls it each second.
type Ruling struct {
	// File reads the policies of this node alone; nil: those of the cluster count.
	File func() ([]model.ClusterPolicy, error)
	Log  *trouble.Log

	choice   policy.Choice
	effect   policy.Effect // of the policy that was chosen
	node     policy.Node
	policies []model.ClusterPolicy // never changed: others are another slice
	// by the wall clock, which windows follow and which may be set back; zero: not evaluated yet
	at  time.Time
	off bool
}

// Policy returns the present effect of the governing policy.
func (r *Ruling) Policy() *model.Policy { return &r.effect.Policy }

// Off reports whether the last policy that governed the node has mode Disabled. While Waterline is uninstalled, that
// policy is deleted, and the agent may see this before it ends.
func (r *Ruling) Off() bool { return r.off }

// Says returns the governing policy.
func (r *Ruling) Says() model.Ruling {
	p := &r.choice.Policy
	return model.Ruling{Policy: p.Name, Generation: p.Generation, Selling: r.effect.Selling}
}

// Update evaluates the policies for a node, and reports whether the result changed. If the policies cannot be read, the
// last ones stay in force.
func (r *Ruling) Update(now time.Time, n model.NodeInfo, cluster []model.ClusterPolicy) bool {
	now = now.Round(0) // without the monotonic clock, by which it is never earlier than before
	all := cluster
	if r.File != nil {
		var err error
		all, err = r.File()
		r.Log.Report("policy", err)
		switch {
		case err != nil && r.at.IsZero():
			return false
		case err != nil:
			all = r.policies // whose windows continue
		}
	}
	node := policy.Node{UID: n.UID, Labels: n.Labels, OptedOut: kube.OptedOut(&n)}
	if !r.chosenFrom(&node, all) {
		r.choice, r.node, r.policies = policy.Choose(node, all), node, all
	} else if r.holds(now) {
		return false
	}
	effect := policy.At(&r.choice.Policy, now)
	changed := !reflect.DeepEqual(effect.Policy, r.effect.Policy) || effect.Selling != r.effect.Selling
	r.effect, r.at = effect, now
	if r.choice.Reason.Code != model.PolicyDefaults {
		r.off = effect.Policy.Mode == model.ModeDisabled
	}
	return changed
}

// chosenFrom reports whether the choice was made from this input.
func (r *Ruling) chosenFrom(node *policy.Node, policies []model.ClusterPolicy) bool {
	same := len(policies) == len(r.policies) && (len(policies) == 0 || &policies[0] == &r.policies[0])
	return same && !r.at.IsZero() && node.UID == r.node.UID && node.OptedOut == r.node.OptedOut &&
		maps.Equal(node.Labels, r.node.Labels)
}

// holds reports whether the effect of the governing policy is still the same at a time.
func (r *Ruling) holds(now time.Time) bool {
	until := r.at.Add(again)
	if next := r.effect.Next; !next.IsZero() && next.Before(until) {
		until = next
	}
	return !now.Before(r.at) && now.Before(until)
}
