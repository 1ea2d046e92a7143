// Package quota decides the CFS quotas of pods and their containers. It lifts them from pods that are to be limited by
// their weight only, which makes the kubelet's node-wide switch (cpuCFSQuota: false) unnecessary.
package quota

import (
	"path"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Decide lifts the quota of every pod whose annotation says so, and of weighted pods where the policy says so. weighted
// has one entry for each pod of the node, in its order.
func Decide(n *model.Node, p *model.Policy, weighted []bool) []model.Setting {
	var settings []model.Setting
	for i, pod := range n.Pods {
		mode := pod.Asks.Quota
		if mode == "" && weighted[i] {
			mode = p.Weight.Quota
		}
		group, exists := n.Tree.Pods[pod.UID]
		if mode != model.QuotaUnlimited || !exists || pod.Ended {
			continue
		}
		lift := func(dir string) {
			settings = append(settings, model.Setting{
				File:   model.File{Dir: dir, Knob: model.Quota},
				Value:  model.Number(model.Unlimited),
				Reason: model.Reason{Code: model.QuotaLifted, Operands: []model.Operand{{Name: "limit", Value: pod.LimitMilli, Unit: model.UnitMilli}}},
			})
		}
		lift(group.Dir)
		for _, name := range group.Containers {
			lift(group.Dir + "/" + name)
		}
	}
	return settings
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
