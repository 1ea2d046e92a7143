// Package kube finds nodes and makes pods on the cluster that an experiment runs on.
package kube

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ChooseNode returns the node of this name. Without a name it returns the only node that takes pods.
func ChooseNode(nodes []corev1.Node, name string) (*corev1.Node, error) {
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

// takesNoPods returns why a node takes no ordinary pod; "": it does.
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

// DescribeNode returns one line about a node, to stand beside figures.
func DescribeNode(n *corev1.Node) string {
	i := n.Status.NodeInfo
	return fmt.Sprintf("node of %d × %s CPU, %.1f GiB, Linux %s, %s, kubelet %s",
		n.Status.Capacity.Cpu().Value(), i.Architecture, float64(n.Status.Capacity.Memory().Value())/(1<<30), i.KernelVersion,
		i.ContainerRuntimeVersion, i.KubeletVersion)
}
