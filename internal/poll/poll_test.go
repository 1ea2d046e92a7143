package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/poll"
)

// TestUntil counts the checks in the time of a bubble, where only sleeps take time.
func TestUntil(t *testing.T) {
	for name, c := range map[string]struct {
		check         time.Duration // how long a check takes
		from, checked int           // holds from this check on; 0: never
	}{
		"at once":      {0, 1, 1},
		"later":        {0, 7, 7},
		"never":        {0, 0, 11},               // pauses of 100 ms, and one more check at the end
		"slow checks":  {time.Second, 0, 2},      // one pause of a second
		"stands still": {16 * time.Second, 2, 2}, // the first check took a quarter of a minute
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				checked := 0
				held := poll.Until(time.Second, 100*time.Millisecond, func() bool {
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
