//go:build bench

package e2e_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// TestPoolHarmFigures measures the time from the API server's answer to the write of a NodeReport, to the
// ResourceManager's new total, while containers run. A heartbeat is a second, in which a NodeManager hears of it.
func TestPoolHarmFigures(t *testing.T) {
	h := newHarm(t)
	h.t, h.began = t, time.Now()
	count := resizes()
	var times []float64
	h.resize(count, func(i int, want yarn.Resource) { times = append(times, h.followed(i, want).Seconds()) })
	slices.Sort(times)
	p50, p99 := times[len(times)/2], times[(len(times)*99-1)/100]
	t.Logf("%d resizes: p50 %.2f heartbeats, p99 %.2f, at most %.2f", count, p50, p99, times[len(times)-1])
	if p50 > 2 || p99 > 10 {
		t.Errorf("the totals follow after %.2f heartbeats (p50) and %.2f (p99), want 2 and 10", p50, p99)
	}
	h.figures(map[string]float64{"live_resizes": float64(count), "live_resize_heartbeats_p50": p50,
		"live_resize_heartbeats": p99})
	h.end()
}

// followed returns the time from the write of a node's report to the new total of its NodeManager.
func (h *harm) followed(i int, want yarn.Resource) time.Duration {
	h.t.Helper()
	if !poll.Until(mostWait, 10*time.Millisecond, func() bool { return h.manager(i).Total == want }) {
		h.t.Fatalf("%s does not offer %v: %+v", h.host(i), want, h.manager(i))
	}
	now := time.Now()
	h.y.mu.Lock()
	defer h.y.mu.Unlock()
	return max(now.Sub(h.y.nodes[h.nodes[i]].written), 0)
}

// TestPoolNightFigures measures when the workers of a pool are gone after the end of its window.
func TestPoolNightFigures(t *testing.T) {
	l, figures := oneNight(t)
	if late := figures["workers_gone_after_end_seconds"]; late > 15 {
		t.Errorf("workers stopped %.1f s after the end of the window", late)
	}
	l.figures(figures)
}
