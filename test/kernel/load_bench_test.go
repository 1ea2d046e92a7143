//go:build bench

package kernel_test

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// measured waits until a weight is right, reading it more often than [testNode.expect], and returns how long it took.
func (n *testNode) measured(dir string, right int64, begin time.Time) time.Duration {
	n.t.Helper()
	for !n.holds(dir, model.Shares, right) {
		if time.Since(begin) > 30*time.Second {
			n.t.Fatalf("the weight of %s is wrong after 30 s: %d", dir, n.raw(dir, model.Shares))
		}
		time.Sleep(200 * time.Microsecond)
	}
	return time.Since(begin)
}

// TestCrowdCost measures how long it takes until each of 500 pods has its weight, and what they cost in CPU time,
// memory and threads.
func TestCrowdCost(t *testing.T) {
	liveKernel(t, "a crowd of pods costs the same with cgroup v2")
	c := crowd(t)
	p50, p90, p99 := quantiles(c.took)
	t.Logf("%d pods: cgroup made → right weight p50 %s, p90 %s, p99 %s; %s of CPU; %+v, then %+v", len(c.took), p50, p90,
		p99, c.cpu, c.full, c.last)
	if limit := 500 * time.Millisecond; p90 > limit && !emulated() {
		t.Errorf("p90 %s from cgroup to weight, want at most %s", p90, limit)
	}
	if most := 48 << 10; c.full.rss > most { // 37 to 40 MiB were seen
		t.Errorf("%d KiB for %d pods, want at most %d", c.full.rss, len(c.took), most)
	}
	if limit := 20 * time.Second; c.cpu > limit && !emulated() { // 6 s were seen on an otherwise idle CPU
		t.Errorf("%s of CPU for %d pods, want at most %s", c.cpu, len(c.took), limit)
	}
	// The runtime keeps threads and memory that it once needed. A second crowd must need no more.
	if c.last.threads > c.first.threads+4 || c.last.rss > c.first.rss+32<<10 {
		t.Errorf("threads or memory grow: %+v, then %+v", c.first, c.last)
	}
}

// TestStarved measures repairs by an agent in a pod of 10 milli-cores beside a pod of the greatest weight that uses all
// CPUs. Without a weight of its own, the agent was measured to wait 2.3 s. Its own weight must prevent that.
func TestStarved(t *testing.T) {
	liveKernel(t, "TestExperimentFigures shows on cgroup v2 that weights count beside a hog")
	n, d, self, hog := starving(t)
	time.Sleep(time.Second)

	repairs, pause := 100, 20*time.Millisecond
	if soak() {
		repairs, pause = 1000, 110*time.Millisecond // more than ten a second for long would count as a fight
	}
	var took []time.Duration
	for i := range repairs {
		dir, right := hog, int64(model.MaxShares)
		if i%2 == 0 {
			dir, right = self, 102400 // even its own weight
		}
		begin := time.Now()
		n.set(dir, model.Shares, int64(3000+27*i))
		took = append(took, n.measured(dir, right, begin))
		time.Sleep(pause)
	}
	p50, p90, p99 := quantiles(took)
	t.Logf("%d repairs beside the hog: p50 %s, p90 %s, p99 %s", repairs, p50, p90, p99)
	// Without the weight, the median exceeds two seconds. Some repairs may be late because of other processes.
	if (p50 > 100*time.Millisecond || p90 > 500*time.Millisecond) && !emulated() {
		t.Errorf("p50 %s, p90 %s beside the hog, want at most 100 ms and 500 ms", p50, p90)
	}
	d.finish(5)
}
