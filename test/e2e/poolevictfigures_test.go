//go:build bench

package e2e_test

import (
	"testing"
	"time"
)

// TestAPIPoolEvictFigures measures how soon a worker is gone after its node asked for that.
func TestAPIPoolEvictFigures(t *testing.T) {
	y := newYard(t)
	y.manager("--pools="+poolNamespace, "--exclude-dir="+t.TempDir())
	within := func(run func(t *testing.T) time.Duration, least, most time.Duration) func(t *testing.T) {
		return func(t *testing.T) {
			if took := run(t); took < least || took > most {
				t.Errorf("the pod was gone after %v, want %v to %v", took, least, most)
			}
		}
	}
	beside(t, map[string]func(t *testing.T){
		"evict": within(y.testEvict, evictGrace, evictGrace+20*time.Second),
		"hang":  within(y.testHang, hangGrace, hangGrace+20*time.Second),
		"zeros": within(y.testZeros, 0, 26*time.Second), // 10 s for the zeros, 6 s of grace, and some rounds
	})
}
