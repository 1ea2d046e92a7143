package metrics

import (
	"math"
	"time"
)

// windows are the spans over which means are shown.
var windows = [...]struct {
	name   string
	length time.Duration
}{{"1s", time.Second}, {"1m", time.Minute}, {"5m", 5 * time.Minute}, {"10m", 10 * time.Minute}}

const (
	kept     = 608             // measurements: those of the longest window, and some that came early after a late one
	shownFor = 2 * time.Second // age of the last measurement up to which it describes the present
	// between two measurements; after a longer span the later one describes only its last second
	longestSpan = 10 * time.Second
)

// timeline has the times of the last measurements, on the clock since boot. The zero value has none.
//
// Measurements are not assigned to seconds of that clock: if they fall on the turn of a second, every other second
// would have two of them and the next one none.
type timeline struct {
	at [kept]time.Duration // of measurement i at i modulo their number
	n  int                 // measurements so far
}

// add adds a measurement, and reports whether it did: its time must be after the last one.
func (t *timeline) add(at time.Duration) bool {
	if t.n > 0 && at <= t.at[(t.n-1)%kept] {
		return false
	}
	t.at[t.n%kept] = at
	t.n++
	return true
}

// span returns the time that measurement i describes: since the one before.
func (t *timeline) span(i int) (from, to time.Duration) {
	to = t.at[i%kept]
	if from = to - time.Second; i > 0 && i > t.n-kept {
		if before := t.at[(i-1)%kept]; to-before <= longestSpan {
			from = before
		}
	}
	return from, to
}

// series has the values of one figure in the last measurements. The zero value has none.
type series struct {
	values []float32 // of measurement i at i modulo their number; NaN: not measured
	n      int       // the last one that is here, and one more
}

// put sets the value of the newest measurement. A NaN is a gap, and so is a measurement without a value.
func (s *series) put(t *timeline, value float64) {
	if s.values == nil {
		s.values = make([]float32, kept)
	}
	for gap := max(s.n, t.n-kept); gap < t.n-1; gap++ {
		s.values[gap%kept] = float32(math.NaN())
	}
	s.values[(t.n-1)%kept] = float32(value)
	s.n = t.n
}

// mean returns the mean over the window that ends with the newest measurement. Each value counts for the time since the
// measurement before. It returns false if the newest measurement is old or has no value, or if less than half of the
// window was measured: the mean of a small part would look like that of the whole.
func (s *series) mean(t *timeline, now, window time.Duration) (float64, bool) {
	if s.n == 0 || s.n != t.n || math.IsNaN(float64(s.values[(s.n-1)%kept])) {
		return 0, false
	}
	_, end := t.span(s.n - 1)
	if now-end > shownFor {
		return 0, false
	}
	var sum float64
	var measured time.Duration
	for i := s.n - 1; i >= max(s.n-kept, 0); i-- {
		from, to := t.span(i)
		if to <= end-window {
			break
		}
		if v := float64(s.values[i%kept]); !math.IsNaN(v) {
			held := to - max(from, end-window)
			sum += v * held.Seconds()
			measured += held
		}
	}
	if 2*measured < window {
		return 0, false
	}
	return sum / measured.Seconds(), true
}
