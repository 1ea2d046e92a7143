package pool

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Parts of sizes.
const (
	deadBand = 5 // percent of a worker's vcores; less is no reason to change them
	// The margin of memory, in percent of what a worker may offer beyond its floor: before it was measured, and at least.
	initialMargin = 15
	minMargin     = 5
	// Growth is hasty if the node takes it back within hastyWindows windows. A worker that shrank does not grow for at
	// most maxHoldWindows windows.
	hastyWindows   = 3
	maxHoldWindows = 6
	// Containers that only lack CPU run slower. While their node sells resources, they have this multiple of the grace to
	// end.
	patienceFactor = 60
	// The upper limit of that time. A ResourceManager accepts no deadline beyond 24 days.
	maxPatience = 24 * time.Hour
	minNotice   = 5 * time.Second // of a deadline; of a short grace, a quarter
)

// Figures are what a worker may offer by figures of its node over time ([Windows]), the floor included. The zero value
// allows the floor.
type Figures struct {
	Now, Tenth, Half, Whole, Lowest, Spare Size
	Margin                                 int64 // MiB of the worker's memory; -1: not measured yet
	Watched                                bool
}

// Figures returns the figures of a worker. size returns what the worker may offer if its node has a rest.
func (w Windows) Figures(size func(rest model.Amount) Size) Figures {
	f := Figures{
		Now: size(w.Now), Tenth: size(w.Tenth), Half: size(w.Half), Whole: size(w.Whole), Lowest: size(w.Lowest),
		Spare: size(w.Spare), Margin: -1, Watched: w.Watched,
	}
	if w.Margin >= 0 {
		f.Margin = size(model.Amount{Memory: w.Margin}).MemoryMiB - size(model.Amount{}).MemoryMiB
	}
	return f
}

// target returns the total that a NodeManager is to have now. CPU and memory each follow the node.
func (r *round) target(m *Manager) Size {
	// A ceiling that was lowered holds for what starts from now on.
	r.set.Ceiling = r.set.Ceiling.Or(m.Used.And(r.limit()))
	f, c, step := r.set.Floor, r.set.Ceiling, r.set.Step
	total := Size{
		MemoryMiB: steady(m.Total.MemoryMiB, f.MemoryMiB, c.MemoryMiB, step.MemoryMiB),
		VCores:    steady(m.Total.VCores, f.VCores, c.VCores, step.VCores),
	}
	may := r.mayGrow()
	want := Size{MemoryMiB: r.memory(total.MemoryMiB, may), VCores: r.vcores(total.VCores, m.Used.VCores, may)}
	want = want.Or(r.kept(m))
	if r.ending(m) {
		want = want.Or(m.Total)
	}
	if !total.Fits(want) {
		r.shrinks()
	}
	return want
}

// limit returns what the pod's limits leave for containers; without limits that are known, the ceiling.
func (r *round) limit() Size {
	if r.w.Pod != nil && r.w.Pod.Ceiling != (Size{}) {
		return r.w.Pod.Ceiling
	}
	return r.set.Ceiling
}

// shrinks records when a worker shrank, and for how long it must not grow after that. If it had grown shortly before,
// the slack is unstable, and that time doubles.
func (r *round) shrinks() {
	m, window := &r.marks, r.set.Window
	switch {
	case !m.Grown.After(m.Shrunk): // it went on shrinking
	case r.in.Now.Sub(m.Grown) < hastyWindows*window:
		m.Hold = min(2*max(m.Hold, window), maxHoldWindows*window)
	default:
		m.Hold /= 2
	}
	m.Shrunk = r.in.Now
}

// whole returns the floor and the whole steps above it that are allowed, up to the ceiling.
func whole(allowed, floor, ceiling, step int64) int64 {
	step = max(step, 1)
	return min(floor+max(allowed-floor, 0)/step*step, max(ceiling, floor))
}

// steady returns the total that is nearest to the present one: the floor and whole steps above it, or the ceiling.
func steady(total, floor, ceiling, step int64) int64 {
	if ceiling = max(ceiling, floor); total >= ceiling {
		return ceiling
	}
	return whole(total, floor, ceiling, step)
}

// mayGrow reports whether a worker may take a step up: its node was watched for the window, the last step has had time
// to prove harmless, a window or more has passed since the worker last shrank, and the spec of the pool can be used.
func (r *round) mayGrow() bool {
	return !r.set.Invalid && r.w.Figures.Watched && r.marks.Until.IsZero() && r.in.Now.Sub(r.marks.Grown) >= r.set.Pause &&
		r.in.Now.Sub(r.marks.Shrunk) >= max(r.marks.Hold, r.set.Window)
}

// vcores returns the vcores that a NodeManager is to have.
//
// CPU can be taken back from batch within milliseconds, and then containers run slower. So a worker shrinks to the
// average of the short window, not for each dip, and not by less than a CPU (or a step) and 5 %. It shrinks at once if
// the node sells nothing, or if batch may use less than containers have of it.
func (r *round) vcores(total, used int64, may bool) int64 {
	f, s := &r.w.Figures, r.set
	fit := func(allowed int64) int64 { return whole(allowed, s.Floor.VCores, s.Ceiling.VCores, s.Step.VCores) }
	dead := max(min(s.Core, s.Step.VCores), 1, (total*deadBand+99)/100)
	lasting := min(f.Now.VCores, f.Tenth.VCores, f.Half.VCores, f.Whole.VCores)
	switch {
	case f.Now.VCores <= s.Floor.VCores:
		return min(total, s.Floor.VCores)
	case used > f.Spare.VCores && total > f.Spare.VCores:
		return min(total, fit(min(f.Now.VCores, f.Spare.VCores)))
	case total-f.Tenth.VCores > dead && r.in.Now.Sub(r.marks.Shrunk) >= s.Pause: // figures are rounded down
		return min(total, fit(f.Tenth.VCores))
	case may && lasting-total >= dead:
		return max(total, min(fit(lasting), total+max(s.Step.VCores, 1)))
	}
	return total
}

// memory returns the MiB of memory that a NodeManager is to have.
//
// Memory cannot be taken back without killing processes, and that takes time. So a worker stays a margin below what its
// node has: as much as that fell while workers would have released memory. It shrinks as soon as the margin is touched,
// and grows into the lowest amount of the whole window only.
func (r *round) memory(total int64, may bool) int64 {
	f, s := &r.w.Figures, r.set
	fit := func(allowed int64) int64 {
		allowed -= r.margin(allowed)
		return whole(allowed, s.Floor.MemoryMiB, s.Ceiling.MemoryMiB, s.Step.MemoryMiB)
	}
	want := total
	if now := fit(f.Now.MemoryMiB); now < total {
		want = now
	} else if may {
		want = max(total, min(now, fit(f.Lowest.MemoryMiB), total+max(s.Step.MemoryMiB, 1)))
	}
	if want != total && f.Margin >= 0 {
		r.marks.Margin = max(f.Margin, 1) // 0 stands for none
	}
	return want
}

// margin returns the margin below an amount of memory. A controller that has just started has measured none. Then that
// of the last change counts, so that nothing shrinks because of the start.
func (r *round) margin(allowed int64) int64 {
	beyond := max(allowed-r.set.Floor.MemoryMiB, 0)
	switch {
	case r.w.Figures.Margin >= 0:
		return max(r.w.Figures.Margin, beyond*minMargin/100)
	case r.marks.Margin > 0:
		return max(r.marks.Margin, beyond*minMargin/100)
	}
	return beyond * initialMargin / 100
}

// patience returns how long containers have to end that do not fit into a size.
func (r *round) patience(m *Manager, want Size) time.Duration {
	slower := m.Used.MemoryMiB <= want.MemoryMiB && r.w.Sells
	if slower && r.labelled(m) {
		return max(r.set.Grace, patienceFactor*min(r.set.Grace, maxPatience/patienceFactor))
	}
	return r.set.Grace
}
