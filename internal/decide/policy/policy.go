// Package policy decides which policy governs a node, and what the policy says at a moment. Agents and the manager
// both call it, so that the manager counts what the agents do.
//
// Policies that select the same node are not merged: the policy with the highest rank governs the node alone.
package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Node is the input for the choice of a node's policy.
type Node struct {
	UID      string
	Labels   map[string]string
	OptedOut string // the label or annotation by which it opted out of all policies; "": none
}

// Choice is the result of the choice of a node's policy.
type Choice struct {
	// Policy governs the node. If no policy does, it has no name and contains the defaults, or mode Disabled on a
	// node that opted out.
	Policy model.ClusterPolicy
	// Reason is PolicyGoverns, PolicyDefaults or NodeOptedOut.
	Reason model.Reason
	// Others are the policies that do not govern the node, highest rank first.
	Others []Verdict
}

// Verdict is the reason why a policy does not govern a node.
type Verdict struct {
	Name   string
	Reason model.Reason
}

// Choose returns the policy that governs a node. Among the policies that select the node and are rolled out to it, it
// is the one with the highest priority; among equal priorities, the one with the first name. The order of the
// policies does not matter.
//
// A policy whose roll-out has not reached the node counts as not selecting it. Until then, the node follows the next
// policy, as before that policy was written.
func Choose(node Node, policies []model.ClusterPolicy) Choice {
	ranked := slices.Clone(policies)
	slices.SortFunc(ranked, compare)
	choice := Choice{
		Policy: model.ClusterPolicy{Policy: model.DefaultPolicy()}, Reason: model.Reason{Code: model.PolicyDefaults},
	}
	if node.OptedOut != "" {
		choice.Policy.Policy.Mode = model.ModeDisabled
		choice.Reason = model.Reason{Code: model.NodeOptedOut, Key: "by", Text: node.OptedOut}
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

// judge returns whether a policy governs a node, after all policies of higher rank were judged.
func judge(node Node, p *model.ClusterPolicy, sofar *Choice) model.Reason {
	switch threshold := Threshold(node.UID, p.Name); {
	case node.OptedOut != "":
		return model.Reason{Code: model.NodeOptedOut}
	case !p.Nodes.Matches(node.Labels):
		return model.Reason{Code: model.PolicyNotSelected}
	case p.Rollout < threshold:
		return model.Reason{Code: model.PolicyNotRolledOut, Operands: []model.Operand{
			{Name: "percent", Value: p.Rollout, Unit: model.UnitPart},
			{Name: "from", Value: threshold, Unit: model.UnitPart},
		}}
	case sofar.Reason.Code == model.PolicyGoverns:
		higher := []model.Operand{{Name: "priority", Value: p.Priority}, {Name: "higher", Value: sofar.Policy.Priority}}
		return model.Reason{Code: model.PolicyOutranked, Operands: higher, Key: "governed by", Text: sofar.Policy.Name}
	}
	return model.Reason{Code: model.PolicyGoverns, Operands: []model.Operand{{Name: "priority", Value: p.Priority}}}
}

// Effect is what a policy says at a moment.
type Effect struct {
	Policy  model.Policy    // sells nothing while its windows are closed or draining
	Selling model.SellState // state of its windows
	Reason  model.Reason    // why nothing is sold; zero while windows are open
	Next    time.Time       // time of the next change; zero: not within three days
}

// Off reports whether a policy stops Waterline where it governs: it is paused, or its mode is Disabled.
func Off(p *model.ClusterPolicy) bool { return p.Paused || p.Policy.Mode == model.ModeDisabled }

// At returns what a policy says at a moment. While its windows are closed or draining, its methods are empty, so
// nothing is sold; Selling distinguishes the two.
func At(p *model.ClusterPolicy, now time.Time) Effect {
	e := Effect{Policy: p.Policy}
	if Off(p) {
		e.Policy.Mode = model.ModeDisabled
	}
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
