//go:build bench

package kernel_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/measure"
)

// TestSuppressDelay measures how fast batch makes room for online load, and how fast it returns. With
// WATERLINE_BENCH=file, it makes 60 steps and writes their times.
func TestSuppressDelay(t *testing.T) {
	liveKernel(t, "the use of an emulated CPU follows no load while other programs need the CPU beneath it")
	steps := 3
	if soak() {
		steps = 20
	}
	if benchFile() != "" {
		steps = 60
	}
	n := newSuppressNode(t)
	n.agentBy(model.SuppressByArithmetic)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	retry(t, 3, func() (map[string]float64, string) { // the machine may stand still during some steps
		down, up := n.swings(steps)
		values := map[string]float64{"steps": float64(steps)}
		for name, took := range map[string][]time.Duration{"suppress": down, "giveback": up[1:]} {
			p50, _, p99 := quantiles(took)
			values[name+"_p50_ms"], values[name+"_p99_ms"] = measure.Millis(p50), measure.Millis(p99)
			values[name+"_min_ms"] = measure.Millis(took[0])
		}
		t.Logf("online rises -> batch has less: %s; online falls -> batch has it back: %s", down, up[1:])
		switch {
		case values["suppress_p50_ms"] > slower(1300, 2600):
			return values, "batch has less later than the next measurement, one a second, can say"
		case values["giveback_min_ms"] < 500:
			return values, "batch has it back as if online could not rise again"
		}
		writeFigures(t, n.mount.Version, "suppress", values)
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
