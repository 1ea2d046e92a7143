package node

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/harm"
	"github.com/waterline-io/waterline/internal/decide/node/interference"
	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/decide/node/suppress"
	"github.com/waterline-io/waterline/internal/model"
)

// observe returns what the rules need observed to decide the next round.
func observe(n *model.Node, policy *model.Policy, plan *model.Plan, state *State) model.Observe {
	off := policy.Mode == model.ModeDisabled
	o := model.Observe{Load: !off, MemoryQoS: !off && policy.Protect.Memory}
	o.Topology = !off && (state.CPUs.Needed(n.Pods, policy) || cpuset.Grants(policy)) ||
		slices.ContainsFunc(n.Owned, func(o model.Owned) bool { return o.Knob == model.Cpuset })
	if off {
		return o
	}
	if policy.Mode == model.ModeEnforce && plan.Suppress != nil && suppress.Running(n.Pods, &n.Tree) &&
		!suppress.Asleep(&plan.Slack.CPU.Use, n.Load.CPUMilli) {
		o.Glances = suppress.Mark(n, policy, &plan.Slack.CPU, &state.Suppress)
		o.Beside = suppress.Beside(n)
	}
	p := perPod{
		n: n, policy: policy,
		binds: state.CPUs.Active(n.Pods, policy),
		sells: slices.ContainsFunc(n.Pods, func(p *model.Pod) bool { return p.Grant != (model.Grant{}) }),
		searches: policy.Protect.Interference &&
			slices.ContainsFunc(n.Pods, func(p *model.Pod) bool { return p.Class == model.ClassBE && !p.Ended }),
	}
	o.Waits, o.WaitsEvery = waits(n, policy, plan, state, p.searches && n.Tree.NoPressure)
	if policy.Suppress.By == model.SuppressOnHarm && n.PodsKnown && n.Load != nil && plan.Slack != nil {
		o.Cycles = harm.Count(&state.Harm)
		if suppress.Running(n.Pods, &n.Tree) {
			o.Services = harm.Targets(n, policy, &state.Harm, suppress.Asleep(&plan.Slack.CPU.Use, n.Load.CPUMilli))
		}
	}
	o.Pods = make([]model.Detail, 0, len(n.Pods))
	for _, pod := range n.Pods {
		if d := p.detail(pod); d != (model.Detail{UID: pod.UID}) {
			o.Pods = append(o.Pods, d)
		}
	}
	return o
}

// waits returns which pods' waiting must be sampled, and how often: for the rule harm, or because interference is
// searched by run-queue delay.
func waits(
	n *model.Node, policy *model.Policy, plan *model.Plan, state *State, searches bool,
) (marks []model.WaitMark, every time.Duration) {
	if !n.PodsKnown || n.Load == nil || plan.Slack == nil {
		return nil, 0
	}
	if policy.Suppress.By == model.SuppressOnHarm {
		quiet := !suppress.Running(n.Pods, &n.Tree) || suppress.Asleep(&plan.Slack.CPU.Use, n.Load.CPUMilli)
		marks, every = harm.Marks(n, &state.Harm, quiet, state.Suppress.Lowers() && policy.Mode == model.ModeEnforce)
	} else if searches {
		marks, every = harm.Marks(n, &harm.State{}, true, false)
	}
	if searches {
		every = min(every, interference.WaitsEvery)
	}
	return marks, every
}

// perPod decides what is observed of single pods.
type perPod struct {
	n        *model.Node
	policy   *model.Policy
	binds    bool // the CPU list of every pod may depend on other pods' CPUs
	sells    bool // a pod requests batch resources
	searches bool // interference is searched
}

func (p *perPod) detail(pod *model.Pod) model.Detail {
	online := pod.Class.Online()
	return model.Detail{
		UID:   pod.UID,
		Files: p.files(pod),
		// The use of online pods is what is left of the whole without the others, so the others must be measured each second.
		Seconds: !online || p.searches && !p.n.Tree.NoPressure,
		CPUs:    cpuset.MayBePinned(pod, &p.n.Kubelet),
		Inside:  quota.From(pod, p.policy),
	}
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
		tree.NoIdentity == "" && policy.Weight.Identity && pod.Class.Online(),
		tree.V2 && memory.Protects(pod, policy),
		cpuset.MayBePinned(pod, &p.n.Kubelet):
		return true
	}
	return slices.ContainsFunc(policy.Pods, func(rule model.PodRule) bool { return rule.Selects(pod) })
}
