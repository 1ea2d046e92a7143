package pool

import "time"

// Times of workers that failed.
const (
	retryFirst = 10 * time.Minute
	retryMost  = 6 * time.Hour
	proven     = time.Hour // for which a pod must have run for earlier failures to be forgotten
)

// Retry returns the pause before a worker is tried again after this many failures beyond the allowed number. Each
// failure doubles the pause.
func Retry(more int) time.Duration {
	return min(retryFirst<<min(max(more, 0), 10), retryMost)
}

// Failures returns how many of a worker's n consecutive failures count. With a new window, the count begins at 0.
func Failures(n int, ended time.Time, o Opening) int {
	if o.Open && ended.Before(o.Start) {
		return 0
	}
	return n
}

// Proven reports whether a pod has run long enough since its start that earlier failures no longer count. The time is
// long because a disk that fills up repeatedly takes a while each time.
func Proven(now, started time.Time) bool { return !started.IsZero() && now.Sub(started) >= proven }

// noteHealth records since when a NodeManager is unhealthy.
func (r *round) noteHealth(m *Manager) {
	switch {
	case !r.in.RM.Known:
	case m == nil || m.State != unhealthy:
		r.marks.Unhealthy = time.Time{}
	case r.marks.Unhealthy.IsZero():
		r.marks.Unhealthy = r.in.Now
	}
}
