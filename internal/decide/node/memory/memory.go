// Package memory decides how much memory batch pods and their containers may use, and what memory of online pods the kernel is
// to leave alone. The kubelet limits batch to nothing, because it asks for no memory that the kubelet knows.
//
// The pod's own limit is there before its first process: its cgroup is, and no container needs to be known for it. Those of
// containers follow when the API tells which is which. On cgroup v1 only memory is limited, not what memory and swap are
// together (memory.memsw.limit_in_bytes): the kernel wants that not below, and runtimes set both at once.
package memory

import (
	"path"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Decide limits the memory of every pod that asks for batch memory, and of its containers that do, to what they came with; and
// protects that of online pods where the policy says so.
//
// Nothing here looks at what is used: a limit below that is not written, which is known only in the moment of writing. The
// next rounds then hold it, see [model.MemoryInUse].
func Decide(n *model.Node, p *model.Policy) []model.Setting {
	settings := protect(n, p)
	limit := func(dir string, bytes int64) {
		if bytes == 0 {
			return
		}
		settings = append(settings, model.Setting{
			File:   model.File{Dir: dir, Knob: model.MemoryMax},
			Value:  model.Number(bytes),
			Reason: model.Reason{Code: model.BatchMemory, Operands: []model.Operand{{Name: "limit", Value: bytes, Unit: model.UnitBytes}}},
		})
	}
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Ended {
			continue
		}
		limit(group.Dir, pod.Grant.Memory)
		for _, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && c.Grant.Memory > 0 {
				limit(group.Dir+"/"+name, c.Grant.Memory)
			}
		}
	}
	return settings
}

// Release returns what a limit that we no longer decide goes back to: what the kubelet computes from the pod's limits, or for
// a pod or container that the API does not show what was recorded. So do the other knobs, which the kubelet leaves alone.
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
	given := model.Reason{Code: model.KubeletValue, Operands: []model.Operand{{Name: "limit", Value: limit, Unit: model.UnitBytes}}}
	if limit == 0 {
		return model.Number(model.Unlimited), given
	}
	return model.Number(limit), given
}
