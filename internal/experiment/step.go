package experiment

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"
)

const (
	lead   = time.Second            // before a step, of which it is known what batch had
	within = 100                    // thousandths of the machine to which an allowance counts as reached
	span   = 100 * time.Millisecond // over which use is measured: the period of a quota
)

// sample is what the outside reader saw at one moment.
type sample struct {
	at     time.Duration // on the reader's clock
	online time.Duration // CPU time of the online pod so far
	batch  time.Duration // and of the batch pod
	milli  int64         // that the batch pod may use, by its quota and its CPUs
}

// trace is what was seen from some time before a step until batch had back what it had.
type trace struct {
	samples      []sample
	began, ended time.Duration // of the online load
	machine      int64         // all CPUs, in milli-cores
}

// step is what became of one step. Amounts are in milli-cores, times in milliseconds; NaN where
// it did not happen. What was not taken cannot be given back.
type step struct {
	before    int64   // that batch might use before it
	after     int64   // in the second after it was down
	overshoot int64   // by which it was less, at the least, than where it was when online load ended
	online    int64   // that the online pod used, of the time that it wanted
	down      float64 // from its beginning until batch might use no more than after it
	used      float64 // and until it used no more
	back      float64 // from its end until batch might use again what it might before
	late      float64 // the longest that the reader was kept from looking
}

// String writes what [parseStep] reads.
func (s step) String() string {
	return fmt.Sprintf("%d %d %d %d %.1f %.1f %.1f %.1f", s.before, s.after, s.overshoot, s.online, s.down, s.used, s.back, s.late)
}

func parseStep(line string) (s step, err error) {
	if _, err = fmt.Sscan(line, &s.before, &s.after, &s.overshoot, &s.online, &s.down, &s.used, &s.back, &s.late); err != nil {
		err = fmt.Errorf("reading what became of a step: %q: %w", line, err)
	}
	return s, err
}

// judge says what became of the step.
func (t *trace) judge() step {
	s := step{before: t.before(), down: math.NaN(), used: math.NaN(), back: math.NaN(), late: t.late()}
	load := t.between(t.began, t.ended)
	if len(load) < 2 {
		return s
	}
	last := load[len(load)-1]
	s.online = milliCores(last.online-load[0].online, last.at-load[0].at)
	stood := median(t.between(t.ended-time.Second, t.ended))
	down, after, found := t.fall(s.before)
	if !found {
		s.after = stood
		return s
	}
	s.after, s.down, s.overshoot = after, inMillis(down-t.began), max(stood-least(load), 0)
	if used, found := t.kept(after); found {
		s.used = inMillis(used - t.began)
	}
	for _, x := range t.between(t.ended, math.MaxInt64) {
		if x.milli >= t.enough() {
			s.back = inMillis(x.at - t.ended)
			break
		}
	}
	return s
}

// before returns what batch might use before the step.
func (t *trace) before() int64 { return median(t.between(t.began-lead, t.began)) }

// enough is what batch may use at least when it has back what it had.
func (t *trace) enough() int64 { return t.before() - t.machine*within/1000 }

// fall finds the first moment at which batch may use less than before, and about what it may in the second that follows.
func (t *trace) fall(before int64) (at time.Duration, after int64, found bool) {
	near, last := t.machine*within/1000, before
	for _, x := range t.between(t.began, t.ended) {
		if x.milli != last && x.milli <= before-near {
			after = median(t.between(x.at, min(x.at+time.Second, t.ended)))
			if x.milli <= after+near && after <= before-near {
				return x.at, after, true
			}
		}
		last = x.milli
	}
	return 0, 0, false
}

// kept finds the first moment at which batch used about an amount, or less, since a period before.
func (t *trace) kept(amount int64) (at time.Duration, found bool) {
	for i, x := range t.samples {
		if x.at < t.began || x.at >= t.ended {
			continue
		}
		first := t.since(x.at - span)
		if first < i && milliCores(x.batch-t.samples[first].batch, x.at-t.samples[first].at) <= amount+t.machine*within/1000 {
			return x.at, true
		}
	}
	return 0, false
}

// late is the longest time between two looks while online load ran.
func (t *trace) late() float64 {
	var most time.Duration
	load := t.between(t.began, t.ended)
	for i := 1; i < len(load); i++ {
		most = max(most, load[i].at-load[i-1].at)
	}
	return inMillis(most)
}

// since returns the index of the first sample that is not before a moment.
func (t *trace) since(at time.Duration) int {
	return sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at >= at })
}

// between returns the samples from one moment until before another.
func (t *trace) between(from, to time.Duration) []sample { return t.samples[t.since(from):t.since(to)] }

// median returns what batch might use in the middle of all samples, the lower of the two where there are two; 0 if there are
// none.
func median(samples []sample) int64 {
	if len(samples) == 0 {
		return 0
	}
	all := make([]int64, 0, len(samples))
	for _, x := range samples {
		all = append(all, x.milli)
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

func least(samples []sample) int64 {
	return slices.MinFunc(samples, func(a, b sample) int { return int(a.milli - b.milli) }).milli
}

func milliCores(used, length time.Duration) int64 {
	return int64(1000 * used / max(length, 1))
}
