package agent

import (
	"slices"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	memoryrule "github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/nri"
)

// placing is what of the last round answers the container runtime. It is never changed once stored.
type placing struct {
	version  cgroup.Version
	policy   model.Policy
	kubelet  model.Kubelet
	topology *model.Topology // nil: nothing was decided about CPUs
	pods     []*model.Pod    // ordered by UID
	cpus     *model.CPUPlan  // nil: nobody asks for CPUs
}

// place answers the container runtime from the last plan: where a container is to run from its first instruction on, how soon it
// is killed for want of memory, and where it runs when the runtime writes all of its settings again.
func (a *Agent) place(c nri.Container) (nri.Placement, bool) {
	p := a.placing.Load()
	if p == nil || p.policy.Mode != model.ModeEnforce {
		return nri.Placement{}, false
	}
	return p.answer(c)
}

func (p *placing) answer(c nri.Container) (nri.Placement, bool) {
	pod := model.FindPod(p.pods, c.PodUID) // nil: not known yet
	placement, ok := p.where(pod, c)
	if pod != nil && !c.Update {
		placement.OOMScore = memoryrule.OOMScore(pod, &p.policy, c.OOMScore)
	}
	return placement, ok || placement.OOMScore != 0
}

// anywhere reports whether a pod may run everywhere though some may not: nobody has CPUs alone, and it is not batch.
func (p *placing) anywhere(pod *model.Pod) bool {
	return len(p.cpus.Own) == 0 && p.cpus.Shared == p.cpus.Node && (pod == nil || pod.Class != model.ClassBE || p.cpus.Batch.Empty())
}

// where says where a container of a pod is to run, false if that is the runtime's to say.
func (p *placing) where(pod *model.Pod, c nri.Container) (nri.Placement, bool) {
	if p.cpus == nil || p.anywhere(pod) {
		// CPUs that stand in an old container's settings may be those that its pod once had. Under policy static they are
		// the kubelet's.
		if !c.Update || c.CPUs == "" || p.kubelet.StaticCPUs || p.topology == nil {
			return nri.Placement{}, false
		}
		return nri.Placement{CPUs: p.topology.Online().String()}, true
	}
	if slices.Contains(p.cpus.Left, c.PodUID) {
		return nri.Placement{}, false
	}
	if !c.Update && c.CPUs != "" && !p.kubelet.StaticCPUs {
		// Another plugin has chosen. Two that set the CPUs of one container make the runtime refuse to create it; the loop
		// settles it once the container is there.
		return nri.Placement{}, false
	}
	placement := nri.Placement{CPUs: cpuset.Of(p.cpus, pod, c.Name).String()}
	own := false
	for _, o := range p.cpus.Own {
		if o.UID == c.PodUID {
			own = true
			if (o.Container == "" || o.Container == c.Name) && !c.Update { // memory is not moved while it is in use
				placement.Mems = o.Memory.String()
			}
		}
	}
	switch {
	case own, c.Update && c.CPUs != "":
		return placement, true
	case p.version == cgroup.V2, p.cpus.Shared == p.cpus.Node:
		return nri.Placement{}, false // on v2 its pod's list binds it, and goes with the pod
	}
	return placement, true
}
