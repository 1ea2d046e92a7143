package evict

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// A pod stalls on its memory while all its tasks at once wait for memory for more than stalls of the time (PSI full),
// and it uses more than atLimit of its limit, both in thousandths. It is at its memory.high or memory.max, and the
// kernel lets it have a page now and then: it neither works nor ends, whatever is free on the node. Usage is looked
// at because pressure alone proves nothing: some kernels show 99 % for idle groups (oomd #119), and when the node is
// short, pods wait that are far from their limits. While Waterline limits batch, its limit counts, which is never far
// above the usage.
const (
	stalls  = 500
	atLimit = 800
)

// How long a pod must have stalled. Time without a stall counts twice against it.
const (
	stallShown = time.Minute     // then its owner is informed
	stalled    = 5 * time.Minute // then it should leave
	stillStall = 4 * time.Minute // below, it no longer counts as stalled
)

// stall finds the batch pods that have stalled for long.
func (r *round) stall() {
	s := &r.state
	s.Stalls = r.lasting(s.Stalls, stalled, func(pod *model.Pod, u *model.PodUsage) (known, suffers bool) {
		return u.Pressure.At != 0 && r.n.Load.Age(u.Pressure.At) <= maxSampleAge,
			u.Pressure.Memory.Full >= stalls && r.limited(pod, u)
	})
	r.stalls = slices.ContainsFunc(s.Stalls, func(since Since) bool {
		return since.At >= stalled || since.At >= stillStall && s.Request.UID == since.UID
	})
}

// limited reports whether a pod is at a memory limit.
func (r *round) limited(pod *model.Pod, u *model.PodUsage) bool {
	limit := limitOf(pod)
	used := u.Memory.WorkingSet + u.Memory.InactiveFile
	return r.in.Limited || limit > 0 && u.Memory.At != 0 && used >= limit/1000*atLimit
}

// limitOf returns the memory limit of a batch pod; 0 if it has none.
func limitOf(pod *model.Pod) int64 { return max(pod.Grant.Memory, pod.MemoryLimit) }

// forStall chooses the stalled pod that loses the least work.
func (r *round) forStall() candidate {
	return r.best(func(pod *model.Pod) candidate {
		if since := find(r.state.Stalls, pod.UID); since == nil || since.At < stalled {
			return candidate{}
		}
		why := stallReason(pod)
		why.Operands = append(why.Operands, ran(r.n, pod))
		return candidate{pod: pod, score: 1 / lost(r.n, pod), reason: why}
	})
}

// stallsShown returns what the owners of pods are informed of that stall. The text stays the same while a pod stalls.
func (r *round) stallsShown() []model.PodReason {
	var all []model.PodReason
	for _, s := range r.state.Stalls {
		if pod := model.FindPod(r.n.Pods, s.UID); pod != nil && s.At >= stallShown {
			all = append(all, model.PodReason{UID: s.UID, Reason: stallReason(pod)})
		}
	}
	return all
}

// stallReason returns why a stalled pod should leave, with its own limit.
func stallReason(pod *model.Pod) model.Reason {
	why := model.Reason{
		Code: model.MemoryStalled, Fix: "raise its memory request and limit, or have it use less",
		Operands: []model.Operand{{Name: "stalls", Value: stalls, Unit: model.UnitPermille}},
	}
	if limit := limitOf(pod); limit > 0 {
		why.Operands = append(why.Operands, model.Operand{Name: "limit", Value: limit, Unit: model.UnitBytes})
	}
	return why
}
