// Package quota decides the CFS quotas of pods and their containers:
//
//   - It lifts the quotas of pods that should be limited by their weight only. This makes the kubelet's node-wide
//     switch (cpuCFSQuota: false) unnecessary.
//   - It lifts the quotas of containers with exclusive CPUs, which limit them already.
//   - It sets quotas for batch pods, because the kubelet does not know their CPU limits.
//   - It lets online pods burst above their limits while the node has room.
package quota

import (
	"path"
	"slices"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// leastQuota is the smallest quota that the kernel accepts, in microseconds.
const leastQuota = 1000

// Others are the results of other rules.
type Others struct {
	Weighted     []bool              // one entry per pod of the node: it has its own weight
	CPUs         *model.CPUPlan      // nil: no pod has its own CPUs
	Batch        *model.Suppression  // nil: batch is not limited
	Interference *model.Interference // nil: no pod is throttled
	Slack        *model.Slack        // nil: nothing was measured yet
}

// Decide appends the quota and burst settings of all pods to settings and returns the result.
//
//   - Quotas are lifted for pods whose annotation requests it, for weighted pods if the policy says so, and for
//     containers with exclusive CPUs and their pods (as the kubelet does since 1.33).
//   - Other pods that request batch CPU, and their containers, get the quota of the CPU limit in their original spec,
//     if any.
//   - Online pods that the kubelet limits may burst, if the policy says so.
//
// For a batch pod, the quota of suppression or of a throttle takes precedence over all of these.
func Decide(settings []model.Setting, n *model.Node, p *model.Policy, o Others, s State) ([]model.Setting, State) {
	s = s.follow(n, o.Slack).raise(n, p)
	var whys model.Reasons
	for i, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		if part, why, limited := o.limit(pod.UID, &whys); limited {
			settings = suppress(settings, n, pod, group, part, why)
			continue
		}
		lift := func(dir string, code model.Code) {
			settings = append(settings, model.Setting{
				File:   model.File{Dir: dir, Knob: model.Quota},
				Value:  model.Number(model.Unlimited),
				Reason: *whys.Of(code, limitOf(pod.LimitMilli)),
			})
		}
		mode := pod.Annotations.Quota
		if mode == "" && o.Weighted[i] {
			mode = p.Weight.Quota
		}
		if mode == model.QuotaUnlimited {
			lift(group.Dir, model.QuotaLifted)
			for j := range group.Containers {
				lift(group.Path(j), model.QuotaLifted)
			}
			continue
		}
		own := hasExclusive(o.CPUs, pod.UID)
		if !own || pod.Annotations.Quota == model.QuotaKubelet {
			settings = batch(settings, n, pod, group, &whys)
			if !own {
				settings = burst(settings, n, p, pod, group, &s, &whys)
			}
			continue
		}
		lift(group.Dir, model.QuotaNeedless)
		for j, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && o.CPUs.Alone(pod.UID, c.Name) {
				lift(group.Path(j), model.QuotaNeedless)
			}
		}
	}
	return settings, s
}

// limit returns the CPU limit of a batch pod in milli-cores, and the reason; false if it has none.
func (o *Others) limit(uid string, whys *model.Reasons) (int64, model.Reason, bool) {
	part, limited := o.Batch.Quota(uid)
	if t := o.Interference.Throttle(uid); t != nil && (!limited || t.Milli < part) {
		return t.Milli, t.Reason(), true
	}
	if !limited {
		return 0, model.Reason{}, false
	}
	return part, *whys.Of(model.BatchSuppressed, model.Operand{Name: "part", Value: part, Unit: model.UnitMilli}), true
}

// batch appends the quotas of a batch pod and its containers from the CPU limits in their original spec. If the kubelet
// enforces no CPU limits, batch pods get no quotas either.
func batch(
	settings []model.Setting, n *model.Node, pod *model.Pod, group model.PodGroup, whys *model.Reasons,
) []model.Setting {
	if n.Kubelet.Known && !n.Kubelet.CFSQuota {
		return settings
	}
	limit := func(dir string, milli, period int64) {
		if milli == 0 {
			return
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.Quota},
			Value:  quotaOf(milli, period),
			Reason: *whys.Of(model.BatchQuota, limitOf(milli)),
		})
	}
	limit(group.Dir, pod.Grant.LimitMilli, model.DefaultQuotaPeriod)
	period := containerPeriod(n)
	for j, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil {
			limit(group.Path(j), c.Grant.LimitMilli, period)
		}
	}
	return settings
}

// suppress appends the quotas that limit a batch pod to its part, in milli-cores: those of the pod, and of its
// containers that have their own limit. On v1 a container's quota must not exceed the pod's (EINVAL).
//
// A batch pod whose CPU requests were not converted to batch CPU has containers with limits that the kubelet knows.
// On v1 the runtime could not start such a container if its limit exceeded the pod's quota. So on v1 the quota of
// such a pod is at least the highest of these limits.
func suppress(
	settings []model.Setting, n *model.Node, pod *model.Pod, group model.PodGroup, part int64, why model.Reason,
) []model.Setting {
	period := containerPeriod(n)
	limit := func(dir string, milli, period int64) {
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.Quota},
			Value:  quotaOf(milli, period),
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
	if own := max(pod.Grant.LimitMilli, pod.LimitMilli); own > 0 {
		whole = min(whole, own)
	}
	podPeriod := int64(model.DefaultQuotaPeriod)
	if pod.LimitMilli > 0 {
		podPeriod = period
	}
	limit(group.Dir, whole, podPeriod)
	for j, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil {
			if own := max(c.Grant.LimitMilli, c.LimitMilli); own > 0 {
				limit(group.Path(j), min(own, part), period)
			}
		}
	}
	return settings
}

// containerPeriod returns the period for the quota of a batch container. The kubelet sets its period always for a
// container, and for a pod only if it has a CPU limit (pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod). The
// same period is kept where the kubelet sets one, because on v1 a reader can see its quota and period at different
// times: another period of ours could be taken for the kubelet's.
func containerPeriod(n *model.Node) int64 {
	if n.Kubelet.Known {
		return n.Kubelet.QuotaPeriod
	}
	return model.DefaultQuotaPeriod
}

// quotaOf returns the quota of a batch pod or container. In a period in which the kernel's least quota is more than the
// limit, the group could use more than its limit, and on v1 more than its pod; then the period is the default one.
func quotaOf(milli, period int64) model.Value {
	if milli*period/1000 < leastQuota {
		period = max(period, model.DefaultQuotaPeriod)
	}
	return model.Value{Number: max(model.MilliCPUToQuota(milli, period), leastQuota), Period: period}
}

// hasExclusive reports whether a pod or one of its containers has exclusive CPUs.
func hasExclusive(cpus *model.CPUPlan, uid string) bool {
	return cpus != nil && slices.ContainsFunc(cpus.Own, func(o model.OwnCPUs) bool {
		return o.UID == uid && o.Mode == model.CPUExclusive
	})
}

// Release returns the value that an owned quota returns to: what the kubelet computes from the pod's limits, or the
// recorded value where this is not known. It is not known for a pod or container that is not in the API, while the
// kubelet's configuration is not read, and under the kubelet's static CPU policy, which lifts quotas itself. A burst
// returns to 0, because the kubelet sets none.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	if o.Knob == model.Burst {
		return model.Number(0), model.Reason{Code: model.KubeletValue}
	}
	recorded := model.Reason{Code: model.RecordedValue}
	if pod == nil || pod.Ended || !n.Kubelet.Known || n.Kubelet.StaticCPUs {
		return o.Theirs, recorded
	}
	if pod.LimitPending && o.Dir == n.Tree.Pods[pod.UID].Dir {
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
	given := model.Reason{Code: model.KubeletValue, Operands: []model.Operand{limitOf(limit)}}
	if !n.Kubelet.CFSQuota || limit == 0 {
		return model.Value{Number: model.Unlimited, Period: o.Theirs.Period}, given
	}
	return model.QuotaOf(limit, n.Kubelet.QuotaPeriod), given
}

// limitOf returns the operand for a CPU limit in milli-cores.
func limitOf(milli int64) model.Operand {
	return model.Operand{Name: "limit", Value: milli, Unit: model.UnitMilli}
}
