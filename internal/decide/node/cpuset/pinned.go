package cpuset

import (
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// MayBePinned reports whether a container of a pod may have CPUs of its own from a former policy of the kubelet: under
// policy static it would get some. A kubelet that changes its policy to none leaves the lists of running containers as
// they are, and lets new containers run on all CPUs.
func MayBePinned(pod *model.Pod, k *model.Kubelet) bool {
	return k.Known && !k.StaticCPUs && !pod.Ended && pod.QoS == model.Guaranteed && ofKubelet(pod)
}

// pinned returns the CPUs that containers keep from a former policy of the kubelet: as many as the container requests,
// in a list that is not Waterline's: neither on record, nor the one with which the runtime starts containers by the
// last plan.
func pinned(n *model.Node, p *model.Policy, s *State) []model.OwnCPUs {
	var all []model.OwnCPUs
	for _, pod := range n.Pods {
		group := n.Tree.Pods[pod.UID]
		if group.CPUs == nil || !MayBePinned(pod, &n.Kubelet) || len(s.of(pod.UID)) > 0 {
			continue
		}
		if mode, _ := requested(pod, p); mode != model.CPUNone {
			continue
		}
		for i, list := range group.CPUs {
			c := cgroup.ContainerOf(pod, group.Containers[i])
			if c == nil || int64(list.Len())*1000 != c.RequestMilli || list == n.Tree.CPUs || !list.Within(n.Tree.CPUs) ||
				list == s.Shared || n.Wrote(model.File{Dir: group.Path(i), Knob: model.Cpuset}) != nil {
				continue
			}
			all = append(all, model.OwnCPUs{UID: pod.UID, Container: c.Name, Mode: model.CPUExclusive, CPUs: list})
		}
	}
	return all
}

// reportPinned informs the owners of pods whose containers keep CPUs from a former policy of the kubelet.
func (r *round) reportPinned() {
	for i := range r.pinned {
		o := &r.pinned[i]
		r.notice(model.FindPod(r.n.Pods, o.UID), model.Reason{
			Code: model.CPUsPinned, Key: o.Container, Text: shortList(o.CPUs),
			Fix: "delete the pod, so that its successor runs on the CPUs that the kubelet's policy none gives it",
		})
	}
}
