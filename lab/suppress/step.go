package suppress

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/waterline-io/waterline/lab/measure"
)

const (
	lead = time.Second            // before a step, that is sampled
	near = 100                    // thousandths of the machine within which an allowance counts as reached
	span = 100 * time.Millisecond // over which use is measured: the period of a quota
)

// sample is what the outside reader read at one moment.
type sample struct {
	at     time.Duration // on the reader's clock
	online time.Duration // CPU time of the online pod so far
	batch  time.Duration // CPU time of the batch pod so far
	milli  int64         // allowance of the batch pod, by its quota and its CPUs
}

// trace is all samples from some time before a step until batch had its CPU back.
type trace struct {
	samples      []sample
	began, ended time.Duration // of the online load
	machine      int64         // all CPUs, in milli-cores
}

// step is the outcome of one step. Allowances are in milli-cores. Times are in milliseconds, NaN for what did not
// happen: without a fall there is no return.
type step struct {
	before    int64   // allowance of batch before it
	after     int64   // allowance in the second after the fall
	overshoot int64   // by how much the least allowance was below the one when online load ended
	online    int64   // use of the online pod
	down      float64 // from the beginning until the allowance had fallen to that after it
	used      float64 // from the beginning until batch used no more than that
	back      float64 // from the end until the allowance was back at the one before
	late      float64 // longest gap between two samples
}

// String writes the line that [parseStep] reads.
func (s step) String() string {
	return fmt.Sprintf("%d %d %d %d %.1f %.1f %.1f %.1f",
		s.before, s.after, s.overshoot, s.online, s.down, s.used, s.back, s.late)
}

func parseStep(line string) (s step, err error) {
	_, err = fmt.Sscan(line, &s.before, &s.after, &s.overshoot, &s.online, &s.down, &s.used, &s.back, &s.late)
	if err != nil {
		err = fmt.Errorf("reading the outcome of a step: %q: %w", line, err)
	}
	return s, err
}

// judge returns the outcome of the step.
func (t *trace) judge() step {
	s := step{before: t.before(), down: math.NaN(), used: math.NaN(), back: math.NaN(), late: t.late()}
	load := t.between(t.began, t.ended)
	if len(load) < 2 {
		return s
	}
	last := load[len(load)-1]
	s.online = milliCores(last.online-load[0].online, last.at-load[0].at)
	stood := medianAllowance(t.between(t.ended-time.Second, t.ended))
	down, after, found := t.fall(s.before)
	if !found {
		s.after = stood
		return s
	}
	s.after, s.down, s.overshoot = after, measure.Millis(down-t.began), max(stood-leastAllowance(load), 0)
	if used, found := t.usedNoMore(after); found {
		s.used = measure.Millis(used - t.began)
	}
	for _, x := range t.between(t.ended, math.MaxInt64) {
		if x.milli >= t.enough() {
			s.back = measure.Millis(x.at - t.ended)
			break
		}
	}
	return s
}

// before returns the allowance of batch before the step.
func (t *trace) before() int64 { return medianAllowance(t.between(t.began-lead, t.began)) }

// enough returns the least allowance with which batch has its CPU back.
func (t *trace) enough() int64 { return t.before() - t.machine*near/1000 }

// fall finds the first moment at which the allowance is lower than before, and near that of the second that follows.
func (t *trace) fall(before int64) (at time.Duration, after int64, found bool) {
	margin, last := t.machine*near/1000, before
	for _, x := range t.between(t.began, t.ended) {
		if x.milli != last && x.milli <= before-margin {
			after = medianAllowance(t.between(x.at, min(x.at+time.Second, t.ended)))
			if x.milli <= after+margin && after <= before-margin {
				return x.at, after, true
			}
		}
		last = x.milli
	}
	return 0, 0, false
}

// usedNoMore finds the first moment at which batch had used about an amount, or less, for the span before it.
func (t *trace) usedNoMore(amount int64) (at time.Duration, found bool) {
	for i, x := range t.samples {
		if x.at < t.began || x.at >= t.ended {
			continue
		}
		first := t.since(x.at - span)
		if first == i {
			continue
		}
		was := t.samples[first]
		if milliCores(x.batch-was.batch, x.at-was.at) <= amount+t.machine*near/1000 {
			return x.at, true
		}
	}
	return 0, false
}

// late returns the longest gap between two samples while online load ran, in milliseconds.
func (t *trace) late() float64 {
	var most time.Duration
	load := t.between(t.began, t.ended)
	for i := 1; i < len(load); i++ {
		most = max(most, load[i].at-load[i-1].at)
	}
	return measure.Millis(most)
}

// since returns the index of the first sample that is not before a moment.
func (t *trace) since(at time.Duration) int {
	return sort.Search(len(t.samples), func(i int) bool { return t.samples[i].at >= at })
}

// between returns the samples from one moment until before another.
func (t *trace) between(from, to time.Duration) []sample { return t.samples[t.since(from):t.since(to)] }

// medianAllowance returns the lower median of the allowances; 0 without samples.
func medianAllowance(samples []sample) int64 {
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

func leastAllowance(samples []sample) int64 {
	return slices.MinFunc(samples, func(a, b sample) int { return int(a.milli - b.milli) }).milli
}

func milliCores(used, length time.Duration) int64 {
	return int64(1000 * used / max(length, 1))
}
