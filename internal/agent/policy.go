package agent

import (
	"maps"
	"reflect"
	"time"

	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// askAgain is when a policy is asked anew what it says though it named no moment: it looks ahead three days.
const askAgain = time.Hour

// ruling is which policy governs the node, what it says, and what that was found from. It is found anew only when something of
// this is different, because the loop asks each second.
type ruling struct {
	choice   policy.Choice
	effect   policy.Effect // of the policy that was chosen
	node     policy.Node
	policies []model.ClusterPolicy // never changed: others are another slice
	at       time.Time             // by the wall clock, which windows go by and which may be set back; zero: nothing was found yet
}

// chosenFrom reports whether the choice was made from these.
func (r *ruling) chosenFrom(node *policy.Node, policies []model.ClusterPolicy) bool {
	same := len(policies) == len(r.policies) && (len(policies) == 0 || &policies[0] == &r.policies[0])
	return same && !r.at.IsZero() && node.UID == r.node.UID && maps.Equal(node.Labels, r.node.Labels)
}

// holds reports whether the policy that was chosen still says at a moment what it said when it was asked.
func (r *ruling) holds(now time.Time) bool {
	until := r.at.Add(askAgain)
	if next := r.effect.Next; !next.IsZero() && next.Before(until) {
		until = next
	}
	return !now.Before(r.at) && now.Before(until)
}

// loadPolicy finds out which policy governs the node and what it says now, and reports whether that changed. Where policies
// cannot be read, what they said before stays in force. Until the cluster's are known nothing is decided anyway.
func (a *Agent) loadPolicy(now time.Time) bool {
	now = now.Round(0) // without the monotonic clock, by which it is never earlier than before
	all := a.pods.Policies
	if a.cfg.Policies != nil {
		var err error
		all, err = a.cfg.Policies()
		a.log.report("policy", err)
		switch {
		case err != nil && a.ruling.at.IsZero():
			return false
		case err != nil:
			all = a.ruling.policies // whose windows go on
		}
	}
	node := policy.Node{UID: a.pods.UID, Labels: a.pods.Labels, OptedOut: kube.OptedOut(a.pods.Labels)}
	if chosen := a.ruling.chosenFrom(&node, all); !chosen {
		a.ruling.choice, a.ruling.node, a.ruling.policies = policy.Choose(node, all), node, all
	} else if a.ruling.holds(now) {
		return false
	}
	effect := policy.At(&a.ruling.choice.Policy, now)
	changed := !reflect.DeepEqual(effect.Policy, a.ruling.effect.Policy) || effect.Selling != a.ruling.effect.Selling
	a.ruling.effect, a.ruling.at = effect, now
	a.unsettled = a.unsettled || changed
	return changed
}

// says returns which policy governs.
func (r *ruling) says() model.Ruling {
	p := &r.choice.Policy
	return model.Ruling{Policy: p.Name, Generation: p.Generation, Selling: r.effect.Selling}
}
