package contention

import (
	"math"
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	assumedMilli = 100 // milli-cores; the assumed request of a pod without one
	// A pod that uses this fraction of its part, in thousandths, could use more. A pod below counts with its usage
	// plus some room; without room it could never show that it needs more.
	usedUpPart  = 900
	spareFactor = 1250
	spareMilli  = 50 // milli-cores

	smallChange = 8 // parts may stay where they add up to one part in so many less than the limit

	raiseMargin = 100 // batch gets a further CPU or core when its limit exceeds that by this, in milli-cores
	// Below this size of a node, in milli-cores, quotas limit batch: one CPU less would be more than an eighth of it.
	fewCPUs = 8000
)

// onCPUs reports whether batch can be limited to fewer CPUs. Otherwise quotas limit it.
func onCPUs(n *model.Node) bool { return !n.Tree.NoCpusets && n.Topology != nil }

// LacksCPUSets reports whether quotas limit batch although the node is large enough for fewer CPUs.
func LacksCPUSets(n *model.Node) bool {
	return !onCPUs(n) && n.Load != nil && n.Load.CPUMilli >= fewCPUs
}

// means returns whether quotas enforce the limit, and the threads of a core. Quotas cannot keep the other threads of
// online pods' cores free.
func (r *round) means() (quotas bool, core int) {
	if !onCPUs(r.n) {
		return true, 1
	}
	core = r.n.Topology.Threads()
	return r.cpu.Capacity < fewCPUs && core == 1, core
}

// count sets the number of CPUs for batch, a multiple of the threads of a core: no thread of an online pod runs beside
// one of batch on the cores that batch leaves. Batch gets a further core only if its limit exceeds that core by some
// margin. Otherwise it would move between CPUs whenever the limit fluctuates.
func (r *round) count(quotas bool, core int) {
	s := &r.state
	most := int(r.cpu.Capacity / 1000)
	if most == 0 || quotas || r.free() {
		s.CPUs = 0
		return
	}
	fit := func(milli int64) int { return min(max(int(milli/1000)/core*core, core), most) }
	switch n := fit(r.limit); {
	case s.CPUs == 0, n < s.CPUs:
		s.CPUs = n
	default:
		s.CPUs = max(s.CPUs/core*core, fit(r.limit-raiseMargin))
	}
}

// divide divides the limit of batch among the batch pods.
//
// CPU is divided in proportion to requests. What a pod does not use goes to the others. The parts stay the same while
// the limit stays the same, unless a pod could use what another leaves: a quota that changes each second would
// throttle its pod at irregular times. Memory is divided by requests alone, because it cannot be taken back.
func (r *round) divide(memory int64) {
	needs := make([]need, 0, len(r.state.Parts))
	var bytes int64
	for _, pod := range r.n.Pods {
		if r.isBatch(pod) {
			d := r.need(pod)
			needs = append(needs, d)
			bytes += d.bytes
		}
	}
	share(r.limit, needs)
	settled := r.settled(needs)
	parts := make([]model.BatchPart, len(needs))
	for i, d := range needs {
		parts[i] = model.BatchPart{UID: d.uid, Milli: d.part}
		if settled {
			parts[i].Milli = d.had
		}
		if bytes > 0 {
			parts[i].Memory = int64(float64(memory) * float64(d.bytes) / float64(bytes))
		}
	}
	r.state.Parts = parts
}

// need is the demand of one pod in the division, in milli-cores.
type need struct {
	uid    string
	weight int64 // its request
	most   int64 // most that it could use; 0: not known
	had    int64 // its part in the previous round
	wants  bool  // it uses up that part
	part   int64
	bytes  int64 // its memory request
}

func (r *round) need(pod *model.Pod) need {
	d := need{
		uid:    pod.UID,
		weight: max(pod.Grant.RequestMilli, pod.RequestMilli),
		most:   max(pod.Grant.LimitMilli, pod.LimitMilli),
		bytes:  pod.Mid.Memory + pod.Batch.Memory + pod.MemoryRequest,
	}
	if d.weight == 0 {
		d.weight = assumedMilli
	}
	old := model.FindByUID(r.state.Parts, pod.UID, func(p *model.BatchPart) string { return p.UID })
	if old != nil {
		d.had = old.Milli
	}
	u := r.n.Load.Pod(pod.UID)
	if old == nil || u == nil || u.CPU.At == 0 {
		return d // it has just started
	}
	d.wants = u.CPU.Milli*1000 >= d.had*usedUpPart
	if likely := u.CPU.Milli*spareFactor/1000 + spareMilli; !d.wants && (d.most == 0 || likely < d.most) {
		d.most = likely
	}
	return d
}

// settled reports whether the parts of the previous round can stay: the limit and the pods are the same, and no pod
// that wants more would get considerably more.
func (r *round) settled(needs []need) bool {
	if !slices.EqualFunc(needs, r.state.Parts, func(d need, p model.BatchPart) bool { return d.uid == p.UID }) {
		return false
	}
	var sum int64
	for _, d := range needs {
		sum += d.had
		if d.had < model.MinBatchPart || d.wants && d.part > d.had*spareFactor/1000+spareMilli {
			return false
		}
	}
	band := min(r.cpu.Capacity*deadBand/1000, r.limit/smallChange) // of a low limit, much is little
	return sum <= max(r.limit, int64(len(needs))*model.MinBatchPart) && sum >= r.limit-band
}

// share distributes an amount by weight. No pod gets more than it can use while others can use it. What no pod can
// use is distributed by weight too, for pods that want it in the next second.
func share(milli int64, needs []need) {
	claims := make([]model.Claim, len(needs))
	rest, weights := float64(milli), int64(0) // rest is what no pod can use
	for i, d := range needs {
		claims[i] = model.Claim{Weight: float64(d.weight), Limit: float64(d.most)}
		if d.most == 0 {
			claims[i].Limit = math.Inf(1)
		}
		rest = max(rest-claims[i].Limit, 0)
		weights += d.weight
	}
	for i, part := range model.Divide(float64(milli), claims) {
		d := &needs[i]
		d.part = max(int64(part)+int64(rest)*d.weight/weights, model.MinBatchPart)
	}
}
