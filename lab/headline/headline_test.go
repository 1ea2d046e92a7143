package headline

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
	"github.com/waterline-io/waterline/test/golden"
)

const lead = 3 * time.Second

// TestScale checks that a day has the wanted mean, whatever its unit, and that no part is more than one thread should
// do.
func TestScale(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		percent float64
		cpus    int
		want    load.Rates
		capped  int
		err     string
	}{
		{[]float64{10, 30}, 10, 2, load.Rates{0.1, 0.3}, 0, ""},
		{[]float64{1000, 3000}, 10, 2, load.Rates{0.1, 0.3}, 0, ""},
		{[]float64{0, 0, 8}, 15, 2, load.Rates{0, 0, 0.7}, 1, ""},
		{[]float64{1, 1}, 35, 2, load.Rates{0.7, 0.7}, 0, ""},
		{[]float64{1, 1}, 36, 2, nil, 0, "36 % of 2 CPUs is 0.72 CPUs in the mean; Redis has one thread"},
		{[]float64{1, 1}, 0, 2, nil, 0, "0 % of 2 CPUs"},
		{[]float64{0, 0}, 9, 2, nil, 0, "used nothing"},
		{nil, 9, 2, nil, 0, "used nothing"},
	} {
		rates, capped, err := scale(Day{Values: c.values}, c.percent, c.cpus)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v: %v", c.values, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !slices.EqualFunc(rates, c.want, near) || capped != c.capped {
			t.Errorf("%v became %v, %d of them capped", c.values, rates, capped)
		}
	}
}

// measured is a day of 40 s, twice in each mode, with three times the load in its second half, and with batch on the
// rest of the machine. Each request takes as long as given in milliseconds, those of the second half twice as long.
func measured(latency map[string]float64) *outcome {
	o := &outcome{
		Runs: redisbench.Runs{Repeats: 2, Latest: time.Millisecond, Machine: "2 × CPU"},
		day:  Day{Name: "machine a, day 1", Values: []float64{1, 3}}, percent: 9, length: 40 * time.Second,
		rates: load.Rates{0.1, 0.3},
	}
	all := float64(runtime.NumCPU())
	for _, factor := range []float64{1, 3} {
		for _, name := range modes() {
			r := redisbench.Run{
				Mode: name, Lead: lead, Load: o.load(), Began: time.Unix(1000, 0), Scheduled: "SCHED_FIFO",
			}
			var requests []load.Request
			for second := range 40 {
				late := float64(second / 20) // 0 or 1
				online := 0.1 + 0.2*late
				w := measure.Window{
					Length: time.Second, Busy: online, Generator: 10 * time.Millisecond,
					Used: map[string]time.Duration{"redis": time.Duration(online * float64(time.Second))},
				}
				if name == redisbench.Waterline {
					w.Busy = 0.9 * all
					w.Used["agent"] = 20 * time.Millisecond
					w.Used["ffmpeg"] = time.Duration((w.Busy - online - 0.08) * float64(time.Second)) // 0.05 are other processes'
				} else {
					w.Busy += 0.06
				}
				r.Seconds = append(r.Seconds, w)
				for range 100 {
					due := lead + time.Duration(second)*time.Second + time.Second/2
					took := time.Duration(factor * latency[name] * (1 + late) * float64(time.Millisecond))
					requests = append(requests, load.Request{Due: due, Sent: due + 100*time.Microsecond, Ready: due + took})
				}
			}
			r.Window = measure.Join(r.Seconds)
			if name == redisbench.Waterline {
				r.Frames = 100
			}
			r.Count(requests)
			o.Counted = append(o.Counted, r)
		}
	}
	return o
}

var latencies = map[string]float64{redisbench.Alone: 2, redisbench.Waterline: 2.1}

func resultOf(o *outcome) *report.Result {
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestResult(t *testing.T) {
	r := resultOf(measured(latencies))
	cpus := float64(runtime.NumCPU())
	for key, want := range map[string]float64{
		"alone_p50_ms": 4, "alone_p99_ms": 8, "alone_p99_min_ms": 4, "alone_p99_max_ms": 12, "waterline_p99_ms": 8.4,
		"waterline_p99_ratio": 1.05, "p99_ratio": 1.05,
		"alone_online_percent": 100 * 0.2 / cpus, "alone_cpu_total_percent": 100 * 0.26 / cpus,
		"alone_generator_percent": 1 / cpus, "alone_other_percent": 5 / cpus,
		"waterline_cpu_total_percent": 90, "cpu_total_percent": 90, "waterline_batch_percent": 90 - 100*0.28/cpus,
		"waterline_agent_percent": 2 / cpus,
		"waterline_other_percent": 5 / cpus, "waterline_ffmpeg_frames_per_second": 100, "pods_lost": 0,
		"asked_percent": 100 * 0.2 / cpus, "day_seconds": 40,
		"day_values": 2, "day_values_capped": 0, "runs": 4, "runs_discarded": 0, "generator_late_p99_ms": 0.1,
	} {
		if got, found := r.Metrics[key]; !found || math.Abs(got-want) > 0.011 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	for key := range r.Metrics {
		if strings.Contains(key, "stress") {
			t.Errorf("there is %s, and no stress-ng", key)
		}
	}
	// Of each of the twenty parts: the second repeat takes three times as long and has half of the requests.
	for key, want := range map[string][2]float64{
		"alone_part_p99_ms": {6, 12}, "waterline_part_p99_ms": {6.3, 12.6}, "alone_part_p50_ms": {2, 4},
		"waterline_part_online_percent": {10 / cpus, 30 / cpus}, "waterline_part_cpu_total_percent": {90, 90},
		"waterline_part_other_percent": {5 / cpus, 5 / cpus},
		"waterline_part_batch_percent": {90 - 18/cpus, 90 - 38/cpus}, "alone_part_batch_percent": {0, 0},
	} {
		got := r.Series[key]
		near := func(i int, want float64) bool { return i < len(got) && math.Abs(got[i]-want) <= 0.011 }
		if len(got) != 20 || !near(0, want[0]) || !near(9, want[0]) || !near(10, want[1]) || !near(19, want[1]) {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	const headline = "CPU 90 % used, p99 1.05 × alone, 0 pods lost " +
		"(goal: CPU ≥ 60 % used, p99 ≤ 1.10 × alone, no pod lost; met)"
	if got := r.Headline.String(); got != headline {
		t.Error(got)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "beside batch") || !strings.Contains(svg, "goal for "+
		"the mean, 60 %") {
		t.Error(svg)
	}
}

// TestResultText shows what a reader sees. The shares are those of a machine of two CPUs.
func TestResultText(t *testing.T) {
	m := map[string]float64{}
	for key, value := range map[string]float64{
		"p50_ms": 1.61, "p99_ms": 3.924, "p999_ms": 7.1, "errors": 0, "online_percent": 9.04, "batch_percent": 0,
		"generator_percent": 0.44, "other_percent": 1.2, "cpu_total_percent": 10.7, "pods_lost": 0,
	} {
		m["alone_"+key], m["waterline_"+key] = value, value
	}
	m["waterline_kubelet_percent"], m["waterline_control_plane_percent"] = 0.5, 0.36
	m["waterline_p99_ratio"], m["waterline_ffmpeg_frames_per_second"] = 1.0712, 123.46
	m["waterline_agent_percent"], m["waterline_batch_percent"], m["waterline_cpu_total_percent"] = 0.31, 77.25, 88.3
	r := resultOf(measured(latencies))
	table := report.Table{Head: r.Table.Head, Rows: [][]string{row(m, redisbench.Alone), row(m, redisbench.Waterline),
		row(m, "none")}}
	golden.Compare(t, "testdata/headline.txt", fmt.Sprintf("%s\n%s\n", table, r.Headline))
}

// TestResultSpoiled checks what keeps the goal from being met. On a node the processes that keep it running do not.
func TestResultSpoiled(t *testing.T) {
	others := func(o *outcome) {
		for i := range o.Counted {
			o.Counted[i].Window.Busy += 0.2
		}
	}
	for name, c := range map[string]struct {
		spoil func(*outcome)
		met   bool
		says  string
	}{
		"nothing": {func(*outcome) {}, true, "0 pods lost"},
		"others":  {others, false, "busy otherwise"},
		"a node": {func(o *outcome) {
			others(o)
			for i := range o.Counted {
				o.Counted[i].NodeCPU = map[string]time.Duration{
					redisbench.Kubelet: 5 * time.Second, redisbench.ControlPlane: 3 * time.Second,
				}
			}
		}, true, "0 pods lost"},
		"a pod": {func(o *outcome) { o.Counted[1].Lost = 1 }, false, "1 pods lost"},
		"idle": {func(o *outcome) {
			for _, i := range []int{1, 3} {
				w := &o.Counted[i].Window
				w.Busy, w.Used["ffmpeg"] = w.Busy-w.CPUsOf("ffmpeg")/2, w.Used["ffmpeg"]/2
			}
		}, false, "CPU "},
		"slow": {func(o *outcome) {
			for _, i := range []int{1, 3} {
				for j := range o.Counted[i].Latency {
					o.Counted[i].Latency[j] *= 1.2
				}
			}
		}, false, "p99 1.26"},
		"late": {func(o *outcome) {
			o.Discarded = o.Of(redisbench.Waterline, o.load())
			o.Counted = o.Of(redisbench.Alone, o.load())
		}, false, "late, or the CPU slow, too often"},
	} {
		o := measured(latencies)
		c.spoil(o)
		r := resultOf(o)
		if r.Headline.Met != c.met || !strings.Contains(r.Headline.Value, c.says) {
			t.Errorf("%s: %s", name, r.Headline)
		}
		if len(r.Table.Rows) != 2 {
			t.Errorf("%s: %s", name, r.Table)
		}
		chart.Standalone(r.Chart)
	}
}

// TestNotes checks that the notes name the machine of the day and the capped values.
func TestNotes(t *testing.T) {
	o := measured(latencies)
	text := func() string { return strings.Join(resultOf(o).Notes, "\n") }
	if notes := text(); !strings.Contains(notes, "The day is that of machine a, day 1, 2 values within 40s.") ||
		strings.Contains(notes, "capped") || !strings.Contains(notes, "10 to 30 % of one CPU") {
		t.Error(notes)
	}
	o.capped = 1
	if notes := text(); !strings.Contains(notes, "1 of 2 values were more than") || !strings.Contains(notes, "capped "+
		"at 70 % of a CPU") {
		t.Error(notes)
	}
}
