// Package policy finds the policy that governs a node, and its effect at the moment.
package policy

import (
	"maps"
	"reflect"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// reviewInterval is when a policy is evaluated again although it named no time: it looks ahead three days.
const reviewInterval = time.Hour

// Governing is the governing policy of a node and its present effect. It is evaluated again only when its input
// differs, because the loop calls it each second.
type Governing struct {
	// File reads the policies of this node alone; nil: those of the cluster count.
	File func() ([]model.ClusterPolicy, error)
	Log  *faillog.Log

	choice   policy.Choice
	effect   policy.Effect // of the policy that was chosen
	node     policy.Node
	policies []model.ClusterPolicy // never changed: others are another slice
	// by the wall clock, which windows follow and which may be set back; zero: not evaluated yet
	at  time.Time
	off bool
}

// Policy returns the present effect of the governing policy.
func (g *Governing) Policy() *model.Policy { return &g.effect.Policy }

// Off reports whether the last policy that governed the node has mode Disabled. While Waterline is uninstalled, that
// policy is deleted, and the agent may see this before it ends.
func (g *Governing) Off() bool { return g.off }

// Says returns the governing policy.
func (g *Governing) Says() model.Ruling {
	p := &g.choice.Policy
	return model.Ruling{Policy: p.Name, Generation: p.Generation, Selling: g.effect.Selling}
}

// Update evaluates the policies for a node, and reports whether the result changed. If the policies cannot be read, the
// last ones stay in force.
func (g *Governing) Update(now time.Time, n model.NodeInfo, cluster []model.ClusterPolicy) bool {
	now = now.Round(0) // without the monotonic clock, by which it is never earlier than before
	all := cluster
	if g.File != nil {
		var err error
		all, err = g.File()
		g.Log.Report("policy", err)
		switch {
		case err != nil && g.at.IsZero():
			return false
		case err != nil:
			all = g.policies // whose windows continue
		}
	}
	node := policy.Node{UID: n.UID, Labels: n.Labels, OptedOut: kube.OptedOut(&n)}
	if !g.chosenFrom(&node, all) {
		g.choice, g.node, g.policies = policy.Choose(node, all), node, all
	} else if g.holds(now) {
		return false
	}
	effect := policy.At(&g.choice.Policy, now)
	changed := !reflect.DeepEqual(effect.Policy, g.effect.Policy) || effect.Selling != g.effect.Selling
	g.effect, g.at = effect, now
	if g.choice.Reason.Code != model.PolicyDefaults {
		g.off = effect.Policy.Mode == model.ModeDisabled
	}
	return changed
}

// chosenFrom reports whether the choice was made from this input.
func (g *Governing) chosenFrom(node *policy.Node, policies []model.ClusterPolicy) bool {
	same := len(policies) == len(g.policies) && (len(policies) == 0 || &policies[0] == &g.policies[0])
	return same && !g.at.IsZero() && node.UID == g.node.UID && node.OptedOut == g.node.OptedOut &&
		maps.Equal(node.Labels, g.node.Labels)
}

// holds reports whether the effect of the governing policy is still the same at a time.
func (g *Governing) holds(now time.Time) bool {
	until := g.at.Add(reviewInterval)
	if next := g.effect.Next; !next.IsZero() && next.Before(until) {
		until = next
	}
	return !now.Before(g.at) && now.Before(until)
}
