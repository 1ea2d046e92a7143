package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/test/poll"
)

// TestUntil counts the checks in the time of a bubble, where only sleeps take time.
func TestUntil(t *testing.T) {
	for name, c := range map[string]struct {
		limit, check  time.Duration // check: how long a check takes
		from, checked int           // holds from this check on; 0: never
	}{
		"at once":      {time.Second, 0, 1, 1},
		"later":        {time.Second, 0, 7, 7},
		"never":        {time.Second, 0, 0, 11},                // pauses of 100 ms, and one more check at the end
		"slow checks":  {time.Second, time.Second, 0, 2},       // one pause of a second
		"stands still": {time.Second, 16 * time.Second, 2, 2},  // the first check took a quarter of a minute
		"hangs":        {time.Minute, 100 * time.Second, 0, 6}, // then ten minutes have passed
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checked := 0
				held := poll.Until(c.limit, 100*time.Millisecond, func() bool {
					time.Sleep(c.check)
					checked++
					return c.from != 0 && checked >= c.from
				})
				if held != (c.from != 0) || checked != c.checked {
					t.Errorf("%t after %d checks, want %t after %d", held, checked, c.from != 0, c.checked)
				}
			})
		})
	}
}
