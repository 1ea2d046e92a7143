// Package memory decides the memory limits of batch pods and the memory protection of online pods. The kubelet sets
// no limits for batch pods, because it does not know the resources that they request.
//
// The limit of a pod needs only the pod's cgroup. The limits of containers need to know which cgroup belongs to which
// container: the runtime reports that before it starts a container, and the API some time after. On cgroup v1, only
// memory is limited, not the sum of memory and swap (memory.memsw.limit_in_bytes): the kernel requires that sum to be
// no lower than the memory limit, and runtimes set both together.
package memory

import (
	"path"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Decide appends settings that limit the memory of each pod that requests batch memory, and of its containers that do,
// to the limit in their original spec. If the policy says so, it protects the memory of online pods.
//
// Decide ignores usage. A limit below the usage is not written; this is noticed only when writing, and later rounds
// then defer the setting, see [model.MemoryInUse].
func Decide(settings []model.Setting, n *model.Node, p *model.Policy) []model.Setting {
	settings = protect(settings, n, p)
	var whys model.Reasons
	limit := func(dir string, bytes int64) {
		if bytes == 0 {
			return
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.MemoryMax},
			Value:  model.Number(bytes),
			Reason: *whys.Of(model.BatchMemory, limitOperand(bytes)),
		})
	}
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		limit(group.Dir, pod.Grant.Memory)
		for j, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && c.Grant.Memory > 0 {
				limit(group.Path(j), c.Grant.Memory)
			}
		}
	}
	return settings
}

// Release returns the value that an owned memory limit returns to: what the kubelet computes from the pod's limits,
// or the recorded value for a pod or container that is not in the API. The other memory knobs always return to the
// recorded value, because the kubelet does not write them.
func Release(n *model.Node, o model.Owned, pod *model.Pod) (model.Value, model.Reason) {
	recorded := model.Reason{Code: model.RecordedValue}
	if pod == nil || pod.Ended || o.Knob != model.MemoryMax {
		return o.Theirs, recorded
	}
	limit := pod.MemoryLimit
	if o.Dir != n.Tree.Pods[pod.UID].Dir {
		c := cgroup.ContainerOf(pod, path.Base(o.Dir))
		if c == nil {
			return o.Theirs, recorded
		}
		limit = c.MemoryLimit
	}
	given := model.Reason{Code: model.KubeletValue, Operands: []model.Operand{limitOperand(limit)}}
	if limit == 0 {
		return model.Number(model.Unlimited), given
	}
	return model.Number(limit), given
}

// limitOperand returns the operand for a memory limit in bytes.
func limitOperand(bytes int64) model.Operand {
	return model.Operand{Name: "limit", Value: bytes, Unit: model.UnitBytes}
}
