package cpuset

import (
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// hinted chooses the CPUs that a pod's hint names, or returns why it does not; without a hint it returns neither. A
// hint counts when a pod without CPUs gets its first ones, and never for a pod that grows or moves.
//
// Any tenant can write a hint, so it only chooses: the CPUs must be free for this pod, as many as it requests, and
// whole cores if it requests those. Which of the CPUs each container gets follows from the hint and the request alone.
func (r *round) hinted(c *claim) ([]Allocation, model.Reason) {
	hint := c.pod.Annotations.Hint
	if hint.Empty() || len(c.had) > 0 {
		return nil, model.Reason{}
	}
	number, fix := sum(c.wants), ""
	switch free := hint.And(r.free); {
	case hint.Len() != number:
		fix = "hint as many CPUs as the pod requests, or remove the hint"
	case free != hint:
		fix = "the others are reserved, offline or other pods' own; nothing to do, unless this happens often"
	default:
		given, lack := r.fill(c, hint)
		if lack == "" {
			return given, model.Reason{}
		}
		fix = "hint whole cores for each container, as the pod requests them, or remove the hint"
	}
	return nil, model.Reason{
		Code: model.CPUsHintUnused, Key: "cpuset-hint", Text: shortList(hint), Fix: fix,
		Operands: []model.Operand{
			{Name: "requested", Value: int64(number), Unit: model.UnitCPUs},
			{Name: "hinted", Value: int64(hint.Len()), Unit: model.UnitCPUs},
			{Name: "free", Value: int64(hint.And(r.free).Len()), Unit: model.UnitCPUs},
		},
	}
}

// vacating reports whether a pod's hint names CPUs that running pods give up in this round, so that the hint can be
// followed in the next one.
func (r *round) vacating(c *claim) bool {
	hint := c.pod.Annotations.Hint
	return len(c.had) == 0 && hint.Len() == sum(c.wants) && hint.Overlaps(r.freed) && hint.Within(r.free.Or(r.freed))
}

// shortList returns a list of CPUs, or its beginning where it is too long for an event.
func shortList(set model.CPUSet) string {
	const most = 64
	list := set.String()
	if len(list) <= most {
		return list
	}
	return list[:strings.LastIndexByte(list[:most], ',')+1] + "…"
}
