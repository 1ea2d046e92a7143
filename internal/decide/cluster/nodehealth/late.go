package nodehealth

import "time"

// A Lease that was not renewed says that its node is lost only where renewals arrive in time. On an API server that is
// too slow for its cluster, kubelets and agents that are well look as if they were lost. But they do renew their
// Leases, late, and dead ones never do. So the manager measures the times between renewals, and in a late cluster a
// node is lost only after a multiple of them.
const (
	lateBucket  = 5 * time.Second
	lateBuckets = 64
	lateWindow  = time.Minute // renewals of one to two of these windows count
	patience    = 3           // a node is lost after this many times the longest of the usual intervals
	latePart    = 50          // the slowest fiftieth of the renewals is left out
)

// intervals are the times between the renewals of Leases, in buckets.
type intervals struct {
	began     time.Duration // of the current window
	now, last [lateBuckets]uint32
}

// add records that a Lease was renewed after this time.
func (v *intervals) add(interval time.Duration) {
	v.now[min(max(interval/lateBucket, 0), lateBuckets-1)]++
}

// turn begins another window if the current one is over.
func (v *intervals) turn(clock time.Duration) {
	switch since := clock - v.began; {
	case since < lateWindow:
	case since < 2*lateWindow:
		*v = intervals{began: clock, last: v.now}
	default:
		*v = intervals{began: clock}
	}
}

// longest returns the longest of the usual intervals, rounded up to a bucket; 0: there were too few renewals.
func (v *intervals) longest() time.Duration {
	var all uint32
	for i := range v.now {
		all += v.now[i] + v.last[i]
	}
	beyond := all/latePart + 1
	for i := lateBuckets - 1; i >= 0; i-- {
		n := v.now[i] + v.last[i]
		if n >= beyond {
			return time.Duration(i+1) * lateBucket
		}
		beyond -= n
	}
	return 0
}

// patient returns the settings for a cluster whose Leases are renewed at these intervals.
func (v *intervals) patient(set Settings) Settings {
	if after := patience * v.longest(); set.LostAfter > 0 && after > set.LostAfter {
		set.FreshWithin = time.Duration(float64(set.FreshWithin) * float64(after) / float64(set.LostAfter))
		set.LostAfter = after
	}
	return set
}
