// Package policy decides which policy governs a node, and what that policy says at a moment. Agents and the manager both ask
// it, so that the one counts what the others do.
//
// Policies that select the same node are not merged: the one that ranks highest governs the node as a whole.
package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Node is what the choice of a node's policy depends on.
type Node struct {
	UID      string
	Labels   map[string]string
	OptedOut bool // the node's label keeps Waterline off it
}

// Choice is which policy governs a node.
type Choice struct {
	// Policy governs the node. Where none does it has no name, and holds the defaults, or mode Off on a node that opted out.
	Policy model.ClusterPolicy
	// Reason is PolicyGoverns, PolicyDefaults or NodeOptedOut.
	Reason model.Reason
	// Others are the policies that do not govern the node, highest rank first.
	Others []Verdict
}

// Verdict is why a policy does not govern a node.
type Verdict struct {
	Name   string
	Reason model.Reason
}

// Choose finds the policy that governs a node: of those that select it and are rolled out to it, the one with the highest
// priority, and of equal ones that whose name comes first. The order of the policies does not matter.
//
// A node that a policy selects but is not rolled out to yet counts as not selected by it: until its turn comes it goes by
// the next policy, as it did before that one was written.
func Choose(node Node, policies []model.ClusterPolicy) Choice {
	ranked := slices.Clone(policies)
	slices.SortFunc(ranked, compare)
	choice := Choice{Policy: model.ClusterPolicy{Policy: model.DefaultPolicy()}, Reason: model.Reason{Code: model.PolicyDefaults}}
	if node.OptedOut {
		choice.Policy.Policy.Mode = model.ModeDisabled
		choice.Reason.Code = model.NodeOptedOut
	}
	for _, p := range ranked {
		because := judge(node, &p, &choice)
		if because.Code != model.PolicyGoverns {
			choice.Others = append(choice.Others, Verdict{p.Name, because})
			continue
		}
		choice.Policy, choice.Reason = p, because
	}
	return choice
}

// compare orders policies by rank, the highest first. Names are unique in a cluster, so this is a total order.
func compare(a, b model.ClusterPolicy) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Name, b.Name))
}

// judge says whether a policy governs a node, after all of higher rank were judged.
func judge(node Node, p *model.ClusterPolicy, sofar *Choice) model.Reason {
	switch threshold := Threshold(node.UID, p.Name); {
	case node.OptedOut:
		return model.Reason{Code: model.NodeOptedOut}
	case !p.Nodes.Matches(node.Labels):
		return model.Reason{Code: model.PolicyNotSelected}
	case p.Rollout < threshold:
		return model.Reason{Code: model.PolicyNotRolledOut, Operands: []model.Operand{
			{Name: "percent", Value: p.Rollout, Unit: model.UnitPart}, {Name: "from", Value: threshold, Unit: model.UnitPart},
		}}
	case sofar.Reason.Code == model.PolicyGoverns:
		higher := []model.Operand{{Name: "priority", Value: p.Priority}, {Name: "higher", Value: sofar.Policy.Priority}}
		return model.Reason{Code: model.PolicyOutranked, Operands: higher, Key: "governed by", Text: sofar.Policy.Name}
	}
	return model.Reason{Code: model.PolicyGoverns, Operands: []model.Operand{{Name: "priority", Value: p.Priority}}}
}

// Effect is what a policy says at a moment.
type Effect struct {
	Policy  model.Policy    // sells nothing while its windows do not let it
	Selling model.SellState // what its windows say
	Reason  model.Reason    // why nothing is sold; zero while windows are open
	Next    time.Time       // when this changes; zero: not within three days
}

// At returns what a policy says at a moment. While it drains and while it is closed its methods are empty, so nothing is
// sold; Selling tells the two apart.
func At(p *model.ClusterPolicy, now time.Time) Effect {
	e := Effect{Policy: p.Policy}
	var window *model.Window
	e.Selling, window, e.Next = Windows(p.Windows, now)
	if e.Selling == model.SellOpen {
		return e
	}
	e.Policy.CPU.Method, e.Policy.Memory.Method = "", ""
	e.Policy.CPU.Ratio, e.Policy.Memory.Ratio = 0, 0
	e.Reason = model.Reason{Code: model.WindowClosed, Key: "opens"}
	if e.Selling == model.SellDraining {
		e.Reason = model.Reason{Code: model.WindowDraining, Key: "ends"}
	}
	if window != nil {
		e.Reason.Text = window.Name + " " + e.Next.In(window.Zone.Location()).Format(time.RFC3339)
	}
	return e
}
