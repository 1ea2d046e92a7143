// Package quota decides the CFS quotas of pods and their containers. It lifts them from pods that are to be limited by
// their weight only, which makes the kubelet's node-wide switch (cpuCFSQuota: false) unnecessary, and from containers with
// exclusive CPUs, which limit them already. It sets them for batch pods, of whose CPU limits the kubelet knows nothing. And it
// lets online pods exceed theirs for moments, where the node has room for that.
package quota

import (
	"path"
	"slices"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// leastQuota is the least that the kernel takes, in microseconds.
const leastQuota = 1000

// Others is what other rules have decided.
type Others struct {
	Weighted     []bool              // pods that have a weight of their own: one entry for each pod of the node, in its order
	CPUs         *model.CPUPlan      // nil: nobody has CPUs of its own
	Batch        *model.Suppression  // nil: batch is kept to nothing
	Interference *model.Interference // nil: nobody is throttled
	Slack        *model.Slack        // nil: nothing was measured yet
}

// Decide lifts the quota of every pod whose annotation says so, of weighted pods where the policy says so, and as the
// kubelet does since 1.33, of containers with exclusive CPUs and the pods they are in. To other pods that ask for batch CPU,
// and to their containers, it gives the quota of the CPU limit that they came with, if they had one. To online pods that the
// kubelet limits it gives bursts where the policy says so.
//
// A batch pod that may use only a part of what all batch may use now, or that is throttled, is kept to that before anything else.
//
// It appends to settings, and returns the result.
func Decide(settings []model.Setting, n *model.Node, p *model.Policy, o Others, s State) ([]model.Setting, State) {
	s = s.follow(n, o.Slack).raise(n, p)
	for i, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		if part, why, kept := o.keeps(pod.UID); kept {
			settings = append(settings, suppress(n, pod, group, part, why)...)
			continue
		}
		lift := func(dir string, code model.Code) {
			settings = append(settings, model.Setting{
				File:   model.File{Dir: dir, Knob: model.Quota},
				Value:  model.Number(model.Unlimited),
				Reason: model.Reason{Code: code, Operands: []model.Operand{{Name: "limit", Value: pod.LimitMilli, Unit: model.UnitMilli}}},
			})
		}
		mode := pod.Annotations.Quota
		if mode == "" && o.Weighted[i] {
			mode = p.Weight.Quota
		}
		if mode == model.QuotaUnlimited {
			lift(group.Dir, model.QuotaLifted)
			for _, name := range group.Containers {
				lift(group.Dir+"/"+name, model.QuotaLifted)
			}
			continue
		}
		own := ownExclusive(o.CPUs, pod.UID)
		if len(own) == 0 || pod.Annotations.Quota == model.QuotaKubelet {
			settings = append(settings, batch(n, pod, group)...)
			if len(own) == 0 {
				settings = burst(settings, n, p, pod, group, &s)
			}
			continue
		}
		lift(group.Dir, model.QuotaNeedless)
		for _, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && slices.ContainsFunc(own, func(o model.OwnCPUs) bool { return o.Container == "" || o.Container == c.Name }) {
				lift(group.Dir+"/"+name, model.QuotaNeedless)
			}
		}
	}
	return settings, s
}

// keeps returns what a batch pod may use in milli-cores, and why; false if it is kept to nothing.
func (o *Others) keeps(uid string) (int64, model.Reason, bool) {
	part, kept := o.Batch.Quota(uid)
	if t := o.Interference.Throttle(uid); t != nil && (!kept || t.Milli < part) {
		return t.Milli, t.Reason(), true
	}
	return part, model.Reason{Code: model.BatchSuppressed, Operands: []model.Operand{{Name: "part", Value: part, Unit: model.UnitMilli}}}, kept
}

// batch limits a pod and its containers to the CPU limits that they came with. Where the kubelet enforces no CPU limits,
// nobody is to have a quota, batch pods neither.
func batch(n *model.Node, pod *model.Pod, group model.PodGroup) []model.Setting {
	if n.Kubelet.Known && !n.Kubelet.CFSQuota {
		return nil
	}
	var settings []model.Setting
	limit := func(dir string, milli, period int64) {
		if milli == 0 {
			return
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.Quota},
			Value:  model.Number(model.MilliCPUToQuota(milli, period)),
			Reason: model.Reason{Code: model.BatchQuota, Operands: []model.Operand{{Name: "limit", Value: milli, Unit: model.UnitMilli}}},
		})
	}
	// The kubelet sets a period of its own together with a quota only: a container's always, that of a pod without CPU limits
	// never (pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod). Until then it is the kernel's.
	limit(group.Dir, pod.Grant.LimitMilli, model.DefaultQuotaPeriod)
	period := int64(model.DefaultQuotaPeriod)
	if n.Kubelet.Known {
		period = n.Kubelet.QuotaPeriod
	}
	for _, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil {
			limit(group.Dir+"/"+name, c.Grant.LimitMilli, period)
		}
	}
	return settings
}

// suppress keeps a batch pod to its part, in milli-cores: the pod, and those of its containers that have a limit of their own,
// which on v1 may not be above the pod's (EINVAL).
//
// Nor could the runtime then start a container with a CPU limit that the kubelet knows, which a pod has that was not made to
// ask for batch CPU. On v1 such a pod itself is kept to no less than the highest of these.
func suppress(n *model.Node, pod *model.Pod, group model.PodGroup, part int64, why model.Reason) []model.Setting {
	period := int64(model.DefaultQuotaPeriod)
	if n.Kubelet.Known {
		period = n.Kubelet.QuotaPeriod
	}
	var settings []model.Setting
	keep := func(dir string, milli, period int64) {
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.Quota},
			Value:  model.Number(max(model.MilliCPUToQuota(milli, period), leastQuota)),
			Reason: why,
		})
	}
	whole, native := part, int64(0)
	for i := range pod.Containers {
		native = max(native, pod.Containers[i].LimitMilli)
	}
	if native > 0 && !n.Tree.V2 {
		whole = max(part, native)
	}
	if limit := max(pod.Grant.LimitMilli, pod.LimitMilli); limit > 0 {
		whole = min(whole, limit)
	}
	podPeriod := int64(model.DefaultQuotaPeriod)
	if pod.LimitMilli > 0 {
		podPeriod = period
	}
	keep(group.Dir, whole, podPeriod)
	for _, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil {
			if limit := max(c.Grant.LimitMilli, c.LimitMilli); limit > 0 {
				keep(group.Dir+"/"+name, min(limit, part), period)
			}
		}
	}
	return settings
}

// ownExclusive returns the exclusive CPUs of a pod and its containers.
func ownExclusive(cpus *model.CPUPlan, uid string) []model.OwnCPUs {
	if cpus == nil {
		return nil
	}
	var own []model.OwnCPUs
	for _, o := range cpus.Own {
		if o.UID == uid && o.Mode == model.CPUExclusive {
			own = append(own, o)
		}
	}
	return own
}

// Release returns what a quota that we no longer decide goes back to: what the kubelet computes from the pod's limits,
// or where that cannot be known, what was recorded. It cannot be known for a pod or container that the API does not show,
// while the kubelet's configuration was not read, and under the kubelet's static CPU policy, which lifts quotas itself. Of bursts
// the kubelet knows nothing, and nobody has any.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	if o.Knob == model.Burst {
		return model.Number(0), model.Reason{Code: model.KubeletValue}
	}
	recorded := model.Reason{Code: model.RecordedValue}
	if pod == nil || pod.Ended || !n.Kubelet.Known || n.Kubelet.StaticCPUs {
		return o.Theirs, recorded
	}
	limit := pod.LimitMilli
	if o.Dir != n.Tree.Pods[pod.UID].Dir {
		c := cgroup.ContainerOf(pod, path.Base(o.Dir))
		if c == nil {
			return o.Theirs, recorded
		}
		limit = c.LimitMilli
	}
	given := model.Reason{Code: model.KubeletValue, Operands: []model.Operand{{Name: "limit", Value: limit, Unit: model.UnitMilli}}}
	if !n.Kubelet.CFSQuota || limit == 0 {
		return model.Number(model.Unlimited), given
	}
	return model.Number(model.MilliCPUToQuota(limit, n.Kubelet.QuotaPeriod)), given
}
