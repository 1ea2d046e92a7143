package kube

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// chooseNode returns the node of this name or, if none is named, the only one that takes pods.
func chooseNode(nodes []corev1.Node, name string) (*corev1.Node, error) {
	var names []string
	var takes []*corev1.Node
	for i := range nodes {
		n := &nodes[i]
		if n.Name == name {
			return n, nil
		}
		why := takesNoPods(n)
		if why == "" {
			takes = append(takes, n)
			names = append(names, n.Name)
		} else {
			names = append(names, n.Name+" ("+why+")")
		}
	}
	list := "the nodes are " + strings.Join(names, ", ")
	if len(nodes) == 0 {
		list = "the cluster has no nodes"
	}
	switch {
	case name != "":
		return nil, fmt.Errorf("there is no node %s: %s", name, list)
	case len(takes) == 0:
		return nil, fmt.Errorf("no node takes pods: %s", list)
	case len(takes) > 1:
		return nil, fmt.Errorf("%d nodes take pods; choose one with --node: %s", len(takes), list)
	}
	return takes[0], nil
}

// takesNoPods says why a node takes no ordinary pod; "" if it does.
func takesNoPods(n *corev1.Node) string {
	for _, taint := range n.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule {
			return "taint " + taint.ToString()
		}
	}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	switch {
	case n.Spec.Unschedulable:
		return "cordoned"
	case !ready:
		return "not ready"
	}
	return ""
}

// describeNode says in one line what the figures were measured on.
func describeNode(n *corev1.Node) string {
	i := n.Status.NodeInfo
	return fmt.Sprintf("node of %d × %s CPU, %.1f GiB, Linux %s, %s, kubelet %s",
		n.Status.Capacity.Cpu().Value(), i.Architecture, float64(n.Status.Capacity.Memory().Value())/(1<<30), i.KernelVersion,
		i.ContainerRuntimeVersion, i.KubeletVersion)
}

// maxThreads is from where on x264 makes little of more threads with a picture of this size.
const maxThreads = 16

// size returns how many threads each job's encoder has on a number of CPUs, and how many jobs, an even number, want four
// times as much CPU as there is: the weighted half alone can use all of it.
func size(cpus float64) (threads, jobs int) {
	threads = max(min(int(math.Ceil(cpus)), maxThreads), 1)
	return threads, 2 * max(int(math.Ceil(2*cpus/float64(threads))), 2)
}
