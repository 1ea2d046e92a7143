//go:build bench

package e2e_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestAPIPrometheusFigures compares the agent's metrics in Prometheus with the test's own measurements of the same
// minutes, under a known load. The machine usually does other things too, so that only the load of the pods is
// constant.
func TestAPIPrometheusFigures(t *testing.T) {
	needPrometheus(t)
	// A window is published once half of it was measured.
	length, shown := 11*time.Minute, []string{"1s", "1m", "5m", "10m"}
	c := newBusyNode(t)
	online, batch, holder := c.load()
	later := c.loaded("later", "BE", burstMilli)
	reader := newReader(c.groups, []string{online, batch, c.layout.Root, later})
	p := newPrometheus(t)
	c.start()
	reader.read(t, length)

	ceiling := p.last(v1alpha1.MetricCPUCeiling).value
	for _, window := range windowsShown(p) {
		if !slices.Contains(shown, window) {
			t.Errorf("a window of %s is published after %s", window, length)
		}
	}
	for _, window := range shown {
		span, err := time.ParseDuration(window)
		if err != nil {
			t.Fatal(err)
		}
		span = min(span, length-11*time.Second) // the measured part; the load is the same all the time
		// The tolerance is 3 mCPU besides a hundredth. In a minute these are 180 ms of CPU time, because the read times are
		// known only to within 70 ms, the rest of the machine uses a CPU or two more or less, and /proc/stat counts in steps
		// of 10 ms. For a single second, the tolerance is the quota of one CFS period.
		floor := 0.003
		if span == time.Second {
			floor += 0.1 * batchMilli / 1000
		}
		check := func(metric, class string, of func(from, to time.Time) float64, floor float64) {
			t.Helper()
			selector := fmt.Sprintf(`%s{window=%q}`, metric, window)
			if class != "" {
				selector = fmt.Sprintf(`%s{class=%q,window=%q}`, metric, class, window)
			}
			// A second in which the agent, its reader or Prometheus stood still proves nothing. So there are three tries, a few
			// seconds apart. A wrong figure is wrong every time.
			end := reader.at[len(reader.at)-1]
			wrong := repeat(t, 3, func(try int) (values map[string]float64, wrong string) {
				got := p.lastBefore(selector, end.Add(-time.Duration(try-1)*4*time.Second))
				least, most := bounds(span, got.at, of)
				t.Logf("%-60s %12.4f, read: %.4f to %.4f", selector, got.value, least, most)
				if got.value < least*0.99-floor || got.value > most*1.01+floor {
					wrong = fmt.Sprintf("%s is %v, and the test measured %v to %v", selector, got.value, least, most)
				}
				return map[string]float64{"published": got.value, "least": least, "most": most}, wrong
			})
			if wrong != "" {
				t.Error(wrong)
			}
		}
		check(v1alpha1.MetricCPUUsed, "LS", reader.of(0), floor)
		check(v1alpha1.MetricCPUUsed, "BE", reader.of(1), floor)
		if span <= time.Minute {
			check(v1alpha1.MetricCPUUsed, "node", reader.node, floor)
			check(v1alpha1.MetricCPUUsed, "system", func(from, to time.Time) float64 { return reader.system(from, to, 2) },
				floor)
			check(v1alpha1.MetricCPUStolen, "", reader.stolen, floor)
			check(v1alpha1.MetricBatchCPUAvailable, "",
				func(from, to time.Time) float64 { return reader.available(ceiling, from, to, 2, 1, 3) }, floor)
		}
		held := func(time.Time, time.Time) float64 { return c.workingSet(t, holder) + c.workingSet(t, online) }
		check(v1alpha1.MetricMemoryUsed, "LS", held, 1<<20)
	}
	if ratio := p.last(v1alpha1.MetricThrottled + `{window="1m"}`).value; ratio < 0.9 {
		t.Errorf("a pod that was throttled in each period is published as throttled in %v of them", ratio)
	}
	c.checkBurst(p, later)
}

// checkBurst checks that the start and end of a load are measured in time. The agent or Prometheus may stand still for
// a second or two just then, so there are three tries. An agent whose figures are late is late every time.
func (c *busyNode) checkBurst(p *prometheus, dir string) {
	c.t.Helper()
	before := p.last(v1alpha1.MetricCPUUsed + `{class="BE",window="1m"}`).value
	late := repeat(c.t, 3, func(int) (map[string]float64, string) { return nil, c.burst(p, dir, before) })
	if late != "" {
		c.t.Error(late)
	}
}

// burst starts a load in addition to the present usage and ends it again. It returns the figures that were late, "" if
// none was. The agent measures within a second and publishes within two, and Prometheus scrapes each second.
func (c *busyNode) burst(p *prometheus, dir string, before float64) (late string) {
	c.t.Helper()
	batch := v1alpha1.MetricCPUUsed + `{class="BE",window="1s"}`
	began := time.Now()
	burner := c.burn(dir)
	time.Sleep(5 * time.Second)
	ended := time.Now()
	if err := burner.Kill(); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	const more = float64(burstMilli) / 1000
	points := p.points(batch+"[20s]", time.Time{})
	after := func(since time.Time, seen func(more float64) bool) time.Duration {
		i := slices.IndexFunc(points, func(p point) bool { return p.at.After(since) && seen(p.value-before) })
		if i < 0 {
			late = fmt.Sprintf("a load of %v beside %v from %s to %s was never published: %v", more, before, began, ended,
				points)
			return 0
		}
		return points[i].at.Sub(since)
	}
	// In one second, each pod may use the quota of a CFS period more or less: 60 mCPU in all.
	for what, took := range map[string][2]time.Duration{
		"begins to be published": {after(began, func(v float64) bool { return v > more*0.35 }), 2500 * time.Millisecond},
		"is published whole":     {after(began, func(v float64) bool { return v > more*0.65 }), 3 * time.Second},
		"is published as ended":  {after(ended, func(v float64) bool { return v < more*0.35 }), 3 * time.Second},
	} {
		c.t.Logf("a load %s after %s", what, took[0])
		if most := took[1] + 300*time.Millisecond; took[0] > most {
			late = fmt.Sprintf("a load %s after %s, want %s at most", what, took[0], most)
		}
	}
	return late
}

// burstMilli is the CPU quota of the load that comes and goes.
const burstMilli = 200
