//go:build bench

package kernel_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// TestSuppressDelay measures how fast batch makes room for online load, and how fast it returns.
func TestSuppressDelay(t *testing.T) {
	liveKernel(t, "the use of an emulated CPU follows no load while other programs need the CPU beneath it")
	steps := 3
	if soak() {
		steps = 20
	}
	n := newSuppressNode(t)
	n.agentBy(model.SuppressByArithmetic)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	retry(t, 3, func() (map[string]float64, string) { // the machine may stand still during some steps
		down, up := n.swings(steps)
		slices.Sort(down)
		slices.Sort(up[1:])
		t.Logf("online rises -> batch has less: %s; online falls -> batch has it back: %s", down, up[1:])
		values := map[string]float64{"down_ms": float64(down[len(down)/2].Milliseconds()),
			"up_ms": float64(up[1].Milliseconds())}
		switch {
		case values["down_ms"] > slower(800, 2000):
			return values, "batch has less too late: measurements of each second would be as fast"
		case values["up_ms"] < 500:
			return values, "batch has it back as if online could not rise again"
		}
		return values, ""
	})
}

// TestSuppressOnHarmDelay measures how fast batch is pushed back when an online pod waits.
func TestSuppressOnHarmDelay(t *testing.T) {
	liveKernel(t, "TestCPUOnHarm shows it on cgroup v2")
	back := onHarm(t)
	slices.Sort(back)
	t.Logf("the online pod waits -> batch has less: %s", back)
	if middle := back[len(back)/2]; middle.Seconds() > slower(2, 10) {
		t.Errorf("in the median, batch has less after %s", middle)
	}
}
