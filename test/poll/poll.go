// Package poll waits in tests for what must happen, on machines of any speed.
package poll

import "time"

// maxPause is the longest pause after a slow check.
const maxPause = time.Second

// Real time ends a wait after so many times its limit, and not before leastReal.
const (
	realTimes = 10
	leastReal = time.Minute
)

// Until calls holds until it returns true, and reports whether it did within the limit. Only pauses between calls count
// towards the limit: a machine that stands still for a quarter of a minute costs a test one pause, and slow checks,
// such as a command beside a busy machine, cost it nothing. If checks take very long, real time ends the wait, after
// ten times the limit and at least a minute.
//
// The pause after a check is at least the given one and at least three times as long as the check, up to a second, so
// that checks leave most CPU time to the awaited action.
func Until(limit, pause time.Duration, holds func() bool) bool {
	start := time.Now()
	for paused := time.Duration(0); ; {
		began := time.Now()
		if holds() {
			return true
		}
		if paused >= limit || time.Since(start) >= max(realTimes*limit, leastReal) {
			return false
		}
		next := max(pause, min(3*time.Since(began), maxPause))
		time.Sleep(next)
		paused += next
	}
}
