package evict

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// A pod starves if it uses less than hardly of the CPU that it requested, and either uses more than usesUp of its
// part of the suppression limit or waits for CPU more than waits of the time. All are in thousandths.
const (
	hardly = 200
	usesUp = 700
	waits  = 500
)

// How long a pod must have starved. Time without starvation counts twice against it, so that single quiet seconds do
// not restart the count.
const (
	starved = 5 * time.Minute
	// Below, a pod no longer counts as starving; after an eviction, the others restart from here at most.
	hungry = 4 * time.Minute
)

// Defaults for the estimate of lost work.
const (
	leastRun = time.Minute
	longRun  = 24 * time.Hour // lifetime of a pod without a known creation time
	leastCPU = 100            // milli-cores
)

// starve finds the pods that have starved for long, and picks one of them.
func (r *round) starve() {
	s := &r.state
	s.Hunger = r.lasting(s.Hunger, starved, func(pod *model.Pod, u *model.PodUsage) (known, suffers bool) {
		return u.CPU.At != 0 && r.n.Load.Age(u.CPU.At) <= maxSampleAge, r.starving(pod, u)
	})
	for _, h := range s.Hunger {
		if h.At >= starved || h.At >= hungry && s.Request.UID == h.UID {
			r.starves = h.UID
		}
	}
}

// lasting returns for how long, at most a time, the batch pods here have suffered from something. Time in which a pod
// does not suffer counts twice against it, and time in which that is not known does not count. Pods that have not
// suffered are left out.
func (r *round) lasting(
	before []Since, most time.Duration, look func(*model.Pod, *model.PodUsage) (known, suffers bool),
) (all []Since) {
	for _, pod := range r.n.Pods {
		if pod.Class != model.ClassBE || pod.Leaving || !r.n.Runs(pod) {
			continue
		}
		since := Since{UID: pod.UID}
		if had := find(before, pod.UID); had != nil {
			since = *had
		}
		if u := r.n.Load.Pod(pod.UID); u != nil {
			switch known, suffers := look(pod, u); {
			case !known:
			case suffers:
				since.At = min(since.At+r.elapsed, most)
			default:
				since.At = max(since.At-2*r.elapsed, 0)
			}
		}
		if since.At > 0 {
			all = append(all, since)
		}
	}
	return all
}

// starving reports whether a pod has hardly any of its requested CPU now, and wants more.
func (r *round) starving(pod *model.Pod, u *model.PodUsage) bool {
	if u.CPU.Milli*1000 >= sold(pod)*hardly {
		return false
	}
	if u.Pressure.At != 0 && r.n.Load.Age(u.Pressure.At) <= maxSampleAge && u.Pressure.CPU.Some >= waits {
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

// sold returns the CPU request of a batch pod, under any resource name, in milli-cores.
func sold(pod *model.Pod) int64 {
	return max(pod.Mid.CPU+pod.Batch.CPU, pod.Grant.RequestMilli, pod.RequestMilli)
}

// candidate is a pod that could be evicted.
type candidate struct {
	pod    *model.Pod
	score  float64 // relief per lost work
	excess int64   // bytes freed beyond the need
	bytes  int64   // expected relief
	reason model.Reason
}

// may reports whether a pod may be requested at all: it is batch, the Eviction API can remove it, and neither its
// owner nor its priority class forbids it.
func (r *round) may(pod *model.Pod) bool {
	return pod.Class == model.ClassBE && !pod.Leaving && !pod.Critical && !pod.Self && pod.UID == pod.APIUID &&
		pod.Annotations.Evict != model.EvictNever && r.n.Runs(pod)
}

// forMemory chooses the pod that frees the most needed memory per lost work. Memory that leaving pods will free is
// not needed from another pod.
func (r *round) forMemory() candidate {
	need := r.in.Slack.Memory.Capacity/1000*exhaustedUntil - r.left
	for _, l := range r.state.Leaving {
		if r.leaves(l.UID) {
			need -= r.frees(l.UID)
		}
	}
	if need <= 0 {
		return candidate{}
	}
	return r.best(func(pod *model.Pod) candidate {
		bytes := r.frees(pod.UID)
		c := candidate{pod: pod, bytes: bytes, excess: max(bytes-need, 0)}
		c.score = float64(min(bytes, need)) / lost(r.n, pod)
		c.reason = model.Reason{Code: model.MemoryExhausted, Operands: []model.Operand{
			{Name: "left", Value: r.left, Unit: model.UnitBytes},
			{Name: "need", Value: need, Unit: model.UnitBytes},
			{Name: "relief", Value: bytes, Unit: model.UnitBytes},
			ran(r.n, pod),
		}}
		return c
	})
}

// forCPU chooses the starving pod that loses the least work.
func (r *round) forCPU() candidate {
	return r.best(func(pod *model.Pod) candidate {
		if since := find(r.state.Hunger, pod.UID); since == nil || since.At < starved {
			return candidate{}
		}
		c := candidate{pod: pod, score: 1 / lost(r.n, pod)}
		c.reason = model.Reason{Code: model.BatchStarved, Operands: []model.Operand{
			{Name: "sold", Value: sold(pod), Unit: model.UnitMilli},
			{Name: "used", Value: r.n.Load.Pod(pod.UID).CPU.Milli, Unit: model.UnitMilli},
			ran(r.n, pod),
		}}
		return c
	})
}

// best returns the best eligible pod: first those with the annotation evict=first, then batch before mid, then by
// score.
func (r *round) best(rate func(*model.Pod) candidate) candidate {
	var best candidate
	for _, pod := range r.n.Pods {
		if find(r.state.Skipped, pod.UID) != nil || !r.may(pod) {
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

// frees returns the memory that the departure of a pod frees: its working set minus the page cache that counts as
// left already. Its measurement may be old; but then the account is old too, and nothing is requested.
func (r *round) frees(uid string) int64 {
	u := r.n.Load.Pod(uid)
	if u == nil || u.Memory.At == 0 {
		return 0
	}
	return max(u.Memory.WorkingSet-u.Memory.ActiveFile, 0)
}

// lost returns the work lost with a pod: its lifetime times its requested CPU.
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
