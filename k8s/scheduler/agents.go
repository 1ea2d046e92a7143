package scheduler

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// agents knows which nodes have a ready agent. Only pods in Waterline's namespace count, because any tenant can make a
// pod with the agents' label.
type agents struct {
	pods  map[string]agentPod      // by UID
	ready map[string]int           // ready agents, by node
	last  map[string]time.Duration // when a node's last ready agent went away
	seen  bool                     // some agent was known once

	namespace string
}

type agentPod struct {
	node  string
	ready bool
}

func newAgents(namespace string) agents {
	return agents{
		pods: map[string]agentPod{}, ready: map[string]int{}, last: map[string]time.Duration{}, namespace: namespace,
	}
}

// has reports whether a pod is an agent.
func (a *agents) has(p *corev1.Pod) bool {
	return p.Namespace == a.namespace && p.Labels["app.kubernetes.io/name"] == "waterline-agent"
}

// of returns the state of a node's agent. A node without one counts as if it had gone when the scheduler started.
func (a *agents) of(node string, now time.Duration) place.Agent {
	if a.ready[node] > 0 {
		return place.Agent{}
	}
	return place.Agent{Unknown: !a.seen, Gone: max(now-a.last[node], 1)}
}

// see takes in an agent's pod, and reports whether its node has a ready agent again. ContainersReady counts, which the
// kubelet alone writes: the condition Ready of pods that are well becomes false when a kubelet's Lease arrives late.
func (a *agents) see(p *corev1.Pod, now time.Duration) bool {
	ready := false
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			ready = c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	a.seen = true
	before := a.ready[p.Spec.NodeName]
	a.drop(string(p.UID), now)
	a.pods[string(p.UID)] = agentPod{p.Spec.NodeName, ready}
	if ready {
		a.ready[p.Spec.NodeName]++
	}
	return ready && before == 0
}

// keep forgets nodes that are gone.
func (a *agents) keep(nodes []*corev1.Node) {
	if len(a.last) > 0 {
		keepNodes(a.last, nodes)
	}
}

// keepNodes deletes what a map has of nodes that are gone.
func keepNodes[T any](all map[string]T, nodes []*corev1.Node) {
	names := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		names[n.Name] = true
	}
	maps.DeleteFunc(all, func(name string, _ T) bool { return !names[name] })
}

// drop forgets an agent's pod.
func (a *agents) drop(uid string, now time.Duration) {
	old, known := a.pods[uid]
	if !known {
		return
	}
	delete(a.pods, uid)
	if !old.ready {
		return
	}
	if a.ready[old.node]--; a.ready[old.node] == 0 {
		delete(a.ready, old.node)
		a.last[old.node] = now
	}
}
