package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

type policyAnswer struct {
	Name       string      `json:"name"`
	Mode       string      `json:"mode,omitempty"`
	Paused     bool        `json:"paused,omitempty"` // the annotation disables it, whatever the mode is
	Priority   int64       `json:"priority"`
	Generation int64       `json:"generation"`
	Invalid    string      `json:"invalid,omitempty"` // why the current version counts for no node
	Selling    string      `json:"selling"`           // Open, Draining or Closed
	Why        string      `json:"why,omitempty"`     // why it is not open
	Conditions []string    `json:"conditions,omitempty"`
	Slipped    int32       `json:"slippedPods,omitempty"`
	Nodes      []nodeState `json:"nodes"` // ordered by state and name
}

// nodeState is what a policy is to a node.
type nodeState struct {
	Name     string `json:"name"`
	Governed bool   `json:"governed"`
	State    string `json:"state"`            // what nodes in the same state have in common
	Detail   string `json:"detail,omitempty"` // of this node
}

// explainPolicy reads a policy, and all nodes, policies and reports, and decides as agents do.
func explainPolicy(ctx context.Context, a *apis, name string) (answer, error) {
	var policies v1alpha1.ColocationPolicyList
	var reports v1alpha1.NodeReportList
	var nodes corev1.NodeList
	if err := cmp.Or(
		list(ctx, a.custom, "colocationpolicies", "", &policies), list(ctx, a.custom, "nodereports", "", &reports),
		list(ctx, a.core, "nodes", "", &nodes),
	); err != nil {
		return nil, err
	}
	return describePolicy(name, policies.Items, nodes.Items, reports.Items, time.Now())
}

// describePolicy is explainPolicy of what was read.
func describePolicy(name string, objects []v1alpha1.ColocationPolicy, nodes []corev1.Node,
	reports []v1alpha1.NodeReport, now time.Time,
) (*policyAnswer, error) {
	i := slices.IndexFunc(objects, func(o v1alpha1.ColocationPolicy) bool { return o.Name == name })
	if i < 0 {
		names := namesOf(objects, func(o *v1alpha1.ColocationPolicy) string { return o.Name })
		return nil, fmt.Errorf("there is no policy %q; there are: %s", name, cmp.Or(strings.Join(names, ", "), "none"))
	}
	o := &objects[i]
	p := &policyAnswer{
		Name: name, Mode: specMode(o), Paused: kube.Paused(o), Priority: int64(o.Spec.Priority),
		Generation: o.Generation, Slipped: o.Status.SlippedPods,
	}
	for _, c := range o.Status.Conditions {
		p.Conditions = append(p.Conditions, fmt.Sprintf("%s is %s: %s %s", c.Type, c.Status, c.Reason, c.Message))
	}
	var valid []model.ClusterPolicy
	for i := range objects {
		parsed, err := kube.Policy(&objects[i])
		switch {
		case err == nil:
			valid = append(valid, parsed)
			if parsed.Name == name {
				effect := policy.At(&parsed, now)
				p.Selling, p.Why = string(effect.Selling), effect.Reason.String()
			}
		case objects[i].Name == name:
			p.Invalid = err.Error()
		}
	}
	byNode := newInventory(nodes, reports, objects, nil, nil).reports
	for i := range nodes {
		p.Nodes = append(p.Nodes, p.of(&nodes[i], valid, byNode[nodes[i].Name]))
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortFunc(p.Nodes, func(a, b nodeState) int {
		return cmp.Or(rank[a.Governed]-rank[b.Governed], cmp.Compare(a.State, b.State), cmp.Compare(a.Name, b.Name))
	})
	return p, nil
}

func specMode(o *v1alpha1.ColocationPolicy) string {
	return string(cmp.Or(o.Spec.Mode, v1alpha1.ModeObserve))
}

// modeOf returns the mode of a policy for people, who see also that it is paused.
func modeOf(mode string, paused bool) string {
	if paused {
		mode += ", paused"
	}
	return mode
}

// of returns what the policy is to a node.
func (p *policyAnswer) of(n *corev1.Node, policies []model.ClusterPolicy, r *v1alpha1.NodeReport) nodeState {
	if p.Invalid != "" {
		s := nodeState{Name: n.Name, State: "Invalid: the node does not follow the policy"}
		if r != nil && r.Status.Policy == p.Name {
			s.Governed, s.State = true, fmt.Sprintf("Invalid: the node follows an earlier version, generation %d",
				r.Status.PolicyGeneration)
		}
		return s
	}
	choice := policy.Choose(policyNode(n), policies)
	if choice.Reason.Code == model.PolicyGoverns && choice.Policy.Name == p.Name {
		state, detail := follows(p.Name, p.Generation, r)
		return nodeState{Name: n.Name, Governed: true, State: state, Detail: detail}
	}
	for _, o := range choice.Others {
		if o.Name == p.Name {
			return nodeState{Name: n.Name, State: string(o.Reason.Code), Detail: o.Reason.Details()}
		}
	}
	return nodeState{Name: n.Name, State: string(choice.Reason.Code)}
}

// follows returns what the report of a node says that a policy governs. The state begins with a word or two of its own,
// and what they mean follows a colon.
func follows(name string, generation int64, r *v1alpha1.NodeReport) (state, detail string) {
	if r == nil {
		return "no NodeReport: no agent has worked there", ""
	}
	s := &r.Status
	switch {
	case s.Policy != name || s.PolicyGeneration != generation:
		return "behind: its agent does not follow this version yet", fmt.Sprintf("it follows %s, generation %d",
			cmp.Or(s.Policy, "no policy"), s.PolicyGeneration)
	case kube.Withdrawn(r):
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWithdrawn)
		return "withdrawn: the manager keeps it from selling", c.Reason
	case s.Mode != v1alpha1.ModeEnforce:
		return "mode " + string(s.Mode) + ": nothing is written, nothing is sold", ""
	case s.Hot != "":
		return "hot: nothing is sold", s.Hot
	case s.Selling != v1alpha1.SellOpen:
		return "window " + string(s.Selling) + ": nothing new is sold", ""
	case offers(s.CPU) || offers(s.Memory):
		return "offers", ""
	case notSold(s.CPU) && notSold(s.Memory):
		return "enforces: the policy sells nothing", ""
	}
	return "offers nothing", whyNothing(s)
}

func offers(r *v1alpha1.ResourceReport) bool {
	return r != nil && (!r.Offer.Batch.IsZero() || !r.Offer.Mid.IsZero())
}

// notSold reports whether the policy does not sell a resource.
func notSold(r *v1alpha1.ResourceReport) bool { return r != nil && r.Reason == string(model.NotSold) }

// whyNothing returns the reasons for an empty offer.
func whyNothing(s *v1alpha1.NodeReportStatus) string {
	var all []string
	for name, r := range map[string]*v1alpha1.ResourceReport{"CPU": s.CPU, "memory": s.Memory} {
		if r == nil {
			all = append(all, name+" not measured")
		} else {
			all = append(all, strings.TrimSpace(name+" "+r.Reason))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (p *policyAnswer) meanings() meanings { return reasons() }

// maxNodes is how many nodes of a state are named.
const maxNodes = 5

func (p *policyAnswer) print(out io.Writer) error {
	fmt.Fprintf(out, "policy %s  mode %s  priority %d  generation %d\n", p.Name, modeOf(p.Mode, p.Paused), p.Priority,
		p.Generation)
	if p.Invalid != "" {
		fmt.Fprintf(out, "its current version is invalid, and agents keep the last valid one: %s\n", p.Invalid)
	} else {
		fmt.Fprintln(out, strings.TrimSpace("selling is "+p.Selling+"  "+p.Why))
	}
	printEach(out, "%s\n", p.Conditions)
	if p.Slipped > 0 {
		fmt.Fprintf(out, "%s on its nodes are batch and were admitted without batch requests: delete them, so that their "+
			"owners create them again\n", count(int(p.Slipped), "pod"))
	}
	fmt.Fprintln(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODES\tGOVERNED\tSTATE\tWHICH")
	for rest := p.Nodes; len(rest) > 0; {
		first := rest[0]
		n := 1
		for n < len(rest) && rest[n].State == first.State && rest[n].Governed == first.Governed {
			n++
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", n, map[bool]string{true: "yes", false: "no"}[first.Governed], first.State,
			which(rest[:n]))
		rest = rest[n:]
	}
	return t.Flush()
}

func which(nodes []nodeState) string {
	var all []string
	for i, n := range nodes {
		if i == maxNodes {
			all = append(all, fmt.Sprintf("and %d more", len(nodes)-i))
			break
		}
		if n.Detail != "" {
			n.Name += " (" + n.Detail + ")"
		}
		all = append(all, n.Name)
	}
	return strings.Join(all, ", ")
}
