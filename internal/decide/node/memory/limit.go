package memory

import (
	"github.com/waterline-io/waterline/internal/model"
)

// The limit of a batch pod is one to two of these steps (a fraction of the node's memory) above its usage. A limit
// below the usage would block its writer until the kernel has reclaimed the difference.
const (
	roomOfNode = 1024
	leastRoom  = 8 << 20
)

// limitGrowth limits the growth of batch pods while little memory is left for batch. The limit of a pod is its part
// of the memory for batch, in proportion to requests, or its usage if that is more. As the pod's memory is reclaimed,
// the limit follows its usage down, but never up. If there is no account (nil) or no measurement of the pod, the last
// limit stays.
func limitGrowth(n *model.Node, a *model.Account, state State) []model.Setting {
	if !state.Short {
		return nil
	}
	var requested int64
	for _, pod := range n.Pods {
		requested += requestOf(pod)
	}
	var settings []model.Setting
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Class != model.ClassBE || pod.Ended {
			continue
		}
		s := model.Setting{
			File: model.File{Dir: group.Dir, Knob: model.MemoryHigh}, Reason: model.Reason{Code: model.MemoryLimited},
		}
		current := int64(0)
		if owned := n.Wrote(s.File); owned != nil {
			current = owned.Ours.Number
		}
		used := int64(0)
		if a != nil {
			used, _ = usedBy(n.Load, pod.UID, measured)
		}
		switch {
		case used > 0:
			part := int64(float64(a.Allow) * float64(requestOf(pod)) / float64(max(requested, 1)))
			s.Value = model.Number(limitOf(part, used, current, max(a.Capacity/roomOfNode, leastRoom)))
			s.Reason.Operands = []model.Operand{
				{Name: "part", Value: part, Unit: model.UnitBytes}, {Name: "used", Value: used, Unit: model.UnitBytes},
			}
		case current > 0:
			s.Value = model.Number(current)
		default:
			continue
		}
		settings = append(settings, s)
	}
	return settings
}

// limitOf returns the limit of a pod in whole steps. current is its current limit (0: none). A current limit that is
// only slightly higher stays, so that the limit does not change each second.
func limitOf(part, used, current, step int64) int64 {
	value := (used/step + 2) * step
	if current > 0 {
		value = min(value, current)
	}
	value = max(value, part/step*step)
	if value < current && current <= value+slackSteps*step {
		return current
	}
	return value
}

// requestOf returns the memory request of a batch pod, under any resource name.
func requestOf(pod *model.Pod) int64 {
	if pod.Class != model.ClassBE || pod.Ended {
		return 0
	}
	return pod.Mid.Memory + pod.Batch.Memory + pod.MemoryRequest
}
