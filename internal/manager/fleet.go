package manager

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/manager/pools"
	"github.com/waterline-io/waterline/internal/manager/table"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// agentLabel selects the agents' pods.
const agentLabel = "app.kubernetes.io/name=waterline-agent"

// settled is the time for which everything must have been watched without an error to count as up to date. By then,
// events from the time before have arrived.
const settled = 3 * time.Second

// fleet is the leader's view of the nodes of the cluster.
type fleet struct {
	nodes   *table.Table[node]
	leases  *table.Table[int64]
	agents  *table.Table[agent]
	reports *table.Table[report]
}

// node is the known part of a Node.
type node struct {
	uid       string
	labels    map[string]string
	optedOut  string // as of [kube.OptedOut]
	published []model.Published
	cordoned  bool
	taints    []pool.Taint // without Kubernetes' own
}

// agent is an agent's pod.
type agent struct {
	node  string
	ready bool
}

// report is the known part of a NodeReport.
type report struct {
	uid        string
	policy     string
	generation int64
	mode       string
	offering   bool
	withdrawn  bool
	evict      request      // the requested eviction; zero: none
	batch      model.Amount // offered in the tier batch
	bound      model.Amount // requested in it
	usable     model.Amount // by batch of all tiers, beyond its requests
}

func newFleet() *fleet {
	return &fleet{
		nodes: table.New(func(obj any) node {
			o := obj.(*corev1.Node)
			n := kube.NodeOf(o)
			return node{n.UID, n.Labels, kube.OptedOut(&n), n.Published, o.Spec.Unschedulable, taintsOf(o)}
		}),
		leases: table.New(func(obj any) int64 {
			if at := obj.(*coordinationv1.Lease).Spec.RenewTime; at != nil {
				return at.UnixMicro()
			}
			return 0
		}),
		agents:  table.New(func(obj any) agent { return agentOf(obj.(*corev1.Pod)) }),
		reports: table.New(func(obj any) report { return reportOf(obj.(*v1alpha1.NodeReport)) }),
	}
}

func taintsOf(n *corev1.Node) (all []pool.Taint) {
	for _, t := range kube.LastingTaints(n) {
		all = append(all, pool.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return all
}

// agentOf converts an agent's pod. A pod that is being deleted is not ready, whatever its status says. The condition
// Ready does not count: when Leases arrive late, Kubernetes' node controller sets it to false on pods that are well
// (MarkPodsNotReady). ContainersReady is written by the kubelet alone, and a kubelet that is lost shows in its Lease.
func agentOf(p *corev1.Pod) agent {
	a := agent{node: p.Spec.NodeName}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			a.ready = c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		a.node = ""
	}
	return a
}

func reportOf(r *v1alpha1.NodeReport) report {
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
	return report{
		uid: string(r.UID), policy: s.Policy, generation: s.PolicyGeneration, mode: s.Mode,
		offering:  s.Selling != string(model.SellClosed) && s.Hot == "" && (offers(s.CPU) || offers(s.Memory)),
		withdrawn: meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionWithdrawn),
		evict:     requestOf(r), batch: batch, bound: bound, usable: usable,
	}
}

// follow keeps the fleet up to date until the context ends. Leases are listed at intervals, and are as old as that.
func (f *fleet) follow(
	ctx context.Context, core, coordination, custom rest.Interface, namespace string, leasesEvery time.Duration,
) {
	var wg sync.WaitGroup
	wg.Go(func() { f.nodes.Follow(ctx, core, "nodes", "", "", &corev1.Node{}) })
	wg.Go(func() { f.agents.Follow(ctx, core, "pods", namespace, agentLabel, &corev1.Pod{}) })
	wg.Go(func() {
		f.leases.Poll(ctx, coordination, "leases", corev1.NamespaceNodeLease, leasesEvery, &coordinationv1.LeaseList{})
	})
	wg.Go(func() { f.reports.Follow(ctx, custom, "nodereports", "", "", &v1alpha1.NodeReport{}) })
	wg.Wait()
}

// fresh reports whether the fleet is up to date.
func (f *fleet) fresh(now time.Time) bool {
	return f.nodes.Fresh(now, settled) && f.leases.Fresh(now, settled) && f.agents.Fresh(now, settled) &&
		f.reports.Fresh(now, settled)
}

// observe returns all nodes as input for node health, ordered by name, with reports whose Node does not exist.
func (f *fleet) observe() []nodehealth.Node {
	agents := map[string]nodehealth.AgentState{}
	f.agents.Each(func(_ string, a agent) {
		state := nodehealth.AgentNotReady
		if a.ready {
			state = nodehealth.AgentReady
		}
		if a.node != "" {
			agents[a.node] = max(agents[a.node], state) // during an update a node may have two agents
		}
	})
	leases, _ := f.leases.All()
	reports, _ := f.reports.All()
	var all []nodehealth.Node
	f.nodes.Each(func(name string, n node) {
		r, reported := reports[name]
		delete(reports, name)
		seen := nodehealth.Node{
			Name: name, Agent: agents[name], Lease: leases[corev1.NamespaceNodeLease+"/"+name],
			Report: reported, Withdrawn: r.withdrawn,
		}
		for _, p := range n.published {
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

// forPools returns the nodes as the pool controller needs them. drains has the workers that are to leave, by node, and
// off the nodes on which Waterline is stopped.
func (f *fleet) forPools(drains map[string]string, off map[string]bool) map[string]pools.Node {
	reports, _ := f.reports.All()
	all := map[string]pools.Node{}
	f.nodes.Each(func(name string, n node) {
		r := reports[name]
		all[name] = pools.Node{
			Node: pool.Node{
				Cordoned: n.cordoned, Off: off[name], Taints: n.taints,
				Offer: r.batch, Bound: r.bound, Usable: r.usable,
				Selling: r.mode == string(model.ModeEnforce) && r.offering && !r.withdrawn,
			},
			Labels: n.labels, Evict: drains[name],
		}
	})
	return all
}

// urgentReport reports whether a pool should not wait for its next round, two seconds at most, to read a report: less
// is sold, or something ends. What rises waits for minutes anyway.
func urgentReport(before, after report) bool {
	less := func(before, after model.Amount) bool { return after.CPU < before.CPU || after.Memory < before.Memory }
	return before.uid != after.uid || before.mode != after.mode || before.offering != after.offering ||
		before.withdrawn != after.withdrawn || before.evict != after.evict ||
		less(before.batch, after.batch) || less(before.usable, after.usable) || less(after.bound, before.bound)
}

// urgentNode is the same for a Node. Of 500 nodes, one changes every few milliseconds: kubelets write their status.
func urgentNode(before, after node) bool {
	return before.uid != after.uid || before.cordoned != after.cordoned || !slices.Equal(before.taints, after.taints) ||
		!maps.Equal(before.labels, after.labels)
}

// choices remembers the governing policy of each node. Of 5,000 nodes few change between two rounds.
type choices struct {
	version uint64 // of the policies
	nodes   map[string]choice
}

// choice is the result for one node.
type choice struct {
	uid      string
	labels   map[string]string // shared with the table, which replaces but never changes them
	optedOut string
	off      bool     // Waterline is stopped there
	governed string   // name of the governing policy; "": none
	outranks []string // policies that select the node too and are rolled out to it
	selected []string // policies whose selector it matches
}

// of returns the choice for a node.
func (c *choices) of(name string, n node, policies []model.ClusterPolicy, version uint64) choice {
	if c.nodes == nil || c.version != version {
		c.version, c.nodes = version, map[string]choice{}
	}
	if known, found := c.nodes[name]; found && known.uid == n.uid && known.optedOut == n.optedOut &&
		maps.Equal(known.labels, n.labels) {
		return known
	}
	found := policy.Choose(policy.Node{UID: n.uid, Labels: n.labels, OptedOut: n.optedOut}, policies)
	now := choice{uid: n.uid, labels: n.labels, optedOut: n.optedOut, off: policy.Off(&found.Policy)}
	if found.Reason.Code == model.PolicyGoverns {
		now.governed = found.Policy.Name
	}
	for _, other := range found.Others {
		if other.Reason.Code == model.PolicyOutranked {
			now.outranks = append(now.outranks, other.Name)
		}
	}
	for i := range policies {
		if policies[i].Nodes.Matches(n.labels) {
			now.selected = append(now.selected, policies[i].Name)
		}
	}
	slices.SortFunc(now.outranks, strings.Compare)
	c.nodes[name] = now
	return now
}

// forget drops nodes that are gone.
func (c *choices) forget(nodes map[string]node) {
	for name := range c.nodes {
		if _, there := nodes[name]; !there {
			delete(c.nodes, name)
		}
	}
}
