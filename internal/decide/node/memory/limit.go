package memory

import (
	"github.com/waterline-io/waterline/internal/model"
)

// A batch pod that is held has room for one to two of these parts of the node above what it has: a bound below what is used would
// stop whoever writes it, until the kernel has reclaimed the difference.
const (
	roomOfNode = 1024
	leastRoom  = 8 << 20
)

// hold keeps batch pods from growing while memory for them is near its end: each to its part of what batch may use, by what it
// asked for, or to what it has if that is more. That follows down what a pod uses, as it is reclaimed, and does not follow it up.
// Where nothing is known of the account (nil) or the pod, what was decided last stays.
func hold(n *model.Node, a *model.Account, state State) []model.Setting {
	if !state.Short {
		return nil
	}
	var asked int64
	for _, pod := range n.Pods {
		asked += request(pod)
	}
	var settings []model.Setting
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || pod.Class != model.ClassBE || pod.Ended {
			continue
		}
		s := model.Setting{File: model.File{Dir: group.Dir, Knob: model.MemoryHigh}, Reason: model.Reason{Code: model.MemoryLimited}}
		ours := int64(0)
		if owned := n.Wrote(s.File); owned != nil {
			ours = owned.Ours.Number
		}
		used := int64(0)
		if a != nil {
			used, _ = usedBy(n.Load, pod.UID, measured)
		}
		switch {
		case used > 0:
			part := int64(float64(a.Allow) * float64(request(pod)) / float64(max(asked, 1)))
			s.Value = model.Number(bound(part, used, ours, max(a.Capacity/roomOfNode, leastRoom)))
			s.Reason.Operands = []model.Operand{{Name: "part", Value: part, Unit: model.UnitBytes}, {Name: "used", Value: used, Unit: model.UnitBytes}}
		case ours > 0:
			s.Value = model.Number(ours)
		default:
			continue
		}
		settings = append(settings, s)
	}
	return settings
}

// bound returns how much a pod may have: in steps, and what it could have before (0: anything) if that is but a little more, so
// that it does not change each second.
func bound(part, used, ours, step int64) int64 {
	value := (used/step + 2) * step
	if ours > 0 {
		value = min(value, ours)
	}
	value = max(value, part/step*step)
	if value < ours && ours <= value+slackSteps*step {
		return ours
	}
	return value
}

// request returns what a batch pod asked for, under whatever name.
func request(pod *model.Pod) int64 {
	if pod.Class != model.ClassBE || pod.Ended {
		return 0
	}
	return pod.Mid.Memory + pod.Batch.Memory + pod.MemoryRequest
}
