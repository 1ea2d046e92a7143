package contention

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How the limit follows harm. Fractions are in thousandths of the capacity.
const (
	cutGain      = 2                      // CPU taken from batch for each CPU that online pods lack
	minCut       = 50                     // taken at least
	cutSettles   = 250 * time.Millisecond // a cut takes effect in this time: a period of a quota, and a sample
	sameHarm     = 2 * time.Second        // harm that returns within this time belongs to the one before
	minRecovery  = 2 * time.Second        // the limit is back at what online pods bore no sooner than this after harm
	slowRecovery = 30 * time.Second       // the same where harm shows seconds later: by pressure, or by a service's figure
	maxRecovery  = 10 * time.Minute       // at most; that time doubles each time that harm returns at the same limit
	returnFactor = 3                      // times that time within which harm returned at the same limit

	provenAtFloor     = 5 * time.Second  // at its lowest for so long, batch is not the cause of what is lacking
	trialAfter        = 2 * time.Second  // at its lowest for so long, it is tried whether less helps; pressure shows it
	trialDepth        = 250              // taken from the limit by arithmetic, to try whether that ends the harm
	trialLength       = 8 * time.Second  // for which that is tried
	trialInterval     = 2 * time.Minute  // between two such trials
	minForgetInterval = 10 * time.Minute // between two times that the limit is forgotten because a harmed pod left
	maxHarmedPods     = 16               // harmed pods that are remembered
	maxGrowth         = 100              // times Soon: after so long without harm, any machine is covered
)

// bearing is how much batch the online pods of a node bear.
//
// After harm, the limit grows as the window of TCP CUBIC does (RFC 9438, section 4.2): fast at first, slowly near the
// limit at which online pods were harmed, and faster again beyond it, if they bear that. As there, only time counts in
// which that is tried: while batch runs, and while what online pods lack is known. If it is not, the limit grows up to
// what arithmetic leaves.
type bearing struct {
	Known  bool
	Limit  int64         // of batch, in milli-cores; it stays while harm is not known
	Bears  int64         // what batch used when online pods were harmed
	From   int64         // the limit when harm ended
	Grew   time.Duration // time without harm since then
	Soon   time.Duration // Grew at which the limit is back at Bears
	Cut    time.Duration // when the limit was cut last; 0: never
	Pods   []string      `json:",omitempty"` // UIDs of the pods that were harmed and are still there, ordered
	Anew   time.Duration `json:",omitempty"` // when Bears was forgotten last, because they had left
	Deep   bool          `json:",omitempty"` // a figure of a service pushed batch below arithmetic, and it is still there
	Deeper bool          `json:",omitempty"` // waits push batch below arithmetic: it is tried, or it helped
	Tried  time.Duration `json:",omitempty"` // when that trial began, or that push ended; 0: it has not, or it helped
	Vain   time.Duration `json:",omitempty"` // for which that push seemed to be in vain, or not needed
	Low    time.Duration `json:",omitempty"` // since when the limit has been at its lowest; 0: it is not, or not in force
}

// lowFor reports whether batch has been pushed back as far as harm may push it for so long.
func (b *bearing) lowFor(now, long time.Duration) bool { return b.Low != 0 && now-b.Low >= long }

// bear sets the limit by harm. It is never below the limit by arithmetic, unless that proves to help, or a service's
// own figure shows harm. Where harm is not known, the limit is at most that by arithmetic.
func (r *round) bear() {
	b, h, least := &r.state.Harm, r.Harm, r.state.Arithmetic.Milli
	if !b.Known {
		*b = bearing{Known: true, Limit: least, From: least, Bears: r.cpu.Capacity, Soon: minRecovery}
	}
	r.forgetPods()
	harmed := h.Milli > 0 && r.Batch.Running
	r.tryDeeper(harmed)
	if b.Deep && !r.pushes() {
		r.release()
	}
	was := b.Deep
	if b.Deep = b.Deep && b.Limit < r.floorOfWaits() || harmed && h.Deep; b.Deep && !was {
		b.Low = 0 // until now it was at another lowest limit
	}
	floor, trying := r.floor(), b.Deeper && b.Tried != 0
	switch {
	case harmed && h.Milli == h.Held:
		b.Grew = 0
	case harmed && r.now-b.Cut >= cutSettles:
		if h.Deep || r.proven || trying {
			r.cut(floor)
		} else {
			r.cut(max(floor, least))
		}
	case !harmed && (h.Known || r.below()) && !trying && !r.holds &&
		(!r.Batch.Quiet || b.Cut == 0 || 2*r.cpu.Use.Batch >= b.Limit):
		b.Grew = min(b.Grew+r.since, maxGrowth*b.Soon)
		b.Limit = max(b.Limit, b.grown(r.cpu.Capacity*minCut/1000))
	}
	b.Limit = min(max(b.Limit, floor), r.cpu.Capacity)
	r.atFloor = b.Limit <= floor+r.cpu.Capacity*minCut/1000
	most := floor + r.cpu.Capacity*minCut/1000
	if b.Deep {
		most = floor + r.quiet() // a figure may answer to little batch
	}
	switch {
	case b.Limit > most || len(b.Pods) == 0 || !r.inForce():
		b.Low = 0
	case b.Low == 0:
		b.Low = r.now
	}
	r.limit = b.Limit
	if !h.Known || r.n.Stopping {
		r.limit = min(r.limit, least)
	}
	r.explainHarm(harmed)
}

// inForce reports whether batch keeps to the limit, as far as that was to be seen yet. A limit that is only observed,
// or that the kernel refused, proves nothing.
func (r *round) inForce() bool {
	b := &r.state.Harm
	most := max(b.Limit, int64(len(r.state.Parts))*model.MinBatchPart) + r.cpu.Capacity*minCut/1000
	return r.p.Mode == model.ModeEnforce && (r.cpu.Use.Batch <= most || r.now-b.Cut < trialAfter)
}

// floor returns the lowest limit to which harm may push batch now. A figure may push it below arithmetic. Once it is
// good, batch gets that back along the cubic, and waits do not count meanwhile, see [round.counts].
func (r *round) floor() int64 {
	if r.state.Harm.Deep {
		return min(r.state.Arithmetic.Milli, max(r.minBatch(), model.MinBatchPart))
	}
	return r.floorOfWaits()
}

// floorOfWaits returns the lowest limit to which waits may push batch now.
func (r *round) floorOfWaits() int64 {
	least := r.state.Arithmetic.Milli
	if !r.state.Harm.Deeper {
		return least
	}
	return max(least-r.cpu.Capacity*trialDepth/1000, min(least, max(r.minBatch(), model.MinBatchPart)))
}

// below reports whether batch has less than arithmetic leaves.
func (r *round) below() bool {
	return r.state.Harm.Known && r.state.Harm.Limit < r.state.Arithmetic.Milli
}

// judges reports whether the waits of a pod count: below what arithmetic leaves, only those of a pod that this helps,
// or while it is tried, and no lower than waits may push batch.
func (r *round) judges(p *Pod) bool {
	b := &r.state.Harm
	helps := b.Deeper && (b.Tried != 0 || p.Trial == helped) && b.Limit >= r.floorOfWaits()
	return helps || !r.below()
}

// counts returns what a pod lacks, as far as that counts.
func (r *round) counts(p *Pod) int64 {
	if !r.judges(p) {
		return 0
	}
	return p.Harm.Milli
}

// tryDeeper tries whether less than arithmetic leaves helps pods that are harmed at that limit, and keeps to it if one
// of them then lacks half of what it lacked.
func (r *round) tryDeeper(harmed bool) {
	b := &r.state.Harm
	switch {
	case !b.Deeper:
		if harmed && b.lowFor(r.now, trialAfter) && !b.Deep && (b.Tried == 0 || r.now-b.Tried >= trialInterval) {
			b.Deeper, b.Tried, b.Vain, b.Low = true, r.now, 0, 0
			r.judgeTrial(func(p *Pod) int64 { return p.Lacks })
		}
	case b.Tried != 0 && r.now-b.Tried < trialLength:
	case b.Tried != 0:
		helps := r.judgeTrial(func(p *Pod) int64 {
			if p.Trial > 0 && 2*p.Lacks <= p.Trial {
				return helped
			}
			return 0
		})
		if b.Tried = 0; helps {
			b.Bears = min(b.Bears, r.state.Arithmetic.Milli) // they were harmed there
		} else {
			b.Deeper, b.Tried = false, r.now
			b.Low = max(r.now-provenAtFloor, 1) // it was at its lowest before
		}
	default:
		late, least := trialAfter, r.state.Arithmetic.Milli
		if r.Harm.Signal == model.HarmByDelay {
			late = 2 * cutSettles
		}
		if harmed && b.Low != 0 && r.now-b.Cut >= late || !harmed && min(b.Limit, r.cpu.Use.Batch) > least {
			b.Vain += r.since
		}
		if b.Vain >= trialAfter {
			b.Deeper, b.Tried = false, r.now // it helped by chance
		}
	}
}

// judgeTrial sets what a trial means for each pod, and reports whether it helped one.
func (r *round) judgeTrial(of func(*Pod) int64) (helps bool) {
	r.state.Pods = slices.Clone(r.state.Pods)
	for i := range r.state.Pods {
		p := &r.state.Pods[i]
		p.Trial = of(p)
		helps = helps || p.Trial == helped
	}
	return helps
}

// cut lowers the limit by what online pods lack, to the floor at the lowest.
func (r *round) cut(floor int64) {
	b, h := &r.state.Harm, r.Harm
	used := min(b.Limit, max(r.cpu.Use.Batch, floor))
	to := used - max(cutGain*(h.Milli-h.Held), r.cpu.Capacity*minCut/1000)
	if h.Keeps > 0 {
		to = min(to, used*h.Keeps/1000)
	}
	to = max(to, floor)
	if b.Grew > 0 || b.Cut == 0 { // it is another harm than in the round before
		switch {
		case b.Grew < sameHarm:
			b.Bears = min(b.Bears, used)
		case 2*b.Grew < b.Soon || b.Grew > returnFactor*b.Soon: // it came at another limit than the last one
			b.Bears, b.Soon = used, max(b.Soon/2, minRecovery)
		default:
			b.Bears, b.Soon = used, min(2*b.Soon, maxRecovery)
		}
	}
	if h.Deep || h.Signal != model.HarmByDelay {
		b.Soon = max(b.Soon, slowRecovery)
	}
	b.Grew = 0
	for _, uid := range r.harmed {
		if i, found := slices.BinarySearch(b.Pods, uid); !found && len(b.Pods) < maxHarmedPods {
			b.Pods = slices.Insert(slices.Clone(b.Pods), i, uid)
		}
	}
	if to >= b.Limit {
		b.From = b.Limit
		return // it is at its lowest
	}
	r.state.Reaction.Reduce(r.now, b.Limit, to, r.cpu.Use.Batch)
	b.Limit, b.From, b.Cut = to, to, r.now
}

// grown returns the limit after so much time without harm. The cubic has some height, so that batch gets the machine
// back within about half an hour, however low the limit was.
func (b *bearing) grown(least int64) int64 {
	x := int64((b.Grew - b.Soon) * 1000 / b.Soon)
	height := max(b.Bears-b.From, least)
	return b.Bears + height*x/1000*x/1000*x/1000
}

// forgetPods forgets what online pods bear when the last one that was harmed has left: others may bear more. Pods that
// come and go may not have that forgotten at will.
func (r *round) forgetPods() {
	b := &r.state.Harm
	if len(b.Pods) == 0 {
		return
	}
	left := func(uid string) bool {
		if model.IsSystem(uid) {
			return false
		}
		pod := model.FindPod(r.n.Pods, uid)
		return pod == nil || !r.watched(pod)
	}
	if there := slices.DeleteFunc(slices.Clone(b.Pods), left); len(there) > 0 {
		b.Pods = there
		return
	}
	if b.Anew != 0 && r.now-b.Anew < minForgetInterval {
		return // the list stays until then
	}
	b.Pods, b.Anew, b.Low, b.Deep, b.Deeper, b.Tried = nil, r.now, 0, false, false, 0
	b.Bears, b.From, b.Grew, b.Soon = r.cpu.Capacity, b.Limit, 0, minRecovery
}

// release gives batch back what figures took from it below arithmetic, because none of their services is left. What it
// got above that is as uncertain as after any harm that a figure shows. Services that come and go may not shorten the
// time at will that pods which wait have earned.
func (r *round) release() {
	b := &r.state.Harm
	b.Limit = max(b.Limit, r.floorOfWaits())
	b.Deep, b.From, b.Bears, b.Grew = false, b.Limit, max(b.Bears, b.Limit), 0
	if b.Anew == 0 || r.now-b.Anew >= minForgetInterval {
		b.Soon, b.Anew = slowRecovery, r.now
	}
}

// free reports whether batch may use the whole machine because no online pod is harmed.
func (r *round) free() bool { return r.state.Harm.Known && r.limit >= r.cpu.Capacity }

// explainHarm sets the reason of a limit by harm.
func (r *round) explainHarm(harmed bool) {
	left := model.Operand{Name: "left", Value: r.cpu.Allow, Unit: model.UnitMilli}
	bears := model.Operand{Name: "bears", Value: r.state.Harm.Bears, Unit: model.UnitMilli}
	switch {
	case harmed:
		r.why = r.Harm.Worst.Reason()
		if r.why.Key == "" {
			r.why.Key, r.why.Text = "pod", model.PodName(r.n.Pods, r.Harm.Worst.UID)
		}
		r.why.Operands = append(r.why.Operands, left)
	case r.n.Stopping:
	case !r.Harm.Known:
		r.why.Code, r.why.Key, r.why.Text = model.HarmUnknown, "pod", model.PodName(r.n.Pods, r.Harm.Blind)
	case r.free():
		r.why = model.Reason{Code: model.BatchFree, Operands: []model.Operand{left}}
	default:
		r.why = model.Reason{Code: model.BatchProbes, Operands: []model.Operand{left, bears}}
	}
}
