// Package weight decides how much CPU each pod should win while CPU is short: the shares of pods and, so that a pod's
// weight counts against the whole node, those of the QoS classes.
//
// A pod that asks for batch CPU weighs what it would if that were CPU, in the BestEffort class, where it stands: among batch
// pods that divides what online pods leave. It does not raise the class, so it takes nothing from them.
//
// Where the policy says so, such pods run only when no pod beside them wants to (cpu.idle), and weigh nothing meanwhile; and
// kernels that can be told who is online and who is batch (cpu.bvt_warp_ns) are told.
//
// Only siblings compete. A pod's shares therefore belong on the pod's own cgroup, and a Burstable pod wins something from
// a Guaranteed one only if the burstable class, which is the Guaranteed pod's sibling, weighs more as well.
package weight

import (
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// AgentShares is the least that the agent's own pod weighs. It needs a few milli-cores, but it needs them at once: left
// at 10 shares beside a pod of 262144 it was measured to wait 2.3 s for 0.2 ms of work.
const AgentShares = 102400

// Result is what the rule decided.
type Result struct {
	Settings []model.Setting
	Notices  []model.Notice
	Asked    []bool // for each pod of the node, in its order: it has a weight of its own, by annotation or policy
}

// entry is a pod on its way through the rule.
type entry struct {
	pod    *model.Pod
	base   int64 // what the kubelet gives it
	shares int64 // what it is to weigh
	reason model.Reason
	asked  bool
	batch  bool // it weighs what it asks for in batch CPU
	inside bool // its weight counts in its class only, which does not grow by it
}

// Decide gives every pod that asks for a weight that weight, within what the policy allows, and the classes what their
// pods weigh together.
func Decide(n *model.Node, p *model.Policy) Result {
	r := Result{Asked: make([]bool, len(n.Pods))}
	entries := make([]entry, 0, len(n.Pods))
	for i, pod := range n.Pods {
		if pod.Ended {
			continue
		}
		e := entry{pod: pod, base: kubeletShares(pod)}
		var clamped bool
		e.shares, e.reason, clamped = asked(pod, &p.Weight, p.Pods)
		e.asked = e.shares != 0
		if clamped {
			r.Notices = append(r.Notices, model.Notice{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: e.reason})
		}
		if !e.asked {
			e.shares = e.base
			if grant := pod.Grant.RequestMilli; grant > 0 && pod.QoS == model.BestEffort {
				e.shares, e.reason, e.batch, e.inside = model.MilliCPUToShares(grant), batchReason(grant), true, true
			}
		}
		if pod.Self && e.shares < AgentShares {
			e.shares = AgentShares
			e.reason = model.Reason{Code: model.AgentFirst, Operands: []model.Operand{{Name: "request", Value: e.base, Unit: model.UnitShares}}}
		}
		r.Asked[i] = e.asked
		entries = append(entries, e)
	}
	keepOnline(entries)
	keepCritical(entries)
	classes := raise(n, p, entries)

	r.Settings = make([]model.Setting, 0, max(len(n.Owned), len(entries))+16) // with room for those of other rules: there is no other garbage as large
	r.Settings = append(r.Settings, classes...)
	for i := range entries {
		e := &entries[i]
		group, exists := n.Tree.Pods[e.pod.UID]
		if !exists || e.reason.Code == "" {
			continue
		}
		s := model.Setting{File: model.File{Dir: group.Dir, Knob: model.Shares}, Value: model.Number(e.shares), Reason: e.reason}
		idle := p.Weight.SchedIdle && !n.Tree.NoIdle && e.comesLast()
		if idle {
			r.Settings = append(r.Settings, model.Setting{
				File: model.File{Dir: group.Dir, Knob: model.Idle}, Value: model.Number(1), Reason: model.Reason{Code: model.BatchIdle},
			})
		}
		if ours := (idle || group.Idle) && owns(n, group.Dir); idle && ours || group.Idle && !ours {
			// The kernel refuses a weight with EINVAL while cpu.idle is set, and forgets the weight when it is cleared. So the
			// weight is written before the group becomes idle, which puts the kubelet's on record, and when it is no more.
			s.Deferred = &model.Reason{Code: model.IdleGroup}
		}
		r.Settings = append(r.Settings, s)
	}
	for i := range entries {
		r.Settings = append(r.Settings, containers(n, entries[i].pod)...)
		r.Settings = identify(r.Settings, n, p, &entries[i])
	}
	return r
}

// comesLast reports whether a pod has no weight but the one that goes with its batch CPU. Only pods that the kubelet does not
// resize can be idle, because it must not be refused a weight: a pod of the BestEffort class stays there.
func (e *entry) comesLast() bool {
	return e.batch && e.pod.Class == model.ClassBE && !e.pod.Self && !e.pod.Critical
}

// owns reports whether we made a group idle.
func owns(n *model.Node, dir string) bool {
	return n.Wrote(model.File{Dir: dir, Knob: model.Idle}) != nil
}

// containers divides a batch pod among its containers as they ask for batch CPU: the kubelet leaves each with the least there
// is. It writes nothing in a pod that has but one to divide among.
func containers(n *model.Node, pod *model.Pod) []model.Setting {
	together := 0
	for i := range pod.Containers {
		if !pod.Containers[i].Init {
			together++
		}
	}
	if pod.QoS != model.BestEffort || together < 2 {
		return nil
	}
	group := n.Tree.Pods[pod.UID]
	var settings []model.Setting
	for _, name := range group.Containers {
		c := cgroup.ContainerOf(pod, name)
		if c == nil || c.Grant.RequestMilli == 0 {
			continue
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: group.Dir + "/" + name, Knob: model.Shares},
			Value:  model.Number(model.MilliCPUToShares(c.Grant.RequestMilli)),
			Reason: batchReason(c.Grant.RequestMilli),
		})
	}
	return settings
}

func batchReason(milli int64) model.Reason {
	return model.Reason{Code: model.BatchWeight, Operands: []model.Operand{{Name: "request", Value: milli, Unit: model.UnitMilli}}}
}

// Release returns what a weight that we no longer decide goes back to: what the kubelet computes from the specs of the
// running pods, or where it knows no such pod, what was recorded. It makes no group idle.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	given := model.Reason{Code: model.KubeletValue}
	switch {
	case o.Knob == model.Idle:
		return model.Number(0), given
	case o.Knob == model.Identity:
		return o.Theirs, model.Reason{Code: model.RecordedValue} // the kubelet knows nothing of it
	case o.Dir == n.Tree.Burstable && n.PodsKnown:
		return model.Number(burstableShares(n)), given
	case o.Dir == n.Tree.BestEffort:
		return model.Number(model.MinShares), given
	case pod == nil || pod.Ended:
		return o.Theirs, model.Reason{Code: model.RecordedValue}
	case o.Dir != n.Tree.Pods[pod.UID].Dir:
		return model.Number(model.MinShares), given // only containers of BestEffort pods ever have a weight of ours
	}
	return model.Number(kubeletShares(pod)), given
}

// asked returns the shares that a pod asks for, by its annotation or else by the first rule of the policy that selects
// it, and whether the policy allows less. It returns 0 for a pod that asks for nothing.
func asked(pod *model.Pod, p *model.WeightPolicy, rules []model.PodRule) (int64, model.Reason, bool) {
	shares, code := pod.Annotations.Shares, model.Weighted
	for i := 0; shares == 0 && i < len(rules); i++ {
		if rules[i].Shares != 0 && rules[i].Selects(pod) {
			shares, code = rules[i].Shares, model.WeightedByPolicy
		}
	}
	if shares == 0 {
		return 0, model.Reason{}, false
	}
	limit := p.Max
	for _, ns := range p.Namespaces {
		if ns.Selector.Matches(pod.NamespaceLabels) {
			limit = ns.Max
			break
		}
	}
	operands := []model.Operand{{Name: "asked", Value: shares, Unit: model.UnitShares}}
	if shares > limit {
		operands = append(operands, model.Operand{Name: "max", Value: limit, Unit: model.UnitShares})
		return limit, model.Reason{Code: model.WeightClamped, Operands: operands}, true
	}
	return shares, model.Reason{Code: code, Operands: operands}, false
}

// keepOnline lets a BestEffort pod that is not batch weigh as much as all batch pods together: it asked for nothing, but it is
// not the one that fills up what is left.
func keepOnline(entries []entry) {
	batch := int64(0)
	for _, e := range entries {
		if e.batch {
			batch += e.shares
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.pod.QoS != model.BestEffort || e.pod.Class == model.ClassBE || batch <= e.base || e.asked || e.batch || e.pod.Self || e.pod.Critical {
			continue
		}
		e.shares, e.inside = model.ClampShares(batch), true
		e.reason = model.Reason{Code: model.OnlineKept, Operands: []model.Operand{{Name: "batch", Value: batch, Unit: model.UnitShares}}}
	}
}

// keepCritical lets pods of the system-critical priority classes grow with their class: they keep the fraction of it that
// their requests give them when the kubelet decides alone.
func keepCritical(entries []entry) {
	var base, shares [3]int64
	for _, e := range entries {
		if !e.pod.Self && !e.pod.Critical {
			base[e.pod.QoS] += e.base
			shares[e.pod.QoS] += e.shares
		}
	}
	for i := range entries {
		e := &entries[i]
		grown, from := shares[e.pod.QoS], base[e.pod.QoS]
		if !e.pod.Critical || e.pod.Self || e.asked || grown <= from {
			continue
		}
		e.shares = model.ClampShares(e.base * grown / from)
		e.reason = model.Reason{Code: model.CriticalKept, Operands: []model.Operand{
			{Name: "request", Value: e.base, Unit: model.UnitShares},
			{Name: "class", Value: grown * 1000 / from, Unit: model.UnitTimes},
		}}
	}
}

// raise decides the shares of the QoS classes, and caps what would take CPU from Guaranteed pods.
//
// Everything beside the Guaranteed pods may weigh up to 1024 × allocatable CPUs less what those pods requested: then each
// of them still gets at least its request when all CPUs are wanted. Where more is asked, what is asked beyond the
// requests is scaled down in proportion. A Guaranteed pod's own weight takes nothing from others while its quota holds,
// so only those without a quota count.
func raise(n *model.Node, p *model.Policy, entries []entry) []model.Setting {
	var burstable, bestEffort, guaranteed int64 // sums: shares as decided, shares as decided, requests
	var burstableAsked, bestEffortAsked bool
	for i := range entries {
		e := &entries[i]
		shares := e.shares
		if !e.asked && (e.pod.Self || e.inside) {
			// The agent's weight is for being served first, not for being served much.
			shares = e.base
		}
		switch e.pod.QoS {
		case model.Guaranteed:
			guaranteed += e.base
		case model.Burstable:
			burstable += shares
			burstableAsked = burstableAsked || e.asked
		case model.BestEffort:
			bestEffort += shares
			bestEffortAsked = bestEffortAsked || e.asked
		}
	}
	requests := burstableShares(n)
	var more [2]int64 // what each class asks for beyond what the kubelet gives it
	if burstableAsked && p.Weight.Scope == model.ScopeNode {
		more[0] = max(burstable-requests, 0)
	}
	if bestEffortAsked && p.Weight.Scope == model.ScopeNode && p.Weight.PromoteBestEffort {
		more[1] = max(bestEffort-model.MinShares, 0)
	}
	total := more[0] + more[1]
	for i := range entries {
		if e := &entries[i]; unbounded(e, n, p) {
			total += e.shares - e.base
		}
	}
	spare := max(n.Allocatable.CPU*model.SharesPerCPU/1000-guaranteed-requests, 0)
	capped := !p.Weight.OverrideGuaranteed && total > spare
	scale := func(more int64) int64 {
		if capped {
			return more * spare / total
		}
		return more
	}
	operands := func(asked int64) []model.Operand {
		return []model.Operand{
			{Name: "asked", Value: asked, Unit: model.UnitShares},
			{Name: "allocatable", Value: n.Allocatable.CPU, Unit: model.UnitMilli},
			{Name: "guaranteed", Value: guaranteed, Unit: model.UnitShares},
			{Name: "requests", Value: requests, Unit: model.UnitShares},
		}
	}
	for i := range entries {
		if e := &entries[i]; capped && unbounded(e, n, p) {
			e.reason = model.Reason{Code: model.WeightCapped, Operands: operands(e.shares)}
			e.shares = e.base + scale(e.shares-e.base)
		}
	}
	code := model.SumOfPods
	if capped {
		code = model.WeightCapped
	}
	var classes []model.Setting
	class := func(dir string, value, asked int64) {
		classes = append(classes, model.Setting{
			File:   model.File{Dir: dir, Knob: model.Shares},
			Value:  model.Number(model.ClampShares(value)),
			Reason: model.Reason{Code: code, Operands: operands(asked)},
		})
	}
	if burstableAsked && p.Weight.Scope == model.ScopeNode {
		class(n.Tree.Burstable, requests+scale(more[0]), burstable)
	}
	if more[1] > 0 {
		class(n.Tree.BestEffort, model.MinShares+scale(more[1]), bestEffort)
	}
	return classes
}

// unbounded reports whether a Guaranteed pod with a weight of its own can use more CPU than it requested, because no
// quota stops it.
func unbounded(e *entry, n *model.Node, p *model.Policy) bool {
	if e.pod.QoS != model.Guaranteed || !e.asked || e.shares <= e.base {
		return false
	}
	return e.pod.Annotations.Quota.Or(p.Weight.Quota) == model.QuotaUnlimited || n.Kubelet.Known && !n.Kubelet.CFSQuota
}

// kubeletShares returns what the kubelet writes into the pod's cgroup.
func kubeletShares(pod *model.Pod) int64 {
	if pod.QoS == model.BestEffort {
		return model.MinShares
	}
	return model.MilliCPUToShares(pod.RequestMilli)
}

// burstableShares returns what the kubelet writes into the burstable class: it sums milli-cores before it converts.
func burstableShares(n *model.Node) int64 {
	var milli int64
	for _, pod := range n.Pods {
		if pod.QoS == model.Burstable && !pod.Ended {
			milli += pod.RequestMilli
		}
	}
	return model.MilliCPUToShares(milli)
}
