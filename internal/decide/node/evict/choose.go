package evict

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// When a pod starves: it uses less than this part of the CPU that it was sold, and as much as this part of what it may use, or
// waits for this part of the time, in thousandths.
const (
	hardly = 200
	usesUp = 700
	waits  = 500
)

// For how long it must have. Time in which it did not counts twice against it, so that single quiet seconds do not begin it anew.
const (
	starved = 5 * time.Minute
	hungry  = 4 * time.Minute // until it counts as starving no more; and of others, once one has left
)

// What is not known of lost work.
const (
	leastRun = time.Minute
	longRun  = 24 * time.Hour // of a pod of which it is not known since when it is there
	leastCPU = 100            // milli-cores
)

// starve finds which pods have starved for long, and one of them.
func (r *round) starve() {
	s := &r.state
	var hunger []Since
	for _, pod := range r.n.Pods {
		if pod.Class != model.ClassBE || pod.Leaving || !r.here(pod) {
			continue
		}
		h := Since{UID: pod.UID}
		if i, known := find(s.Hunger, pod.UID); known {
			h = s.Hunger[i]
		}
		u := r.n.Load.Pod(pod.UID)
		switch {
		case u == nil || u.CPU.At == 0 || r.n.Load.Age(u.CPU.At) > fresh:
		case r.starving(pod, u):
			h.At = min(h.At+r.elapsed, starved)
		default:
			h.At = max(h.At-2*r.elapsed, 0)
		}
		if h.At == 0 {
			continue
		}
		hunger = append(hunger, h)
		if h.At >= starved || h.At >= hungry && s.Ask.UID == pod.UID {
			r.starves = pod.UID
		}
	}
	s.Hunger = hunger
}

// starving reports whether a pod has hardly any of what it was sold now, and wants it.
func (r *round) starving(pod *model.Pod, u *model.PodUsage) bool {
	if u.CPU.Milli*1000 >= sold(pod)*hardly {
		return false
	}
	if u.Pressure.At != 0 && r.n.Load.Age(u.Pressure.At) <= fresh && u.Pressure.CPU.Some >= waits {
		return true
	}
	if r.in.Suppress == nil {
		return false
	}
	part, has := r.in.Suppress.Part(pod.UID)
	if t := r.in.Interference.Throttle(pod.UID); t != nil {
		part.Milli = min(part.Milli, t.Milli)
	}
	return has && u.CPU.Milli*1000 >= part.Milli*usesUp
}

// sold returns the CPU that a batch pod was sold, under whatever name, in milli-cores.
func sold(pod *model.Pod) int64 {
	return max(pod.Mid.CPU+pod.Batch.CPU, pod.Grant.RequestMilli, pod.RequestMilli)
}

// candidate is a pod that could leave.
type candidate struct {
	pod    *model.Pod
	score  float64 // relief for lost work
	excess int64   // bytes that it would free and nobody needs
	bytes  int64   // that are expected
	reason model.Reason
}

// may reports whether a pod may be asked for at all: batch, that an eviction could take away, and that its owner and its class
// do not keep.
func (r *round) may(pod *model.Pod) bool {
	return pod.Class == model.ClassBE && !pod.Leaving && !pod.Critical && !pod.Self && pod.UID == pod.APIUID && pod.Annotations.Evict != model.EvictNever && r.here(pod)
}

// forMemory finds the pod that frees most of what is needed for the least work that is lost. What pods that leave already
// will free is not needed from another. While a pod is frozen it is that one.
func (r *round) forMemory() candidate {
	need := r.in.Slack.Memory.Capacity/1000*enough - r.left
	for _, l := range r.state.Leaving {
		if r.leaves(l.UID) {
			need -= r.frees(l.UID)
		}
	}
	if need <= 0 {
		return candidate{}
	}
	return r.best(func(pod *model.Pod) candidate {
		if frozen := r.state.Frozen.UID; frozen != "" && frozen != pod.UID {
			return candidate{}
		}
		bytes := r.frees(pod.UID)
		c := candidate{pod: pod, score: float64(min(bytes, need)) / lost(r.n, pod), excess: max(bytes-need, 0), bytes: bytes}
		c.reason = model.Reason{Code: model.MemoryGone, Operands: []model.Operand{
			{Name: "left", Value: r.left, Unit: model.UnitBytes}, {Name: "need", Value: need, Unit: model.UnitBytes}, {Name: "relief", Value: bytes, Unit: model.UnitBytes},
			ran(r.n, pod),
		}}
		return c
	})
}

// forCPU finds, of the pods that starve, the one that loses the least work.
func (r *round) forCPU() candidate {
	return r.best(func(pod *model.Pod) candidate {
		if i, known := find(r.state.Hunger, pod.UID); !known || r.state.Hunger[i].At < starved {
			return candidate{}
		}
		return candidate{pod: pod, score: 1 / lost(r.n, pod), reason: model.Reason{Code: model.BatchStarved, Operands: []model.Operand{
			{Name: "sold", Value: sold(pod), Unit: model.UnitMilli}, {Name: "used", Value: r.n.Load.Pod(pod.UID).CPU.Milli, Unit: model.UnitMilli}, ran(r.n, pod),
		}}}
	})
}

// best returns the best of the pods that may be asked for: those that say so first, then what is not expected to stay for a
// day, then by what it brings for what it costs.
func (r *round) best(rate func(*model.Pod) candidate) candidate {
	var best candidate
	for _, pod := range r.n.Pods {
		if _, set := find(r.state.Aside, pod.UID); set || !r.may(pod) {
			continue
		}
		if c := rate(pod); c.pod != nil && c.score > 0 && (best.pod == nil || c.before(&best)) {
			best = c
		}
	}
	return best
}

func (c *candidate) before(d *candidate) bool {
	if a, b := c.pod.Annotations.Evict == model.EvictFirst, d.pod.Annotations.Evict == model.EvictFirst; a != b {
		return a
	}
	if a, b := c.pod.Tier == model.TierMid, d.pod.Tier == model.TierMid; a != b {
		return b
	}
	if c.score != d.score {
		return c.score > d.score
	}
	return c.excess < d.excess
}

// frees returns how much memory it frees that a pod leaves: what counts as used by it, less the page cache that counts as left
// already. What was measured long ago makes the account old, by which nobody is asked for.
func (r *round) frees(uid string) int64 {
	u := r.n.Load.Pod(uid)
	if u == nil || u.Memory.At == 0 {
		return 0
	}
	return max(u.Memory.WorkingSet-u.Memory.ActiveFile, 0)
}

// lost returns how much work is lost with a pod: for how long it is there, times the CPU that it was sold.
func lost(n *model.Node, pod *model.Pod) float64 {
	return lifetime(n, pod).Seconds() * float64(max(sold(pod), leastCPU))
}

func lifetime(n *model.Node, pod *model.Pod) time.Duration {
	if pod.Created.IsZero() {
		return longRun
	}
	return max(n.Now.Sub(pod.Created), leastRun) // the wall clock may have been set back
}

func ran(n *model.Node, pod *model.Pod) model.Operand {
	return model.Operand{Name: "ran", Value: int64(lifetime(n, pod) / time.Second), Unit: model.UnitSeconds}
}
