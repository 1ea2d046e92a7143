package pool

import "time"

// Opening is the state of a pool's windows at one time.
type Opening struct {
	Open  bool
	Start time.Time // when the present window began; zero: it has no beginning
	Drain time.Time // when its workers begin to drain; zero: never
	End   time.Time // when they must have stopped; zero: never
}

// Ramp spreads workers over time.
type Ramp struct {
	Waves    int           // groups of workers, in their order, of about the same size; at least 1
	Interval time.Duration // between the starts of two waves
}

// Schedule returns whether the i-th of n workers is to run, and when it must have stopped; zero: it has no end. Waves
// start one interval after another, and begin to drain over the first half of the time before the end.
func Schedule(now time.Time, o Opening, r Ramp, i, n int) (wanted bool, end time.Time) {
	if !o.Open {
		return false, time.Time{}
	}
	waves := max(r.Waves, 1)
	wave := time.Duration(i * waves / max(n, 1))
	if now.Before(o.Start.Add(wave * r.Interval)) {
		return false, o.End
	}
	if o.End.IsZero() {
		return true, time.Time{}
	}
	drain := o.Drain.Add(wave * o.End.Sub(o.Drain) / time.Duration(2*waves))
	return now.Before(drain), o.End
}

// Allowance returns what a worker may offer: the floor, which its pod requests, and its part of the rest, which is what
// no batch pod of its node requests. Workers on a node have equal parts.
func Allowance(floor, rest Size, workers int) Size {
	n := int64(max(workers, 1))
	return Size{
		MemoryMiB: floor.MemoryMiB + max(rest.MemoryMiB, 0)/n,
		VCores:    floor.VCores + max(rest.VCores, 0)/n,
	}
}

// Over reports whether the last known end of a worker has come. It must have stopped, whatever is known besides.
func (m *Marks) Over(now time.Time) bool { return !m.End.IsZero() && !now.Before(m.End) }

// StopsBy returns when a worker with a pod that is to stop must have stopped. It has the time of a drain if it has no
// end, and a grace if its node asks for its eviction.
func (w *Worker) StopsBy(m *Marks, drain, grace time.Duration) time.Time {
	end := m.Leaving.Add(drain)
	if !w.Wanted && !w.End.IsZero() {
		end = w.End // it drains for the end of its window
	}
	if w.Pod.Evicted {
		end = earlier(end, m.Leaving.Add(grace))
	}
	return earlier(end, m.End)
}

// earlier returns the earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
