package service

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	maxBuckets = 128              // of a histogram
	window     = 10 * time.Second // of which a quantile is computed
	samples    = 16               // of a history, at most; one a second is added
)

var (
	errBound     = errors.New("a bucket has no bound le that is a number")
	errCount     = errors.New("the count of a bucket is negative or no number")
	errInfinite  = errors.New("the histogram lacks the bucket le=\"+Inf\", or has no other")
	errManyBound = fmt.Errorf("the histogram has more than %d buckets", maxBuckets)
)

// bucket is the number of observations up to a bound, as a histogram has it.
type bucket struct {
	bound float64 // the observations are at most this
	count float64
}

// addBucket adds a series to the buckets of a histogram, which are ordered by bound.
func addBucket(all []bucket, s *sample) ([]bucket, error) {
	bound, err := s.bound()
	switch {
	case err != nil:
		return all, err
	case math.IsNaN(s.value) || math.IsInf(s.value, 0) || s.value < 0:
		return all, errCount
	}
	i, found := slices.BinarySearchFunc(all, bound,
		func(b bucket, bound float64) int { return cmp.Compare(b.bound, bound) })
	if found {
		all[i].count += s.value
		return all, nil
	}
	if len(all) == maxBuckets {
		return all, errManyBound
	}
	return slices.Insert(all, i, bucket{bound, s.value}), nil
}

// checkBuckets returns why the buckets are no histogram.
func checkBuckets(all []bucket) error {
	if len(all) < 2 || !math.IsInf(all[len(all)-1].bound, 1) {
		return errInfinite
	}
	return nil
}

// history is what a histogram counted within the last seconds.
type history struct{ readings []reading }

// reading is a histogram at one time.
type reading struct {
	at      time.Duration
	buckets []bucket
}

// add adds a reading, and reports whether there is an earlier one to compare it with. If a count fell, or the bounds
// changed, the process has started anew, and the earlier ones are dropped.
func (h *history) add(at time.Duration, buckets []bucket) bool {
	if n := len(h.readings); n > 0 && !follows(buckets, h.readings[n-1].buckets) {
		h.readings = nil
	}
	h.readings = append(h.readings, reading{at, buckets})
	old := 0 // readings before the window, but for the youngest of them unless it is far before
	for old+1 < len(h.readings) && (h.readings[old+1].at <= at-window || h.readings[old].at < at-2*window) {
		old++
	}
	h.readings = slices.Delete(h.readings, 0, max(old, len(h.readings)-samples))
	return len(h.readings) > 1
}

// follows reports whether one reading of a histogram can have followed another.
func follows(buckets, before []bucket) bool {
	return slices.EqualFunc(buckets, before, func(b, c bucket) bool { return b.bound == c.bound && b.count >= c.count })
}

// quantile returns the quantile of what was counted between the first reading and the last. It is not a number if
// nothing was counted.
func (h *history) quantile(q float64) (float64, error) {
	first, last := h.readings[0].buckets, h.readings[len(h.readings)-1].buckets
	counted := make([]bucket, len(last))
	for i := range last {
		counted[i] = bucket{last[i].bound, last[i].count - first[i].count}
		if i > 0 { // the series of a pod are not read at one moment
			counted[i].count = max(counted[i].count, counted[i-1].count)
		}
	}
	return quantile(q, counted)
}

// quantile returns a quantile of a histogram, linear within a bucket, as histogram_quantile of PromQL does
// (prometheus/promql/quantile.go, BucketQuantile). Above all finite bounds it is the highest of them.
func quantile(q float64, all []bucket) (float64, error) {
	if err := checkBuckets(all); err != nil {
		return 0, err
	}
	total := all[len(all)-1].count
	if total == 0 {
		return math.NaN(), nil
	}
	rank := q * total
	i := slices.IndexFunc(all[:len(all)-1], func(b bucket) bool { return b.count >= rank })
	switch {
	case i < 0:
		return all[len(all)-2].bound, nil
	case i == 0 && all[0].bound <= 0:
		return all[0].bound, nil
	}
	from, before := 0.0, 0.0
	if i > 0 {
		from, before = all[i-1].bound, all[i-1].count
	}
	return from + (all[i].bound-from)*(rank-before)/(all[i].count-before), nil
}
