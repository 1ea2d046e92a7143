package contention

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How the limit follows harm. Fractions are in thousandths of the capacity.
const (
	gain    = 2                      // CPU taken from batch for each CPU that online pods lack
	step    = 50                     // taken at least
	settles = 250 * time.Millisecond // a cut takes effect in this time: a period of a quota, and a sample
	episode = 2 * time.Second        // harm that returns within this time belongs to the one before
	soon    = 2 * time.Second        // the limit is back at what online pods bore no sooner than this after harm
	slowly  = 30 * time.Second       // the same where harm shows seconds later: by pressure, or by a service's figure
	latest  = 10 * time.Minute       // maximum of that time, which doubles each time that harm returns at the same limit
	returns = 3                      // times that time within which harm returned at the same limit

	reached  = 5 * time.Second  // at its lowest for so long, batch is not the cause of what is lacking
	helpless = 2 * time.Second  // at its lowest for so long, it is tried whether less helps; pressure shows a cut then
	deeper   = 250              // taken from the limit by arithmetic, to try whether that ends the harm
	trial    = 8 * time.Second  // for which that is tried
	pause    = 2 * time.Minute  // between two such trials
	anew     = 10 * time.Minute // between two times that the limit is forgotten because a harmed pod left
	mostPods = 16               // harmed pods that are remembered
)

// bearing is how much batch the online pods of a node bear.
//
// After harm, the limit grows as the window of TCP CUBIC does (RFC 9438, section 4.2): fast at first, slowly near the
// limit at which online pods were harmed, and faster again beyond it, if they bear that. As there, only time counts in
// which that is tried: while batch runs, and while what online pods lack is known.
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
	Deep   bool          `json:",omitempty"` // a figure of a service pushes batch below arithmetic
	Deeper bool          `json:",omitempty"` // waits push batch below arithmetic: it is tried, or it helped
	Tried  time.Duration `json:",omitempty"` // when that trial began, or failed; 0: it has not, or it helped
	Lacks  int64         `json:",omitempty"` // what pods lacked lately: it falls by a third in a second
	Before int64         `json:",omitempty"` // what that was when the trial began
	Low    time.Duration `json:",omitempty"` // since when the limit has been at its lowest; 0: it is not
}

// lowFor reports whether batch has been pushed back as far as harm may push it for so long.
func (b *bearing) lowFor(now, long time.Duration) bool { return b.Low != 0 && now-b.Low >= long }

// bear sets the limit by harm. It is never below the limit by arithmetic, unless that proves to help, or a service's
// own figure shows harm. Where harm is not known, the limit is at most that by arithmetic.
func (r *round) bear() {
	b, h, least := &r.state.Harm, r.Harm, r.state.Arithmetic.Milli
	if !b.Known {
		*b = bearing{Known: true, Limit: least, From: least, Bears: r.cpu.Capacity, Soon: soon}
	}
	r.forgetPods()
	harmed := h.Milli > 0 && r.Batch.Running
	b.Lacks = max(h.Milli, b.Lacks-b.Lacks*int64(r.since/time.Millisecond)/3000)
	b.Deep = b.Deep && b.Limit < least || harmed && h.Deep
	r.tryDeeper(harmed)
	floor := r.floor()
	switch {
	case harmed && h.Milli == h.Held:
		b.Grew = 0
	case harmed && r.now-b.Cut >= settles:
		r.cut(floor)
	case !harmed && h.Known && (!r.Batch.Quiet || b.Cut == 0 || 2*r.cpu.Use.Batch >= b.Limit):
		b.Grew += r.since
		b.Limit = max(b.Limit, b.grown())
	}
	b.Limit = min(max(b.Limit, floor), r.cpu.Capacity)
	switch low := b.Limit <= floor+r.cpu.Capacity*step/1000; {
	case !low || len(b.Pods) == 0:
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

// floor returns the lowest limit to which harm may push batch now.
func (r *round) floor() int64 {
	b, least := &r.state.Harm, r.state.Arithmetic.Milli
	lowest := min(least, max(r.minBatch(), leastPart))
	switch {
	case b.Deep:
		return lowest
	case b.Deeper:
		return max(least-r.cpu.Capacity*deeper/1000, lowest)
	}
	return least
}

// tryDeeper tries whether less than arithmetic leaves helps pods that are harmed at that limit, and keeps to it if they
// then lack half of what they lacked.
func (r *round) tryDeeper(harmed bool) {
	b := &r.state.Harm
	switch {
	case !b.Deeper:
		if harmed && b.lowFor(r.now, helpless) && !b.Deep && (b.Tried == 0 || r.now-b.Tried >= pause) {
			b.Deeper, b.Tried, b.Before, b.Low = true, r.now, b.Lacks, 0
		}
	case b.Tried != 0 && r.now-b.Tried >= trial:
		if 2*b.Lacks > b.Before {
			b.Deeper, b.Tried = false, r.now
			b.Low = max(r.now-reached, 1) // it was at its lowest before
			return
		}
		b.Tried = 0
	case b.Tried != 0:
	case harmed && b.lowFor(r.now, helpless):
		b.Deeper, b.Tried = false, r.now // it helped once, by chance
	case !harmed && b.Limit > r.state.Arithmetic.Milli:
		b.Deeper = false
	}
}

// cut lowers the limit by what online pods lack, to the floor at the lowest.
func (r *round) cut(floor int64) {
	b, h := &r.state.Harm, r.Harm
	used := min(b.Limit, max(r.cpu.Use.Batch, floor))
	to := used - max(gain*(h.Milli-h.Held), r.cpu.Capacity*step/1000)
	if h.Keeps > 0 {
		to = min(to, used*h.Keeps/1000)
	}
	to = max(to, floor)
	if b.Grew > 0 || b.Cut == 0 { // it is another harm than in the round before
		switch {
		case b.Grew < episode:
			b.Bears = min(b.Bears, used)
		case 2*b.Grew < b.Soon || b.Grew > returns*b.Soon: // it came at another limit than the last one
			b.Bears, b.Soon = used, max(b.Soon/2, soon)
		default:
			b.Bears, b.Soon = used, min(2*b.Soon, latest)
		}
	}
	if h.Deep || h.Signal != model.HarmByDelay {
		b.Soon = max(b.Soon, slowly)
	}
	b.Grew = 0
	for _, uid := range r.harmed {
		if i, found := slices.BinarySearch(b.Pods, uid); !found && len(b.Pods) < mostPods {
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

// grown returns the limit after so much time without harm.
func (b *bearing) grown() int64 {
	const far = 100_000 // beyond it any machine is covered, by the least height too
	x := min(int64((b.Grew-b.Soon)*1000/b.Soon), far)
	height := max(b.Bears-b.From, 10)
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
	if slices.ContainsFunc(b.Pods, left) {
		b.Pods = slices.DeleteFunc(slices.Clone(b.Pods), left)
	}
	if len(b.Pods) > 0 || b.Anew != 0 && r.now-b.Anew < anew {
		return
	}
	b.Anew, b.Low, b.Deep, b.Deeper, b.Tried = r.now, 0, false, false, 0
	b.Bears, b.From, b.Grew, b.Soon = r.cpu.Capacity, b.Limit, 0, soon
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
