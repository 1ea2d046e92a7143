package node

import (
	"cmp"
	"slices"

	"github.com/waterline-io/waterline/internal/decide/node/contention"
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/model"
)

// observe returns what the rules need observed to decide the next round.
func observe(n *model.Node, policy *model.Policy, contends *contention.Result, state *State) model.Observe {
	off := policy.Mode == model.ModeDisabled
	o := model.Observe{Load: !off, MemoryQoS: !off && policy.Protect.Memory}
	o.Topology = !off && (state.CPUs.Needed(n.Pods, policy) || cpuset.Grants(policy)) ||
		slices.ContainsFunc(n.Owned, func(o model.Owned) bool { return o.Knob == model.Cpuset })
	if off {
		return o
	}
	o.Waits, o.WaitsEvery, o.Services = contends.Waits, contends.Every, contends.Services
	p := perPod{
		n: n, policy: policy, contends: contends,
		binds: state.CPUs.Active(n.Pods, policy),
		sells: slices.ContainsFunc(n.Pods, func(p *model.Pod) bool { return p.Grant != (model.Grant{}) }),
	}
	o.Pods = make([]model.Detail, 0, len(n.Pods))
	for _, pod := range n.Pods {
		if d := p.detail(pod); d != (model.Detail{UID: pod.UID}) {
			o.Pods = append(o.Pods, d)
		}
	}
	return o
}

// perPod decides what is observed of single pods.
type perPod struct {
	n        *model.Node
	policy   *model.Policy
	contends *contention.Result
	binds    bool // the CPU list of every pod may depend on other pods' CPUs
	sells    bool // a pod requests batch resources
}

func (p *perPod) detail(pod *model.Pod) model.Detail {
	d := model.Detail{
		UID:   pod.UID,
		Files: p.files(pod),
		// The use of online pods is what is left of the whole without the others, so the others must be measured each second.
		Seconds: !pod.Class.Online() || p.contends.Seconds,
		CPUs:    cpuset.MayBePinned(pod, &p.n.Kubelet),
		Inside:  quota.From(pod, p.policy),
	}
	if len(p.contends.Waits) > 0 && !p.contends.Batch.Quiet && pod.Class.Online() && !pod.Ended {
		// A pod that its own quota makes wait is not harmed by batch.
		if from := quota.Throttles(p.n, pod); from > 0 {
			from = max(from, contention.LeastUse)
			d.Inside = min(cmp.Or(d.Inside, from), from)
		}
	}
	return d
}

// files reports whether a plan may name files in the cgroup of a pod or of its containers.
func (p *perPod) files(pod *model.Pod) bool {
	policy, tree := p.policy, &p.n.Tree
	if pod.Ended {
		return false
	}
	switch {
	case p.binds,
		p.sells && pod.QoS == model.BestEffort,
		pod.Annotations.Shares != 0, pod.Annotations.Quota != "", pod.Grant != (model.Grant{}),
		pod.Self, pod.Critical,
		pod.Class == model.ClassBE && (policy.Suppress.On() || policy.Protect.Interference),
		quota.MayBurst(pod, policy),
		tree.NoIdentity == "" && policy.Weight.Batch == model.BatchByIdentity && pod.Class.Online(),
		tree.V2 && memory.Protects(pod, policy),
		cpuset.MayBePinned(pod, &p.n.Kubelet):
		return true
	}
	return slices.ContainsFunc(policy.Pods, func(rule model.PodRule) bool { return rule.Selects(pod) })
}
