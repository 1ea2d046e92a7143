// Package weight decides the CPU weights of pods, and that of the Burstable class, so that a pod's weight counts
// against all pods of the node.
//
// Only siblings compete for CPU. A pod's shares therefore belong on the pod's own cgroup. A Burstable pod takes CPU
// from a Guaranteed pod only if the burstable class, which is the sibling of the Guaranteed pod, has a higher weight
// as well.
//
// A pod that requests batch CPU gets the weight of the same amount of CPU, within the BestEffort class. Batch pods
// thus divide what online pods leave. Their weights do not raise the class, so they take nothing from other classes.
//
// By policy, batch pods run only when no sibling wants to (cpu.idle), without a weight in that state. On kernels with
// group identities (cpu.bvt_warp_ns), the rule also marks pods as online or batch.
package weight

import (
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// AgentShares is the minimum weight of the agent's own pod. It needs only a few milli-cores, but immediately: with 10
// shares beside a pod of 262144 shares, it was measured to wait 2.3 s for 0.2 ms of work.
const AgentShares = 102400

// Result is the result of the rule.
type Result struct {
	Settings []model.Setting
	Notices  []model.Notice
	Weighted []bool // one entry per pod of the node: it has a weight by annotation or policy
}

// entry is the intermediate result for one pod.
type entry struct {
	pod      *model.Pod
	base     int64         // weight that the kubelet sets
	shares   int64         // decided weight
	reason   *model.Reason // of that weight; nil: the kubelet's stands
	weighted bool          // it requests a weight
	batch    bool          // its weight follows from its batch CPU request
}

// Decide sets the weight that each pod requests, within the limits of the policy, and gives the Burstable class the sum
// of the weights of its pods.
func Decide(n *model.Node, p *model.Policy) Result {
	r := Result{Weighted: make([]bool, len(n.Pods))}
	var whys model.Reasons
	entries := make([]entry, 0, len(n.Pods))
	for i, pod := range n.Pods {
		if pod.Ended {
			continue
		}
		e := entry{pod: pod, base: kubeletShares(pod)}
		var clamped bool
		e.shares, e.reason, clamped = requested(pod, &p.Weight, p.Pods)
		e.weighted = e.shares != 0
		if pod.PodLevelCPU && e.shares > e.base {
			e.shares, e.reason, clamped = e.base, podLevelReason(e.shares, e.base), true
		}
		if clamped {
			r.Notices = append(r.Notices, model.Notice{
				UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: *e.reason,
			})
		}
		if !e.weighted {
			e.shares = e.base
			if grant := pod.Grant.RequestMilli; grant > 0 && pod.QoS == model.BestEffort {
				e.shares, e.reason, e.batch = model.MilliCPUToShares(grant), whys.Of(batchReason(grant)), true
			}
		}
		if pod.Self && e.shares < AgentShares {
			e.shares = AgentShares
			e.reason = &model.Reason{
				Code:     model.AgentFirst,
				Operands: []model.Operand{{Name: "request", Value: e.base, Unit: model.UnitShares}},
			}
		}
		r.Weighted[i] = e.weighted
		entries = append(entries, e)
	}
	boundSiblings(n, p, entries)
	weighOnline(entries)
	scaleCritical(entries)
	classes := raise(n, p, entries)

	// Reserve room for the settings of the other rules: this slice is the largest garbage of a round.
	r.Settings = make([]model.Setting, 0, max(len(n.Owned), len(entries))+8)
	r.Settings = append(r.Settings, classes...)
	for i := range entries {
		e := &entries[i]
		group, exists := n.Tree.Pods[e.pod.UID]
		if !exists || e.reason == nil {
			continue
		}
		s := model.Setting{
			File: model.File{Dir: group.Dir, Knob: model.Shares}, Value: model.Number(e.shares), Reason: *e.reason,
		}
		idle := p.Weight.Batch == model.BatchByIdle && !n.Tree.NoIdle && e.comesLast()
		if idle {
			r.Settings = append(r.Settings, model.Setting{
				File:  model.File{Dir: group.Dir, Knob: model.Idle},
				Value: model.Number(1), Reason: model.Reason{Code: model.BatchIdle},
			})
		}
		if ours := (idle || group.Idle) && owns(n, group.Dir); idle && ours || group.Idle && !ours {
			// The kernel refuses a weight with EINVAL while cpu.idle is set, and resets the weight when cpu.idle is
			// cleared. So the weight is written before the group becomes idle, which also records the kubelet's
			// weight, and again after the group is no longer idle.
			s.Deferred = &model.Reason{Code: model.IdleGroup}
		}
		r.Settings = append(r.Settings, s)
	}
	for i := range entries {
		r.Settings = containers(r.Settings, n, entries[i].pod, &whys)
		r.Settings = identify(r.Settings, n, p, &entries[i])
	}
	return r
}

// comesLast reports whether the pod is batch and its only weight is that of its batch CPU request. Only pods that the
// kubelet never resizes may be idle, because the kernel would refuse the kubelet's weight. Pods of the BestEffort
// class qualify: their class never changes.
func (e *entry) comesLast() bool {
	return e.batch && e.pod.Class == model.ClassBE && !e.pod.Self && !e.pod.Critical
}

// owns reports whether Waterline made a group idle.
func owns(n *model.Node, dir string) bool {
	return n.Wrote(model.File{Dir: dir, Knob: model.Idle}) != nil
}

// containers appends the weights of a batch pod's containers by their batch CPU requests, because the kubelet gives
// each the minimum. A pod with only one container to weight needs none.
func containers(settings []model.Setting, n *model.Node, pod *model.Pod, whys *model.Reasons) []model.Setting {
	together := 0
	for i := range pod.Containers {
		if !pod.Containers[i].Init {
			together++
		}
	}
	if pod.QoS != model.BestEffort || together < 2 {
		return settings
	}
	group := n.Tree.Pods[pod.UID]
	for j, name := range group.Containers {
		c := cgroup.ContainerOf(pod, name)
		if c == nil || c.Grant.RequestMilli == 0 {
			continue
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: group.Path(j), Knob: model.Shares},
			Value:  model.Number(model.MilliCPUToShares(c.Grant.RequestMilli)),
			Reason: *whys.Of(batchReason(c.Grant.RequestMilli)),
		})
	}
	return settings
}

// batchReason returns why a batch pod or container has a weight: the CPU that it requests.
func batchReason(milli int64) (model.Code, model.Operand) {
	return model.BatchWeight, model.Operand{Name: "request", Value: milli, Unit: model.UnitMilli}
}

// Release returns the value that an owned weight returns to: what the kubelet computes from the specs of the running
// pods, or the recorded value if the kubelet knows no such pod. cpu.idle returns to 0.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	given := model.Reason{Code: model.KubeletValue}
	switch {
	case o.Knob == model.Idle:
		return model.Number(0), given
	case o.Knob == model.Identity:
		return o.Theirs, model.Reason{Code: model.RecordedValue} // the kubelet does not know this file
	case o.Dir == n.Tree.Burstable && n.PodsKnown:
		return model.Number(burstableShares(n)), given
	case pod == nil || pod.Ended:
		return o.Theirs, model.Reason{Code: model.RecordedValue}
	case o.Dir != n.Tree.Pods[pod.UID].Dir:
		return model.Number(model.MinShares), given // Waterline weights containers of BestEffort pods only
	}
	return model.Number(kubeletShares(pod)), given
}

// Requested returns the shares that a pod requests within the limits of a policy; 0 without a weight of its own. The
// caps that follow from the node's other pods are not applied.
func Requested(pod *model.Pod, p *model.Policy) int64 {
	shares, _, _ := requested(pod, &p.Weight, p.Pods)
	if pod.PodLevelCPU && shares > 0 {
		return min(shares, kubeletShares(pod))
	}
	return shares
}

// requested returns the shares that a pod requests by its annotation, or else the shares of the first policy rule that
// selects it, and whether the policy's maximum limits them. It returns 0 for a pod without either.
func requested(pod *model.Pod, p *model.WeightPolicy, rules []model.PodRule) (int64, *model.Reason, bool) {
	shares, code := pod.Annotations.Shares, model.Weighted
	for i := 0; shares == 0 && i < len(rules); i++ {
		if rules[i].Shares != 0 && rules[i].Selects(pod) {
			shares, code = rules[i].Shares, model.WeightedByPolicy
		}
	}
	if shares == 0 {
		return 0, nil, false
	}
	limit := p.Max
	if limit == 0 && code == model.WeightedByPolicy {
		limit = model.MaxShares // the operator chose it
	}
	if limit == 0 {
		limit = own(pod)
	}
	for _, ns := range p.Namespaces {
		if ns.Selector.Matches(pod.NamespaceLabels) {
			limit = ns.Max
			break
		}
	}
	operands := []model.Operand{{Name: "requested", Value: shares, Unit: model.UnitShares}}
	if shares > limit {
		operands = append(operands, model.Operand{Name: "max", Value: limit, Unit: model.UnitShares})
		return limit, &model.Reason{Code: model.WeightClamped, Operands: operands}, true
	}
	return shares, &model.Reason{Code: code, Operands: operands}, false
}

// podLevelReason returns why a pod with a CPU request in spec.resources has no higher weight than the kubelet gives it.
// From 1.36 on, the kubelet reads the weight of the pod's cgroup back and publishes it as the pod's request in
// status.resources (feature gate InPlacePodLevelResourcesVerticalScaling), and the scheduler counts the higher of that
// and the request in the spec: 262144 shares were seen to fill a node with 256 CPUs. It does not do so for pods without
// spec.resources.
func podLevelReason(shares, base int64) *model.Reason {
	return &model.Reason{
		Code: model.WeightPodLevel,
		Operands: []model.Operand{
			{Name: "requested", Value: shares, Unit: model.UnitShares}, {Name: "request", Value: base, Unit: model.UnitShares},
		},
		Fix: "set the CPU requests of the containers instead of spec.resources",
	}
}

// own returns the highest weight that a pod may request where the policy names none: as much as it may use, by its CPU
// limit, or as much as it requests. More would take from other pods what nobody granted.
func own(pod *model.Pod) int64 {
	g := &pod.Grant
	return model.MilliCPUToShares(max(pod.RequestMilli, pod.LimitMilli, g.RequestMilli, g.LimitMilli))
}

// boundSiblings caps the weights of Burstable pods, so that the Burstable pods without a weight still get the CPU that
// they request when all CPUs are busy: all pods of the class together may have 1024 × allocatable CPUs minus the
// requests of Guaranteed pods. Beyond that the weights are scaled down, in proportion, but to no less than the
// kubelet's value. Beside weighted pods alone nothing is capped: each of them chose its weight. The agent and
// system-critical pods have weights that grow with the others.
func boundSiblings(n *model.Node, p *model.Policy, entries []entry) {
	var guaranteed, plain, critical, base, weights int64
	var weighted []*entry
	for i := range entries {
		e := &entries[i]
		switch {
		case e.pod.QoS == model.Guaranteed:
			guaranteed += e.base
		case e.pod.QoS != model.Burstable || e.pod.Self:
		case e.weighted && e.shares > e.base:
			weighted = append(weighted, e)
			base, weights = base+e.base, weights+e.shares
		case e.weighted:
			base, plain = base+e.base, plain+e.shares
		case e.pod.Critical:
			critical += e.base
		default:
			base, plain = base+e.base, plain+e.base
		}
	}
	if p.Weight.OverrideGuaranteed || plain == 0 || len(weighted) == 0 {
		return
	}
	all := max(n.Allocatable.CPU*model.SharesPerCPU/1000-guaranteed, 0)
	room := max(all*base/(base+critical)-plain, 0)
	if weights <= room {
		return
	}
	operands := func(requested int64) []model.Operand {
		return []model.Operand{
			{Name: "requested", Value: requested, Unit: model.UnitShares},
			{Name: "allocatable", Value: n.Allocatable.CPU, Unit: model.UnitMilli},
			{Name: "guaranteed", Value: guaranteed, Unit: model.UnitShares},
			{Name: "siblings", Value: plain + critical, Unit: model.UnitShares},
		}
	}
	left, sum := room, weights // of the pods that are not at their least yet
	for again := true; again; {
		again = false
		for i, e := range weighted {
			if e != nil && e.shares*left <= e.base*sum {
				left, sum = max(left-e.base, 0), sum-e.shares
				e.reason = &model.Reason{Code: model.WeightCapped, Operands: operands(e.shares)}
				e.shares, weighted[i], again = e.base, nil, true
			}
		}
	}
	for _, e := range weighted {
		if e != nil {
			e.reason = &model.Reason{Code: model.WeightCapped, Operands: operands(e.shares)}
			e.shares = e.shares * left / sum
		}
	}
}

// weighOnline gives a BestEffort pod that is not batch the weight of all batch pods together. It requested no CPU, but
// it should not lose against pods that only fill up the node.
func weighOnline(entries []entry) {
	batch := int64(0)
	for _, e := range entries {
		if e.batch {
			batch += e.shares
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.pod.QoS != model.BestEffort || e.pod.Class == model.ClassBE || batch <= e.base ||
			e.weighted || e.batch || e.pod.Self || e.pod.Critical {
			continue
		}
		e.shares = model.ClampShares(batch)
		e.reason = &model.Reason{
			Code: model.OnlineBestEffort, Operands: []model.Operand{{Name: "batch", Value: batch, Unit: model.UnitShares}},
		}
	}
}

// scaleCritical scales the weights of system-critical pods with their class. They keep the fraction of the class that
// their requests give them when only the kubelet sets weights.
func scaleCritical(entries []entry) {
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
		if !e.pod.Critical || e.pod.Self || e.weighted || grown <= from {
			continue
		}
		if e.pod.PodLevelCPU {
			continue // see podLevelReason
		}
		e.shares = model.ClampShares(e.base * grown / from)
		e.reason = &model.Reason{Code: model.CriticalPreserved, Operands: []model.Operand{
			{Name: "request", Value: e.base, Unit: model.UnitShares},
			{Name: "class", Value: grown * 1000 / from, Unit: model.UnitTimes},
		}}
	}
}

// raise decides the shares of the Burstable class, and caps weights that would take CPU from Guaranteed pods.
//
// All siblings of the Guaranteed pods together may have 1024 × allocatable CPUs minus the requests of the Guaranteed
// pods. Then each Guaranteed pod still gets its request when all CPUs are busy. If the siblings would have more, the
// part beyond the requests is scaled down proportionally. While its quota is in force, the weight of a Guaranteed pod
// takes nothing from others, so only Guaranteed pods without a quota count.
func raise(n *model.Node, p *model.Policy, entries []entry) []model.Setting {
	var burstable, guaranteed int64 // shares as decided, requests
	raised := false
	for i := range entries {
		e := &entries[i]
		shares := e.shares
		if !e.weighted && e.pod.Self {
			// The agent's high weight is for latency, not for throughput.
			shares = e.base
		}
		switch e.pod.QoS {
		case model.Guaranteed:
			guaranteed += e.base
		case model.Burstable:
			burstable += shares
			raised = raised || e.weighted && p.Weight.Scope == model.ScopeNode
		}
	}
	requests := burstableShares(n)
	var more int64 // part of the class beyond the kubelet's value
	if raised {
		more = max(burstable-requests, 0)
	}
	total := more
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
	operands := func(requested int64) []model.Operand {
		return []model.Operand{
			{Name: "requested", Value: requested, Unit: model.UnitShares},
			{Name: "allocatable", Value: n.Allocatable.CPU, Unit: model.UnitMilli},
			{Name: "guaranteed", Value: guaranteed, Unit: model.UnitShares},
			{Name: "requests", Value: requests, Unit: model.UnitShares},
		}
	}
	for i := range entries {
		if e := &entries[i]; capped && unbounded(e, n, p) {
			e.reason = &model.Reason{Code: model.WeightCapped, Operands: operands(e.shares)}
			e.shares = e.base + scale(e.shares-e.base)
		}
	}
	if !raised {
		return nil
	}
	code := model.SumOfPods
	if capped {
		code = model.WeightCapped
	}
	return []model.Setting{{
		File:   model.File{Dir: n.Tree.Burstable, Knob: model.Shares},
		Value:  model.Number(model.ClampShares(requests + scale(more))),
		Reason: model.Reason{Code: code, Operands: operands(burstable)},
	}}
}

// unbounded reports whether a Guaranteed pod with its own weight can use more CPU than its request, because it has no
// quota.
func unbounded(e *entry, n *model.Node, p *model.Policy) bool {
	if e.pod.QoS != model.Guaranteed || !e.weighted || e.shares <= e.base {
		return false
	}
	return e.pod.Annotations.Quota.Or(p.Weight.Quota) == model.QuotaUnlimited || n.Kubelet.Known && !n.Kubelet.CFSQuota
}

// kubeletShares returns the value that the kubelet writes to the pod's cgroup.
func kubeletShares(pod *model.Pod) int64 {
	if pod.QoS == model.BestEffort {
		return model.MinShares
	}
	return model.MilliCPUToShares(pod.RequestMilli)
}

// burstableShares returns the value that the kubelet writes to the burstable class. The kubelet sums milli-cores
// before the conversion.
func burstableShares(n *model.Node) int64 {
	var milli int64
	for _, pod := range n.Pods {
		if pod.QoS == model.Burstable && !pod.Ended {
			milli += pod.RequestMilli
		}
	}
	return model.MilliCPUToShares(milli)
}
