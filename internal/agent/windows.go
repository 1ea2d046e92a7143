package agent

import (
	"math"
	"time"
)

// windows are the spans over which what others act on is shown.
var windows = [...]struct {
	name   string
	length time.Duration
}{{"1s", time.Second}, {"1m", time.Minute}, {"5m", 5 * time.Minute}, {"10m", 10 * time.Minute}}

// series is what one figure was in each of the last seconds. The zero value has none.
type series struct {
	values []float32     // of second i at i modulo their number; NaN: not measured
	last   time.Duration // second of the newest
	any    bool
}

// put notes what the figure was at a time of the clock that runs since boot. A NaN is a gap, and so is a second in which
// nothing is put.
func (s *series) put(at time.Duration, value float64) {
	at = at.Truncate(time.Second)
	if s.values == nil {
		s.values = make([]float32, windows[len(windows)-1].length/time.Second)
	}
	missed := at - s.last - time.Second
	if !s.any || missed < 0 && at != s.last || missed > time.Duration(len(s.values))*time.Second {
		missed = time.Duration(len(s.values)) * time.Second
	}
	for gap := at - missed; gap < at; gap += time.Second {
		s.values[s.place(gap)] = float32(math.NaN())
	}
	s.values[s.place(at)] = float32(value)
	s.last, s.any = at, true
}

// mean returns the mean over the window of this length that ends at a time. It is false if the newest second is missing
// or less than half of the window was measured: a mean of little would look like one of all.
func (s *series) mean(at, window time.Duration) (float64, bool) {
	at = at.Truncate(time.Second)
	if !s.any || at-s.last > time.Second || at < s.last {
		return 0, false // the second that is going on may be yet to come
	}
	sum, n, seconds := 0.0, 0, int(window/time.Second)
	for i := range seconds {
		if v := float64(s.values[s.place(s.last-time.Duration(i)*time.Second)]); !math.IsNaN(v) {
			sum += v
			n++
		}
	}
	if n == 0 || 2*n < seconds {
		return 0, false
	}
	return sum / float64(n), true
}

func (s *series) place(at time.Duration) int {
	n := len(s.values)
	return (int(at/time.Second)%n + n) % n
}
