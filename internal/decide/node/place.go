package node

import (
	"slices"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/model"
)

// Placing is what of the last round places containers that the runtime starts or updates. It is never changed.
type Placing struct {
	V2       bool // cgroup v2
	Policy   model.Policy
	Kubelet  model.Kubelet
	Topology *model.Topology // nil: the round needed none
	Pods     []*model.Pod    // ordered by UID
	CPUs     *model.CPUPlan  // nil: no pod requests CPUs of its own
}

// Place decides where a container runs from its first instruction on, and how soon the kernel kills it for want of
// memory. It returns false if the runtime's choice stands.
func (p *Placing) Place(c model.RuntimeContainer) (model.Placement, bool) {
	if p == nil || p.Policy.Mode != model.ModeEnforce {
		return model.Placement{}, false
	}
	pod := model.FindPod(p.Pods, c.PodUID) // nil: the API has not shown it yet
	placement, ok := p.where(pod, c)
	if pod != nil && !c.Update {
		placement.OOMScore = memory.OOMScore(pod, &p.Policy, c.OOMScore)
	}
	return placement, ok || placement.OOMScore != 0
}

// Awaits reports whether a container must not run before a round has written the files of its pod: Waterline sets
// limits of the pod, or the API has not shown it yet, and then this is not known. Programs read the limits of their
// container once, at their start.
func (p *Placing) Awaits(c model.RuntimeContainer) bool {
	if p == nil || p.Policy.Mode != model.ModeEnforce {
		return false
	}
	pod := model.FindPod(p.Pods, c.PodUID)
	if pod == nil {
		return !c.Static
	}
	return pod.Grant != (model.Grant{}) ||
		slices.ContainsFunc(pod.Containers, func(c model.Container) bool { return c.Grant != (model.Grant{}) })
}

// Knows reports whether the API has shown a pod.
func (p *Placing) Knows(uid string) bool { return p != nil && model.FindPod(p.Pods, uid) != nil }

// where returns on which CPUs a container runs; false if the runtime's choice stands.
func (p *Placing) where(pod *model.Pod, c model.RuntimeContainer) (model.Placement, bool) {
	if p.CPUs == nil || p.unbound(pod) {
		// An old container's settings may name CPUs that its pod once had. Under policy static they are the kubelet's.
		if !c.Update || c.CPUs == "" || p.Kubelet.StaticCPUs || p.Topology == nil {
			return model.Placement{}, false
		}
		return model.Placement{CPUs: p.Topology.Online().String()}, true
	}
	if slices.Contains(p.CPUs.Left, c.PodUID) {
		return model.Placement{}, false
	}
	if !c.Update && c.CPUs != "" && !p.Kubelet.StaticCPUs {
		// Another plugin has chosen. The runtime refuses to create a container whose CPUs two plugins set. The next round
		// writes the list once the container is there.
		return model.Placement{}, false
	}
	placement := model.Placement{CPUs: cpuset.Of(p.CPUs, pod, c.Name).String()}
	own := false
	for _, o := range p.CPUs.Own {
		if o.UID != c.PodUID {
			continue
		}
		own = true
		if (o.Container == "" || o.Container == c.Name) && !c.Update { // memory in use is not moved
			placement.Mems = o.Memory.String()
		}
	}
	switch {
	case own, c.Update && c.CPUs != "":
		return placement, true
	case p.V2, !p.CPUs.Narrow():
		return model.Placement{}, false // on v2 the list of the pod's cgroup binds the container, and goes with the pod
	}
	return placement, true
}

// unbound reports whether a pod may run on all CPUs: no pod has exclusive CPUs, and the pod is not batch on fewer CPUs.
func (p *Placing) unbound(pod *model.Pod) bool {
	batch := pod != nil && pod.Class == model.ClassBE && !p.CPUs.Batch.Empty()
	return len(p.CPUs.Own) == 0 && !p.CPUs.Narrow() && !batch
}

// CPUsOf returns the CPUs that a container runs on by a plan.
func CPUsOf(plan *model.CPUPlan, pod *model.Pod, container string) model.CPUSet {
	return cpuset.Of(plan, pod, container)
}
