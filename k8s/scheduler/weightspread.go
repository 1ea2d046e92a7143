package scheduler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// weightSpread spreads pods with weights, so that each gets the CPU that its weight lets it expect.
type weightSpread struct {
	nodeScores
	view     *view
	settings place.Settings
	sums     slots[weightSums]
	all      func() ([]fwk.NodeInfo, error) // nodes of the cluster

	crowded bool          // a pod without a weight can dilute weights on some node
	looked  time.Duration // when that was found out
}

// weightLimit is weightSpread that also refuses nodes. A plugin without Filter costs less than one that skips it: the
// framework asks for each node whether it is skipped.
type weightLimit struct{ *weightSpread }

var (
	_ fwk.PreScorePlugin    = (*weightSpread)(nil)
	_ fwk.ScorePlugin       = (*weightSpread)(nil)
	_ fwk.ScoreExtensions   = (*weightSpread)(nil)
	_ fwk.SignPlugin        = (*weightSpread)(nil)
	_ fwk.PreFilterPlugin   = weightLimit{}
	_ fwk.FilterPlugin      = weightLimit{}
	_ fwk.EnqueueExtensions = weightLimit{}
)

func newWeightSpread(v *view, args WeightSpreadArgs, h fwk.Handle) (fwk.Plugin, error) {
	s, err := args.settings()
	all := func() ([]fwk.NodeInfo, error) { return h.SnapshotSharedLister().NodeInfos().List() }
	w := &weightSpread{view: v, settings: s, looked: -time.Minute, all: all}
	if args.Refuse {
		return weightLimit{w}, err
	}
	return w, err
}

// Name returns the plugin's name.
func (w *weightSpread) Name() string { return WeightSpreadName }

// claims are the weights of a pod that needs a node, one for each policy.
type claims struct{ perPolicy[place.Weight] }

func (v *view) claims(p *corev1.Pod) *claims {
	return &claims{perPolicy[place.Weight]{of: func(policy *model.Policy) place.Weight { return v.weightOf(p, policy) }}}
}

// matters reports whether a weight is involved with a pod: its own, or one of a pod that has a node.
func (w *weightSpread) matters(p *corev1.Pod) bool {
	return !isBatch(p) && (asksWeight(p) || w.view.weighs())
}

const claimsKey fwk.StateKey = "waterline/" + WeightSpreadName

// PreFilter skips pods with which no weight is involved, and pods that must run.
func (w weightLimit) PreFilter(
	_ context.Context, cycle fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if !w.matters(p) || mustRun(p) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	write(cycle, claimsKey, w.view.claims(p))
	w.view.again(p, func(known *waiter) { known.claims = nil })
	return nil, nil
}

// mustRun reports whether a pod gets its node whatever it takes from weights. A pod of a DaemonSet has no other node,
// and the cluster needs system-critical pods.
func mustRun(p *corev1.Pod) bool {
	return kube.NodeBound(p) || kube.Priority(p) >= scheduling.SystemCriticalPriority
}

// PreFilterExtensions returns nil: Filter reads the pods of the node, from which preemption removes some.
func (w weightLimit) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses a node on which a weight would not be met.
func (w weightLimit) Filter(_ context.Context, cycle fwk.CycleState, p *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, status := read[*claims](cycle, claimsKey)
	if status != nil {
		return status
	}
	on := w.view.weightsOn(info)
	claim := c.under(on.policy)
	if place.Fits(on.sums, claim, info.GetAllocatable().GetMilliCPU()) {
		return nil
	}
	tree := place.Hierarchy{
		CPU: info.GetAllocatable().GetMilliCPU(), PodsOnly: on.policy.Weight.Scope == model.ScopeClass,
		OverrideGuaranteed: on.policy.Weight.OverrideGuaranteed,
	}
	if why := place.WeightFilter(&tree, on.pods(w.view, info), claim, &w.settings); why.Code != "" {
		w.view.refused(p, func(known *waiter) { known.claims = c })
		return refuse(WeightSpreadName, fwk.Unschedulable, why)
	}
	return nil
}

// PreScore scores the nodes by what the pod would cost them in weight pressure. It skips pods with which no weight is
// involved. So it does with a small pod without a weight while all nodes have room for it beside their weights: it
// would cost none of them anything.
func (w *weightSpread) PreScore(_ context.Context, _ fwk.CycleState, p *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if !w.matters(p) ||
		!asksWeight(p) && !w.view.givesWeights() && requests(p).CPU <= smallRequest && !w.crowds() {
		return fwk.NewStatus(fwk.Skip)
	}
	c := w.view.claims(p)
	w.begin(nodes)
	w.sums.prune(w.view.nodesKnown())
	var policy *model.Policy
	var claim *place.Weight
	for i, info := range nodes {
		on := w.sumsOn(info)
		if claim == nil || on.policy != policy {
			policy, claim = on.policy, c.under(on.policy)
		}
		w.scores[i] = place.WeightCost(on.sums, claim, on.cpu)
	}
	place.Spread(w.scores)
	return nil
}

// weightSums are what is read of a node to score it.
type weightSums struct {
	generation, version int64
	cpu                 int64 // allocatable, in milli-cores
	sums                place.Sums
	policy              *model.Policy
}

// sumsOn returns what is read of a node to score it.
func (w *weightSpread) sumsOn(info fwk.NodeInfo) *weightSums {
	slot, isNew := w.sums.find(info)
	if isNew || slot.generation != info.GetGeneration() || slot.version != w.view.version.Load() {
		on := w.view.weightsOn(info)
		*slot = weightSums{on.generation, on.version, info.GetAllocatable().GetMilliCPU(), on.sums, on.policy}
	}
	return slot
}

// smallRequest is the request of CPU that crowds tries, in milli-cores.
const smallRequest = 2000

// crowds reports whether a pod with a small request would dilute weights on any node of the cluster. It looks at them
// once a second.
func (w *weightSpread) crowds() bool {
	now := w.view.now()
	if now-w.looked < time.Second {
		return w.crowded
	}
	nodes, err := w.all()
	w.looked, w.crowded = now, err != nil
	pod := place.Weight{QoS: model.Burstable, Request: smallRequest}
	for _, info := range nodes {
		if on := w.sumsOn(info); place.WeightCost(on.sums, &pod, on.cpu) > 0 {
			w.crowded = true
			break
		}
	}
	return w.crowded
}

// EventsToRegister returns nothing: without refuse, the plugin refuses no pod.
func (w *weightSpread) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// EventsToRegister returns the events after which a weight may be met: a pod has left or requests less, or there is
// another node, or a larger one.
func (w weightLimit) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: w.leaves,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: w.grows,
		},
	}, nil
}

// SignPod refuses to sign pods with which a weight is involved. The weight depends on labels, limits and the namespace
// too.
func (w *weightSpread) SignPod(_ context.Context, p *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if w.matters(p) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods are not scheduled by signature beside weights")
	}
	return nil, nil
}

// weightOf returns a pod's weight under a policy.
func (v *view) weightOf(p *corev1.Pod, policy *model.Policy) place.Weight {
	ask, pod := v.ask(p, policy)
	if pod == nil {
		return place.Weight{QoS: model.BestEffort}
	}
	return place.Weight{
		QoS: pod.QoS, Request: pod.RequestMilli, Limit: pod.LimitMilli, Shares: ask.Shares,
		Unlimited: ask.Unlimited && ask.Shares > 0, // the policy lifts quotas of pods with a weight
	}
}

// weightCache keeps the weights on nodes until their pods or a policy change.
type weightCache struct {
	mu    sync.RWMutex
	nodes map[string]*nodeWeights
}

// nodeWeights are the weights on one node.
type nodeWeights struct {
	generation, version int64
	policy              *model.Policy
	sums                place.Sums
	weighted            []weighedPod // those that can have a weight

	mu  sync.Mutex
	all []weighedPod // all pods of the node; nil: not needed yet
	old []weighedPod // all pods of an earlier generation
}

type weighedPod struct {
	pod    *corev1.Pod // such an object never changes
	weight place.Weight
}

// find returns the weight of a pod that is in a list, most probably at this index.
func find(list []weighedPod, p *corev1.Pod, index int) (place.Weight, bool) {
	if index < len(list) && list[index].pod == p {
		return list[index].weight, true
	}
	for i := range list {
		if list[i].pod == p {
			return list[i].weight, true
		}
	}
	return place.Weight{}, false
}

// weightsOn returns the weights on a node. A pod without a weight counts by its request alone, which is in the node's
// sum, because to convert each pod costs more than anything else here.
func (v *view) weightsOn(info fwk.NodeInfo) *nodeWeights {
	name := info.Node().Name
	v.weights.mu.RLock()
	old := v.weights.nodes[name]
	v.weights.mu.RUnlock()
	if old != nil && old.generation == info.GetGeneration() && old.version == v.version.Load() {
		return old
	}
	policy, version := v.policyOf(name)
	next := &nodeWeights{generation: info.GetGeneration(), version: version, policy: policy}
	var known []weighedPod
	if old != nil && old.version == version {
		known, next.old = old.weighted, old.known()
	}
	plain := info.GetRequested().GetMilliCPU()
	byPolicy := givesWeights(policy)
	for _, i := range info.GetPods() {
		p := i.GetPod()
		if !byPolicy && !asksWeight(p) {
			continue
		}
		weight, found := find(known, p, len(next.weighted))
		if !found {
			weight = v.weightOf(p, policy)
		}
		next.weighted = append(next.weighted, weighedPod{p, weight})
		if weight.Shares > 0 {
			next.sums, plain = next.sums.Add(&weight), plain-weight.Request
		}
	}
	next.sums = next.sums.Add(&place.Weight{QoS: model.Burstable, Request: max(plain, 0)})
	v.weights.mu.Lock()
	v.weights.nodes[name] = next
	v.weights.mu.Unlock()
	return next
}

// known returns all pods of the newest generation of which they were needed.
func (n *nodeWeights) known() []weighedPod {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all != nil {
		return n.all
	}
	return n.old
}

// pods returns the weights of all pods of a node.
func (n *nodeWeights) pods(v *view, info fwk.NodeInfo) []place.Weight {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := info.GetPods()
	if n.all == nil {
		n.all = make([]weighedPod, 0, len(pods))
		for i, of := range pods {
			p := of.GetPod()
			weight, found := find(n.old, p, i)
			if !found {
				weight = v.weightOf(p, n.policy)
			}
			n.all = append(n.all, weighedPod{p, weight})
		}
		n.old = nil
	}
	weights := make([]place.Weight, 0, len(pods))
	for i := range n.all {
		weights = append(weights, n.all[i].weight)
	}
	return weights
}

// keep drops the weights of nodes that are gone.
func (c *weightCache) keep(nodes []*corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keepNodes(c.nodes, nodes)
}
