package pool

import (
	"math"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Limits of a history.
const (
	// maxGap is the longest time between two observations of a node that a history bridges. A pool has a round every two
	// seconds at least.
	maxGap = time.Minute
	// spareWindow is the time of three samples of one second.
	spareWindow = 3 * time.Second
	// maxLevels is the number of levels that a history keeps. The agent reports amounts at most every 15 s.
	maxLevels = 128
	// releaseTime is the time from the growth of online pods' memory to its release by workers: 15 s until a report shows
	// the growth, the default of drain.grace, and some seconds for the processes to end.
	releaseTime = 90 * time.Second
	// marginAge is how long the falls of memory must have been observed before they determine the margin.
	marginAge = time.Hour
	halfLife  = 12 * time.Hour // of a fall of memory
)

// Level is what a node had for workers since a time.
type Level struct {
	At time.Time
	// Rest is the part of the offer that no batch pod requests. It may be negative.
	Rest model.Amount
	// Spare is the part of the allowance that no batch pod requests: what batch could use now beyond its requests. It is
	// never far below Rest, because an offer is never above the allowance. It may be negative.
	Spare model.Amount
}

// History is what a node had for workers in the past, up to some time. A level counts until the next one. The zero
// value has seen nothing. Values of a History are independent: See changes none.
type History struct {
	since time.Time // it was watched without a gap from then on
	seen  time.Time // the last observation
	past  []Level   // by time; the first may begin long before the time that is remembered
	// fall is the largest fall of the rest of the memory within releaseTime, in bytes, as of the time fell.
	fall int64
	fell time.Time
}

// See returns the history with what a node has now. It keeps as much as the given time. A history with a gap, or whose
// clock was set back, starts anew: what a worker may offer does not grow before it has been watched for long enough.
func (h History) See(now time.Time, rest, spare model.Amount, keep time.Duration) History {
	if len(h.past) == 0 || now.Before(h.seen) || now.Sub(h.seen) > maxGap {
		return History{since: now, seen: now, past: []Level{{now, rest, spare}}}
	}
	h.seen = now
	old := 0
	for old+1 < len(h.past) && now.Sub(h.past[old+1].At) >= keep {
		old++
	}
	if len(h.past)-old >= maxLevels {
		old++
		h.since = h.past[old].At // what is forgotten does not count
	}
	h.past = h.past[old:]
	if last := h.past[len(h.past)-1]; last.Rest != rest || last.Spare != spare {
		h.fall = max(h.falls(now), h.drop(rest.Memory))
		h.fell = now
		h.past = append(slices.Clone(h.past), Level{now, rest, spare})
	}
	return h
}

// falls returns the largest fall that is remembered. It counts for half after each half-life.
func (h History) falls(now time.Time) int64 {
	return int64(float64(h.fall) * math.Exp2(-now.Sub(h.fell).Hours()/halfLife.Hours()))
}

// drop returns by how much memory is less now than it was within the time in which workers release memory.
func (h History) drop(memory int64) (most int64) {
	for i, l := range h.past {
		if h.seen.Sub(h.until(i)) < releaseTime {
			most = max(most, l.Rest.Memory-memory)
		}
	}
	return most
}

// Windows are figures of a node over time windows.
type Windows struct {
	Now model.Amount // the present rest
	// Tenth, Half and Whole are the averages of the rest over a tenth of the window, half of it and all of it, and so by
	// default over 1, 5 and 10 minutes.
	Tenth, Half, Whole model.Amount
	// Lowest is the lowest rest of the window.
	Lowest model.Amount
	// Spare is the highest spare amount of the last three seconds.
	Spare model.Amount
	// Margin is the largest fall of the memory's rest within 90 s, in bytes: what the anonymous memory and the active page
	// cache of online pods may grow by while workers release memory. A fall counts for half after 12 hours. It is -1
	// before it was watched for an hour.
	Margin int64
	// Watched means that the whole window was watched. Otherwise the figures are of a shorter time.
	Watched bool
}

// Windows returns the figures over a window that ends with the last look.
func (h History) Windows(window time.Duration) Windows {
	if len(h.past) == 0 {
		return Windows{}
	}
	last := h.past[len(h.past)-1]
	w := Windows{
		Now: last.Rest, Lowest: last.Rest, Spare: last.Spare,
		Tenth: h.mean(window / 10), Half: h.mean(window / 2), Whole: h.mean(window),
		Watched: h.seen.Sub(h.since) >= window,
	}
	if w.Margin = -1; h.seen.Sub(h.since) >= marginAge {
		w.Margin = h.falls(h.seen)
	}
	for i := range h.past {
		l, until := h.past[i], h.until(i)
		if h.seen.Sub(until) < window {
			w.Lowest = model.Amount{CPU: min(w.Lowest.CPU, l.Rest.CPU), Memory: min(w.Lowest.Memory, l.Rest.Memory)}
		}
		if h.seen.Sub(until) < spareWindow {
			w.Spare = model.Amount{CPU: max(w.Spare.CPU, l.Spare.CPU), Memory: max(w.Spare.Memory, l.Spare.Memory)}
		}
	}
	return w
}

// until returns when a level ended.
func (h History) until(i int) time.Time {
	if i+1 < len(h.past) {
		return h.past[i+1].At
	}
	return h.seen
}

// mean returns the average rest over a time that ends with the last look, or over the shorter time that was watched.
func (h History) mean(over time.Duration) model.Amount {
	from := Later(h.seen.Add(-over), h.since)
	total := h.seen.Sub(from).Seconds()
	if total <= 0 {
		return h.past[len(h.past)-1].Rest
	}
	var cpu, memory float64
	for i, l := range h.past {
		if weight := h.until(i).Sub(Later(l.At, from)).Seconds(); weight > 0 {
			cpu, memory = cpu+weight*float64(l.Rest.CPU), memory+weight*float64(l.Rest.Memory)
		}
	}
	return model.Amount{CPU: int64(cpu / total), Memory: int64(memory / total)}
}
