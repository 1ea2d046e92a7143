// Package quota decides the CFS quotas of pods and their containers. It lifts them from pods that are to be limited by
// their weight only, which makes the kubelet's node-wide switch (cpuCFSQuota: false) unnecessary, and from containers with
// exclusive CPUs, which limit them already.
package quota

import (
	"path"
	"slices"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Decide lifts the quota of every pod whose annotation says so, of weighted pods where the policy says so, and as the
// kubelet does since 1.33, of containers with exclusive CPUs and the pods they are in. weighted has one entry for each pod
// of the node, in its order; cpus is nil where nobody has CPUs of its own.
func Decide(n *model.Node, p *model.Policy, weighted []bool, cpus *model.CPUPlan) []model.Setting {
	var settings []model.Setting
	for i, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		lift := func(dir string, code model.Code) {
			settings = append(settings, model.Setting{
				File:   model.File{Dir: dir, Knob: model.Quota},
				Value:  model.Number(model.Unlimited),
				Reason: model.Reason{Code: code, Operands: []model.Operand{{Name: "limit", Value: pod.LimitMilli, Unit: model.UnitMilli}}},
			})
		}
		mode := pod.Asks.Quota
		if mode == "" && weighted[i] {
			mode = p.Weight.Quota
		}
		if mode == model.QuotaUnlimited {
			lift(group.Dir, model.QuotaLifted)
			for _, name := range group.Containers {
				lift(group.Dir+"/"+name, model.QuotaLifted)
			}
			continue
		}
		own := ownExclusive(cpus, pod.UID)
		if len(own) == 0 || pod.Asks.Quota == model.QuotaKubelet {
			continue
		}
		lift(group.Dir, model.QuotaNeedless)
		for _, name := range group.Containers {
			if c := container(pod, name); c != nil && slices.ContainsFunc(own, func(o model.OwnCPUs) bool { return o.Container == "" || o.Container == c.Name }) {
				lift(group.Dir+"/"+name, model.QuotaNeedless)
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
// while the kubelet's configuration was not read, and under the kubelet's static CPU policy, which lifts quotas itself.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	recorded := model.Reason{Code: model.RecordedValue}
	if pod == nil || pod.Ended || !n.Kubelet.Known || n.Kubelet.StaticCPUs {
		return o.Theirs, recorded
	}
	limit := pod.LimitMilli
	if o.Dir != n.Tree.Pods[pod.UID].Dir {
		c := container(pod, path.Base(o.Dir))
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

// container returns the container of a pod whose cgroup has this name, nil if it is not known.
func container(pod *model.Pod, name string) *model.Container {
	id, ok := cgroup.ContainerID(name)
	for i := range pod.Containers {
		if ok && pod.Containers[i].ID == id {
			return &pod.Containers[i]
		}
	}
	return nil
}
