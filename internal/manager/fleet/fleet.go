// Package fleet holds the manager's view of the cluster: the leader's view of nodes, and every replica's view of
// policies.
package fleet

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// AgentLabel selects the agents' pods.
const AgentLabel = "app.kubernetes.io/name=waterline-agent"

// Settled is the time for which everything must have been watched without an error to count as up to date. By then,
// events from the time before have arrived.
const Settled = 3 * time.Second

// Fleet is the leader's view of the nodes of the cluster.
type Fleet struct {
	Nodes   *cache.Table[Node]
	Leases  *cache.Table[int64] // renewals, in microseconds since 1970
	Agents  *cache.Table[Agent]
	Reports *cache.Table[Report]
}

// Node is the known part of a Node.
type Node struct {
	UID       string
	Labels    map[string]string
	OptedOut  string // as of [kube.OptedOut]
	Published []model.Published
	Cordoned  bool
	Taints    []pool.Taint // without Kubernetes' own
}

// Agent is an agent's pod.
type Agent struct {
	Node  string // "": it has ended
	Ready bool
}

// Report is the known part of a NodeReport.
type Report struct {
	UID        string
	Policy     string
	Generation int64
	Mode       string
	Offering   bool
	Withdrawn  bool
	Evict      Request      // the requested eviction; zero: none
	Batch      model.Amount // offered in the tier batch
	Bound      model.Amount // requested in it
	Usable     model.Amount // by batch of all tiers, beyond its requests
}

// Request is a node's eviction request, from its report.
type Request struct {
	Namespace, Name, UID  string
	Reason, Message, When string
}

func requestOf(r *v1alpha1.NodeReport) Request {
	e := r.Status.Eviction
	if e == nil {
		return Request{}
	}
	return Request{
		Namespace: e.Namespace, Name: e.Name, UID: e.UID, Reason: e.Reason, Message: e.Message,
		When: e.UID + " " + e.Renewed.UTC().Format(time.RFC3339Nano),
	}
}

// New returns a fleet that knows nothing.
func New() *Fleet {
	return &Fleet{
		Nodes: cache.New(func(obj any) Node {
			o := obj.(*corev1.Node)
			n := kube.NodeOf(o)
			return Node{n.UID, n.Labels, kube.OptedOut(&n), n.Published, o.Spec.Unschedulable, taintsOf(o)}
		}),
		Leases: cache.New(func(obj any) int64 {
			if at := obj.(*coordinationv1.Lease).Spec.RenewTime; at != nil {
				return at.UnixMicro()
			}
			return 0
		}),
		Agents:  cache.New(func(obj any) Agent { return AgentOf(obj.(*corev1.Pod)) }),
		Reports: cache.New(func(obj any) Report { return reportOf(obj.(*v1alpha1.NodeReport)) }),
	}
}

func taintsOf(n *corev1.Node) (all []pool.Taint) {
	for _, t := range kube.LastingTaints(n) {
		all = append(all, pool.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return all
}

// AgentOf converts an agent's pod. A pod that is being deleted is not ready, whatever its status says. The condition
// Ready does not count: when Leases arrive late, Kubernetes' node controller sets it to false on pods that are well
// (MarkPodsNotReady). ContainersReady is written by the kubelet alone, and a kubelet that is lost shows in its Lease.
func AgentOf(p *corev1.Pod) Agent {
	a := Agent{Node: p.Spec.NodeName}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			a.Ready = c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		a.Node = ""
	}
	return a
}

func reportOf(r *v1alpha1.NodeReport) Report {
	s := &r.Status
	offers := func(r *v1alpha1.ResourceReport) bool {
		return r != nil && (!r.Offer.Batch.IsZero() || !r.Offer.Mid.IsZero())
	}
	var batch, bound, usable model.Amount
	if c := s.CPU; c != nil {
		batch.CPU, bound.CPU = c.Offer.Batch.MilliValue(), c.Bound.Batch.MilliValue()
		usable.CPU = c.Allowance.MilliValue() - bound.CPU - c.Bound.Mid.MilliValue()
	}
	if m := s.Memory; m != nil {
		batch.Memory, bound.Memory = m.Offer.Batch.Value(), m.Bound.Batch.Value()
		usable.Memory = m.Allowance.Value() - bound.Memory - m.Bound.Mid.Value()
	}
	return Report{
		UID: string(r.UID), Policy: s.Policy, Generation: s.PolicyGeneration, Mode: string(s.Mode),
		Offering:  s.Selling != v1alpha1.SellClosed && s.Hot == "" && (offers(s.CPU) || offers(s.Memory)),
		Withdrawn: meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionWithdrawn),
		Evict:     requestOf(r), Batch: batch, Bound: bound, Usable: usable,
	}
}

// Follow keeps the fleet up to date until the context ends. Leases are listed at intervals, and are as old as that.
func (f *Fleet) Follow(
	ctx context.Context, core, coordination, custom rest.Interface, namespace string, leasesEvery time.Duration,
) {
	var wg sync.WaitGroup
	wg.Go(func() { f.Nodes.Follow(ctx, core, "nodes", "", "", &corev1.Node{}) })
	wg.Go(func() { f.Agents.Follow(ctx, core, "pods", namespace, AgentLabel, &corev1.Pod{}) })
	wg.Go(func() {
		f.Leases.Poll(ctx, coordination, "leases", corev1.NamespaceNodeLease, leasesEvery, &coordinationv1.LeaseList{})
	})
	wg.Go(func() { f.Reports.Follow(ctx, custom, "nodereports", "", "", &v1alpha1.NodeReport{}) })
	wg.Wait()
}

// Fresh reports whether the fleet is up to date.
func (f *Fleet) Fresh(now time.Time) bool {
	return f.Nodes.Fresh(now, Settled) && f.Leases.Fresh(now, Settled) && f.Agents.Fresh(now, Settled) &&
		f.Reports.Fresh(now, Settled)
}

// Observe returns all nodes as input for node health, ordered by name, with reports whose Node does not exist.
func (f *Fleet) Observe() []nodehealth.Node {
	agents := map[string]nodehealth.AgentState{}
	f.Agents.Each(func(_ string, a Agent) {
		state := nodehealth.AgentNotReady
		if a.Ready {
			state = nodehealth.AgentReady
		}
		if a.Node != "" {
			agents[a.Node] = max(agents[a.Node], state) // during an update a node may have two agents
		}
	})
	leases, _ := f.Leases.All()
	reports, _ := f.Reports.All()
	var all []nodehealth.Node
	f.Nodes.Each(func(name string, n Node) {
		r, reported := reports[name]
		delete(reports, name)
		seen := nodehealth.Node{
			Name: name, Agent: agents[name], Lease: leases[corev1.NamespaceNodeLease+"/"+name],
			Report: reported, Withdrawn: r.Withdrawn,
		}
		for _, p := range n.Published {
			seen.Own = seen.Own || !p.Koordinator
			seen.Koordinator = seen.Koordinator || p.Koordinator
		}
		all = append(all, seen)
	})
	for name := range reports {
		all = append(all, nodehealth.Node{Name: name, Gone: true, Report: true})
	}
	slices.SortFunc(all, func(a, b nodehealth.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
