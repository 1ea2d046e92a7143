package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// batchFit keeps batch pods off nodes whose agent is gone or that take no batch at present, and prefers those with room
// for as long as the pod runs.
type batchFit struct {
	nodeScores
	view     *view
	settings place.Settings
	sold     map[corev1.ResourceName]bool
	loads    loads

	last place.Pod // the pod that was scored last
	kind int64     // number of that pod's requests; pods that follow each other often have equal ones
}

var (
	_ fwk.PreFilterPlugin   = (*batchFit)(nil)
	_ fwk.FilterPlugin      = (*batchFit)(nil)
	_ fwk.PreScorePlugin    = (*batchFit)(nil)
	_ fwk.ScorePlugin       = (*batchFit)(nil)
	_ fwk.ScoreExtensions   = (*batchFit)(nil)
	_ fwk.EnqueueExtensions = (*batchFit)(nil)
	_ fwk.SignPlugin        = (*batchFit)(nil)
)

func newBatchFit(v *view, args BatchFitArgs, _ fwk.Handle) (fwk.Plugin, error) {
	s, err := args.settings()
	return &batchFit{view: v, settings: s, sold: soldNames(), loads: newLoads(v)}, err
}

// Name returns the plugin's name.
func (b *batchFit) Name() string { return BatchFitName }

const batchKey fwk.StateKey = "waterline/" + BatchFitName

// PreFilter skips pods that are not batch.
func (b *batchFit) PreFilter(
	_ context.Context, cycle fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if !isBatch(p) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	write(cycle, batchKey, podOf(p))
	b.view.again(p, func(w *waiter) { w.noBatch = nodeSet{} })
	b.loads.refresh(b.view, &b.settings)
	return nil, nil
}

// PreFilterExtensions returns nil: other pods of a node do not matter.
func (b *batchFit) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses nodes that take no batch. Of a node that took batch when the attempt began, it takes no lock.
func (b *batchFit) Filter(_ context.Context, _ fwk.CycleState, p *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if known := b.loads.scored.known(info); known != nil && known.batch {
		return nil
	}
	if why := b.takes(p, info.Node().Name); why.Code != "" {
		return refuse(BatchFitName, fwk.UnschedulableAndUnresolvable, why)
	}
	return nil
}

// takes returns why a node takes no batch. The view remembers a pod that is refused.
func (b *batchFit) takes(p *corev1.Pod, node string) place.Reason {
	if b.judge(node).Code == "" {
		return place.Reason{}
	}
	b.view.refused(p, func(w *waiter) {
		w.noBatch.add(node)
		w.batch = &b.settings
	})
	// A report that changed before the pod was remembered would not wake it.
	return b.judge(node)
}

func (b *batchFit) judge(node string) place.Reason {
	b.view.mu.Lock()
	defer b.view.mu.Unlock()
	return b.view.batchReason(node, b.view.reports[node], &b.settings)
}

// PreScore scores the nodes by the room that they will have. It skips pods that are not batch.
func (b *batchFit) PreScore(_ context.Context, cycle fwk.CycleState, _ *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	pod, status := read[*place.Pod](cycle, batchKey)
	if status != nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if *pod != b.last {
		b.last = *pod
		b.kind++
	}
	b.begin(nodes)
	for i, info := range nodes {
		known := b.loads.of(info, &b.settings)
		if known.kind != b.kind || known.generation != info.GetGeneration() {
			known.kind, known.generation, known.batchScore = b.kind, info.GetGeneration(), b.score(info, pod)
		}
		b.scores[i] = known.batchScore
	}
	return nil
}

// score computes the score of a node. It reads the requests of the node's pods, the most expensive step of PreScore.
func (b *batchFit) score(info fwk.NodeInfo, pod *place.Pod) int64 {
	var n place.Node
	if known := b.loads.nodes[info.Node().Name]; known != nil {
		n = known.node
	}
	nodeOf(info, &n)
	n.Sold = soldOn(info, b.sold)
	score, _ := place.BatchScore(&n, pod, &b.settings)
	return score
}

// EventsToRegister returns the event of a new node. Changes of reports and agents wake pods through the view.
func (b *batchFit) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: b.newNode},
	}, nil
}

// SignPod refuses to sign batch pods: their nodes' state changes by itself.
func (b *batchFit) SignPod(_ context.Context, p *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if isBatch(p) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "batch pods are not scheduled by signature")
	}
	return nil, nil
}
