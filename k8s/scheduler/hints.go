package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Hints tell the scheduler whether an event is worth another attempt with a pod that the plugin refused. What reports,
// policies and agents change, wakes pods through the view.

func when(helps bool) (fwk.QueueingHint, error) {
	if helps {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// newNode is the hint of BatchFit for a new node: it helps if it takes batch. Otherwise the view learns that the node
// was refused.
func (b *batchFit) newNode(_ klog.Logger, p *corev1.Pod, _, now any) (fwk.QueueingHint, error) {
	n, ok := now.(*corev1.Node)
	return when(!ok || b.takes(p, n.Name).Code == "")
}

// newNode is the hint of CPUSetFit for a new node: it helps if it has enough free CPUs. Otherwise the view learns that
// the node was refused.
func (c *cpuSetFit) newNode(_ klog.Logger, p *corev1.Pod, _, now any) (fwk.QueueingHint, error) {
	n, ok := now.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	return when(c.has(p, c.view.asks(p), n.Name).Code == "")
}

// leaves is the hint of CPUSetFit for a pod that is deleted, or that did not get its node after all: it helps if it had
// CPUs of its own.
func (c *cpuSetFit) leaves(_ klog.Logger, _ *corev1.Pod, old, _ any) (fwk.QueueingHint, error) {
	p, ok := old.(*corev1.Pod)
	return when(!ok || p.Spec.NodeName != "" && (c.view.mayWantCPUs(p) || c.view.hasCPUs(p)))
}

// leaves is the hint of WeightSpread for a pod that is deleted or that requests less: it helps if it took CPU from
// weights on its node, or would have on the node that preemption made room on.
func (w weightLimit) leaves(_ klog.Logger, _ *corev1.Pod, old, now any) (fwk.QueueingHint, error) {
	p, ok := old.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil
	}
	before := requests(p).CPU
	if after, stays := now.(*corev1.Pod); stays && after != nil {
		return when(p.Spec.NodeName != "" && requests(after).CPU < before)
	}
	counts := p.Spec.NodeName != "" || p.Status.NominatedNodeName != ""
	return when(counts && (before > 0 || asksWeight(p) || w.view.givesWeights()))
}

// grows is the hint of WeightSpread for a node that is new, or has other resources: it helps if it has more CPU.
func (w weightLimit) grows(_ klog.Logger, _ *corev1.Pod, old, now any) (fwk.QueueingHint, error) {
	before, had := old.(*corev1.Node)
	after, has := now.(*corev1.Node)
	if !had || before == nil || !has {
		return fwk.Queue, nil
	}
	return when(after.Status.Allocatable.Cpu().Cmp(*before.Status.Allocatable.Cpu()) > 0)
}
