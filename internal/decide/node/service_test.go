package node_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// cached is a node whose service is slower the more batch runs, without waiting for CPUs: batch takes its cache. The
// figure is the greatest of the last ten seconds, as a quantile nearly is.
type cached struct {
	*world
	slow func(batch int64) float64 // figure of one second, in seconds; 0.02 is no harm
	last []float64
	may  int64 // CPU that batch may use, in milli-cores
}

func newCached(t *testing.T, minBatch string, slow func(batch int64) float64) *cached {
	t.Helper()
	c := &cached{world: newWorld(), slow: slow}
	for _, line := range strings.Split(`node real=16/64Gi cpus=1x1x1x16x1
policy mode=Enforce cpu=Realtime:650 suppress=OnHarm`+minBatch+` service=app:web:0.02
pod web class=Burstable request=4000 used=4/1Gi delays=10 label=app:web
pod job class=BestEffort qos=BE batch=16/1Gi used=0.1/1Gi job=a:16
load node=12/10Gi pods=11/2Gi best=6
brief`, "\n") {
		if err := c.do(line); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// run lets time pass. It returns the mean of what batch used, and the part of the seconds in which the service was
// slow, in thousandths.
func (c *cached) run(seconds int) (mean, slow int64) {
	for range seconds {
		batch := min(c.may, 12_000)
		used := c.load.used["job"]
		used.CPU = batch
		c.load.used["job"] = used
		c.load.best.CPU, c.load.pods.CPU, c.load.node.CPU = batch, batch+4000, batch+4100
		now := c.slow(batch)
		if now > 0.02 {
			slow++
		}
		if c.last = append(c.last, now); len(c.last) > 10 {
			c.last = c.last[1:]
		}
		worst := 0.0
		for _, v := range c.last {
			worst = max(worst, v)
		}
		c.load.figures["web"] = figure{value: int64(worst * 1e6)}
		c.node.Now = c.node.Now.Add(time.Second)
		c.measure()
		plan := c.settled()
		c.carryOut(&plan)
		if c.may = 16_000; plan.Suppress != nil {
			c.may = plan.Suppress.Milli
		}
		mean += batch
	}
	return mean / int64(seconds), slow * 1000 / int64(seconds)
}

// TestServiceIsKeptFast checks the whole loop with a figure that is late: the service is slow for a small part of the
// time, and batch gets most of what the service bears.
func TestServiceIsKeptFast(t *testing.T) {
	c := newCached(t, "", func(batch int64) float64 { return 0.010 + float64(batch)/600_000 }) // it bears 6 CPUs
	c.run(600)
	mean, slow := c.run(3600)
	t.Logf("batch used %d of 6000, the service was slow for %d/1000 of the time", mean, slow)
	if mean < 3000 || slow > 50 {
		t.Errorf("batch used %d of 6000, the service was slow for %d/1000 of the time", mean, slow)
	}
	c.slow = func(int64) float64 { return 0.010 }
	c.run(1800)
	if c.may != 16_000 {
		t.Errorf("batch harms no more, and may use %d", c.may)
	}
}

// TestServiceIsSlowItself checks that a service that is slow whatever batch does costs batch little: it is pushed back
// for seconds in ten minutes.
func TestServiceIsSlowItself(t *testing.T) {
	guarded := []string{"", ":100"}
	if testing.Short() {
		guarded = guarded[:1]
	}
	for _, minBatch := range guarded {
		c := newCached(t, minBatch, func(int64) float64 { return 0.050 })
		mean, _ := c.run(3600)
		t.Logf("batch used %d of 12000", mean)
		if mean < 10_000 {
			t.Errorf("minBatch %q: batch used %d of 12000", minBatch, mean)
		}
		r := rand.New(rand.NewPCG(1, 1)) // a figure that is good and bad at random has nothing to do with batch
		c.slow = func(int64) float64 { return 0.010 + 0.02*float64(r.IntN(200)/199) }
		mean, _ = c.run(3600)
		t.Logf("at random: batch used %d of 12000", mean)
		if mean < 8_000 {
			t.Errorf("minBatch %q, at random: batch used %d of 12000", minBatch, mean)
		}
	}
}

// TestUnknownFigures checks that the NodeReport says once that figures are not known, and that those are no feature
// which the kernel lacks.
func TestUnknownFigures(t *testing.T) {
	c := newCached(t, "", func(int64) float64 { return 0.010 })
	for _, line := range []string{
		"node nopressure", "pod db class=Burstable request=1000 used=1/1Gi delays=10 label=app:web",
	} {
		if err := c.do(line); err != nil {
			t.Fatal(err)
		}
	}
	c.run(5)
	c.load.figures["db"] = figure{value: 10_000}
	c.run(1)
	report := func() []model.Code { c.measure(); plan := c.settled(); return plan.Report.Unsupported }
	if got := report(); slices.Contains(got, model.ServiceUnknown) {
		t.Errorf("all figures are known, and the report has %v", got)
	}
	c.load.figures = map[string]figure{"db": {failed: "timeout"}}
	for range 8 {
		c.node.Now = c.node.Now.Add(time.Second)
		report()
	}
	c.measure()
	plan := c.settled()
	if got := plan.Report.Unsupported; !slices.Equal(got, []model.Code{model.ServiceUnknown}) {
		t.Errorf("two figures are not known, and the report has %v", got)
	}
	if len(plan.Harm.Services) != 2 || len(plan.Unsupported) != 0 {
		t.Errorf("%+v, %+v", plan.Harm, plan.Unsupported)
	}
}
