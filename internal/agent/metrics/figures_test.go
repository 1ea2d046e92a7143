package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestUsers checks the usage of each class. A missing measurement leaves a gap in the class it belongs to, and in the
// classes that are computed by subtracting it, and in no other.
func TestUsers(t *testing.T) {
	const now = time.Hour
	usage := func(milli int64) model.Usage {
		return fixture.Usage(now, milli, milli)
	}
	pods := []*model.Pod{{UID: "a", Class: model.ClassLS}, {UID: "b", Class: model.ClassBE},
		{UID: "c", Class: model.ClassSystem}, {UID: "gone", Class: model.ClassLSE}}
	load := func() *model.Load {
		return &model.Load{
			Clock: now, Node: usage(4000), Classes: [3]model.Usage{usage(3000), usage(0), usage(0)},
			Pods: []model.PodUsage{{UID: "a", Usage: usage(500)}, {UID: "b", Usage: usage(1000)}, {UID: "c", Usage: usage(300)},
				{UID: "orphan", Usage: usage(700)}},
		}
	}
	const gap = -1
	for name, c := range map[string]struct {
		miss func(l *model.Load)
		want [len(users)]float64
	}{
		"all measured": {func(*model.Load) {}, [...]float64{4, 1.3, 0, 0, 0.5, 1, 1.2}},
		"old online": {func(l *model.Load) { l.Pods[0].CPU.At = now - time.Minute },
			[...]float64{4, 1.3, 0, 0, gap, 1, gap}},
		"old batch": {func(l *model.Load) { l.Pods[1].CPU.At = now - time.Minute },
			[...]float64{4, 1.3, 0, 0, 0.5, gap, gap}},
		"old daemon": {func(l *model.Load) { l.Pods[2].CPU.At = now - time.Minute },
			[...]float64{4, gap, 0, 0, 0.5, 1, gap}},
		"old node": {func(l *model.Load) { l.Node.CPU.At = now - time.Minute },
			[...]float64{gap, gap, 0, 0, 0.5, 1, 1.2}},
		"old whole": {func(l *model.Load) { l.Classes[0].CPU.At = now - time.Minute },
			[...]float64{4, gap, 0, 0, 0.5, 1, gap}},
		"new online": {func(l *model.Load) { l.Pods[0].CPU = model.CPUUsage{} }, [...]float64{4, 1.3, 0, 0, 0, 1, 1.7}},
	} {
		t.Run(name, func(t *testing.T) {
			var f figures
			l := load()
			c.miss(l)
			f.note(l, pods, &model.Plan{})
			for i, want := range c.want {
				got, ok := f.cpu[i].mean(&f.at, now, time.Second)
				if ok != (want != gap) || ok && (got < want-1e-6 || got > want+1e-6) {
					t.Errorf("%s uses %v %v, want %v", users[i], got, ok, want)
				}
				got, ok = f.memory[i].mean(&f.at, now, time.Second)
				if name == "all measured" && (!ok || got < 1000*want-1e-3 || got > 1000*want+1e-3) {
					t.Errorf("%s has %v bytes %v, want %v", users[i], got, ok, 1000*want)
				}
			}
		})
	}
}

// TestUsersMean checks seconds in which pods seem to use more than the machine. They do not increase the mean of the
// rest, and no figure is below 0.
func TestUsersMean(t *testing.T) {
	var f figures
	usage := func(at time.Duration, milli int64) model.Usage {
		return fixture.Usage(at, milli, milli)
	}
	const seconds = 60
	for i := range seconds {
		now := time.Duration(i+1) * time.Second
		node := []int64{3400, 2800}[i%2]
		f.note(&model.Load{Clock: now, Stolen: 250, Node: usage(now, node),
			Classes: [3]model.Usage{usage(now, 3000), usage(now, 0), usage(now, 0)}}, nil, &model.Plan{})
	}
	shown := map[string]float64{}
	f.collect(seconds*time.Second, func(_ prometheus.ValueType, name, _ string, value float64, labels ...string) {
		shown[name+strings.Join(labels, " ")] = value
	})
	for series, want := range map[string]float64{
		v1alpha1.MetricCPUUsed + "class system window 1m": 0.1, v1alpha1.MetricCPUUsed + "class system window 1s": 0,
		v1alpha1.MetricCPUStolen + "window 1m": 0.25, v1alpha1.MetricCPUUsed + "class unknown window 1m": 3,
		v1alpha1.MetricMemoryUsed + "class system window 1m": 100,
	} {
		if got, ok := shown[series]; !ok || got < want-1e-3 || got > want+1e-3 {
			t.Errorf("%s is %v %v, want %v", series, got, ok, want)
		}
	}
}

// TestPressureOfReport checks that a report has the mean of a minute, in thousandths, and nothing where the kernel
// reports no pressure or less than half of a minute was measured.
func TestPressureOfReport(t *testing.T) {
	for name, c := range map[string]struct {
		seconds int
		none    bool
		want    *model.NodePressure
	}{
		"a minute":    {seconds: 60, want: &model.NodePressure{CPU: 500, Memory: 20, IO: 7}},
		"ten seconds": {seconds: 10},
		"no PSI":      {seconds: 60, none: true},
	} {
		var r Recorder
		l := &model.Load{}
		for i := range c.seconds {
			l.Clock = time.Hour + time.Duration(i)*time.Second
			if l.Node.Pressure = (model.Pressure{}); !c.none {
				l.Node.Pressure = model.Pressure{At: l.Clock, CPU: model.Stall{Some: int64(1000 * (i % 2))},
					Memory: model.Stall{Some: 20, Full: 10}, IO: model.Stall{Some: 7}}
			}
			r.Measured(l, nil, &model.Plan{})
		}
		if got := r.Pressure(l); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestThrottledOfReport checks that a report has the mean of a minute of what batch requests beyond its limit, and
// nothing where less than half of a minute was measured.
func TestThrottledOfReport(t *testing.T) {
	slack := &model.Slack{}
	slack.CPU.Bound, slack.CPU.Use.Unsold = model.TierAmounts{Mid: 500, Batch: 2000}, 300
	for name, c := range map[string]struct {
		seconds int
		limit   *model.Suppression // in every second second
		want    int64              // -1: nothing
	}{
		"limited half of the time": {60, &model.Suppression{Milli: 800}, 1000},
		"limited to more":          {60, &model.Suppression{Milli: 4000}, 0},
		"not limited":              {60, nil, 0},
		"ten seconds":              {10, &model.Suppression{Milli: 800}, -1},
	} {
		var r Recorder
		l := &model.Load{}
		for i := range c.seconds {
			l.Clock = time.Hour + time.Duration(i)*time.Second
			plan := &model.Plan{Slack: slack}
			if i%2 == 0 {
				plan.Suppress = c.limit
			}
			r.Measured(l, nil, plan)
		}
		got := int64(-1)
		if milli := r.Throttled(l); milli != nil {
			got = *milli
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if (&Recorder{}).Throttled(nil) != nil {
		t.Error("something is known before the first measurement")
	}
}
