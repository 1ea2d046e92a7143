package pool

import "time"

// Times of workers that failed.
const (
	retryFirst = 10 * time.Minute
	retryMost  = 6 * time.Hour
	proven     = time.Hour // for which a pod must have run for earlier failures to be forgotten
)

// Retry returns for how long a worker is given up after so many failures beyond those that are allowed. It doubles with
// each.
func Retry(more int) time.Duration {
	return min(retryFirst<<min(max(more, 0), 10), retryMost)
}

// Failures returns the failures that count of a worker that failed so many times in a row. A window begins anew.
func Failures(n int, ended time.Time, o Opening) int {
	if o.Open && ended.Before(o.Start) {
		return 0
	}
	return n
}

// Proven reports whether a pod that was started at a time has run for so long that earlier failures are forgotten. A
// disk that fills up again and again takes a while each time.
func Proven(now, started time.Time) bool { return !started.IsZero() && now.Sub(started) >= proven }
