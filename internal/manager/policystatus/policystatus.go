// Package policystatus writes the status of policies: on how many nodes they hold, and whether those follow.
package policystatus

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// maxText bounds the message of a condition in bytes.
const maxText = 4096

// Writer computes the status of policies and writes it.
type Writer struct {
	Custom   rest.Interface // for Waterline's own API group
	Fleet    *fleet.Fleet
	Policies *fleet.Policies
	Log      *slog.Logger
	choices  choices
}

// Tally is the count for one policy.
type Tally struct {
	nodes     v1alpha1.NodeCounts
	agents    int32                     // governed nodes with a report: an agent runs there, or did
	follow    int32                     // governed nodes whose report has the current version
	withdrawn int32                     // governed nodes whose offer is withdrawn
	overlaps  map[string]map[bool]int32 // by other policy and whether this one governs
}

// Count counts the nodes of each policy. As side effects, it returns the governing policy of each node, and the nodes
// on which Waterline is stopped.
func (s *Writer) Count() (tallies map[string]*Tally, governed map[string]string, off map[string]bool) {
	policies, version := s.Policies.Usable()
	byName := map[string]*model.ClusterPolicy{}
	tallies, off = map[string]*Tally{}, map[string]bool{}
	for i := range policies {
		byName[policies[i].Name] = &policies[i]
		tallies[policies[i].Name] = &Tally{overlaps: map[string]map[bool]int32{}}
	}
	nodes, _ := s.Fleet.Nodes.All()
	reports, _ := s.Fleet.Reports.All()
	maps.DeleteFunc(s.choices.nodes, func(name string, _ choice) bool { _, there := nodes[name]; return !there })
	governed = make(map[string]string, len(nodes))
	for name, n := range nodes {
		c := s.choices.of(name, n, policies, version)
		governed[name] = c.governed
		if c.off {
			off[name] = true
		}
		for _, p := range c.selected {
			tallies[p].nodes.Selected++
		}
		if c.governed == "" {
			continue
		}
		t := tallies[c.governed]
		t.nodes.Governed++
		if r, found := reports[name]; found {
			t.add(byName[c.governed], r)
		}
		for _, other := range c.outranks {
			t.overlap(other, true)
			tallies[other].overlap(c.governed, false)
		}
	}
	return tallies, governed, off
}

// add counts the report of a node that the policy governs.
func (t *Tally) add(p *model.ClusterPolicy, r fleet.Report) {
	t.agents++
	follows := r.Policy == p.Name && r.Generation == p.Generation
	if follows {
		t.follow++
	}
	if r.Withdrawn {
		t.withdrawn++
		return
	}
	if follows && r.Mode == string(model.ModeEnforce) {
		t.nodes.Enforcing++
		if r.Offering {
			t.nodes.Offering++
		}
	}
}

func (t *Tally) overlap(other string, governs bool) {
	if t.overlaps[other] == nil {
		t.overlaps[other] = map[bool]int32{}
	}
	t.overlaps[other][governs]++
}

// Write updates the status of each policy. It writes only changes, so mostly nothing.
func (s *Writer) Write(ctx context.Context, tallies map[string]*Tally, slipped map[string]int32) {
	rows, _ := s.Policies.All()
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		t := tallies[name]
		if t == nil {
			t = &Tally{} // it was never valid
		}
		now := s.status(&row, t, slipped[name])
		if equality.Semantic.DeepEqual(now, row.Status) {
			continue
		}
		if err := s.patch(ctx, name, row.UID, now); err != nil && ctx.Err() == nil {
			s.Log.Warn("the status of a policy could not be written", "policy", name, "err", err)
		}
	}
}

// status returns the status that a policy should have. Unchanged conditions keep the time of their last change. Nodes
// without a NodeReport, such as virtual ones and those outside agent.nodeSelector, do not keep a policy from being
// Ready: helm install --wait waits for that condition.
func (s *Writer) status(p *fleet.Policy, t *Tally, slipped int32) v1alpha1.ColocationPolicyStatus {
	now := *p.Status.DeepCopy()
	now.ObservedGeneration, now.Nodes, now.SlippedPods = p.Generation, t.nodes, slipped
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, ObservedGeneration: p.Generation, Status: metav1.ConditionFalse,
	}
	switch behind := t.agents - t.follow; {
	case p.Invalid != nil:
		ready.Reason, ready.Message = "Invalid", kube.Shorten(p.Invalid.Error(), maxText)
	case behind > 0:
		ready.Reason = "NodesBehind"
		ready.Message = fmt.Sprintf("%d of %d governed nodes do not follow the current version of the policy yet.",
			behind, t.nodes.Governed)
	case t.withdrawn > 0:
		ready.Reason = "NodesWithdrawn"
		ready.Message = fmt.Sprintf("%d of %d governed nodes may sell nothing, because their agents or kubelets are lost; "+
			"see kubectl get nodereports -o wide.", t.withdrawn, t.nodes.Governed)
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, "AllNodesFollow"
		ready.Message = fmt.Sprintf("All %d governed nodes follow the policy.", t.nodes.Governed)
		if bare := t.nodes.Governed - t.agents; bare > 0 {
			ready.Message = fmt.Sprintf("%d of %d governed nodes follow the policy; no agent has reported from the "+
				"other %d.", t.agents, t.nodes.Governed, bare)
		}
	}
	overlaps := metav1.Condition{
		Type: v1alpha1.ConditionOverlaps, ObservedGeneration: p.Generation,
		Status: metav1.ConditionFalse, Reason: "NoOverlap", Message: "No other policy selects the same nodes.",
	}
	if len(t.overlaps) > 0 {
		overlaps.Status, overlaps.Reason, overlaps.Message = metav1.ConditionTrue, "SharedNodes", t.shared()
	}
	meta.SetStatusCondition(&now.Conditions, ready)
	meta.SetStatusCondition(&now.Conditions, overlaps)
	return now
}

// shared describes the other policies on the same nodes, and which of them governs.
func (t *Tally) shared() string {
	var parts []string
	for _, other := range slices.Sorted(maps.Keys(t.overlaps)) {
		if n := t.overlaps[other][true]; n > 0 {
			parts = append(parts, fmt.Sprintf("governs %d nodes that %s selects too", n, other))
		}
		if n := t.overlaps[other][false]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d nodes are governed by %s, which has a higher rank", n, other))
		}
	}
	return kube.Shorten(strings.Join(parts, "; ")+".", maxText)
}

func (s *Writer) patch(ctx context.Context, name, uid string, status v1alpha1.ColocationPolicyStatus) error {
	request := s.Custom.Patch(types.MergePatchType).Resource("colocationpolicies").Name(name).SubResource("status")
	return actkube.Send(ctx, request, "writing the status of policy "+name, map[string]any{
		"metadata": map[string]any{"uid": uid}, // a new policy of the same name is a conflict
		"status":   statusDocument{status, status.SlippedPods},
	})
}

// statusDocument is a status that also contains zeros, which a patch needs to replace other numbers.
type statusDocument struct {
	v1alpha1.ColocationPolicyStatus
	SlippedPods int32 `json:"slippedPods"`
}
