package experiment

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/golden"
)

// The course of a day has the mean that is asked for, however it was measured, and never asks for more than one thread
// should do.
func TestDayScale(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		percent float64
		cpus    int
		want    course
		capped  int
		err     string
	}{
		{[]float64{10, 30}, 10, 2, course{0.1, 0.3}, 0, ""},
		{[]float64{1000, 3000}, 10, 2, course{0.1, 0.3}, 0, ""},
		{[]float64{0, 0, 8}, 15, 2, course{0, 0, 0.7}, 1, ""},
		{[]float64{1, 1}, 35, 2, course{0.7, 0.7}, 0, ""},
		{[]float64{1, 1}, 36, 2, nil, 0, "36 % of 2 CPUs is 0.72 CPUs in the mean; Redis has one thread"},
		{[]float64{1, 1}, 0, 2, nil, 0, "0 % of 2 CPUs"},
		{[]float64{0, 0}, 9, 2, nil, 0, "nothing was used"},
		{nil, 9, 2, nil, 0, "nothing was used"},
	} {
		cfg := LiveDayConfig{Day: Day{Values: c.values}, Percent: c.percent}
		d, err := cfg.scale(c.cpus)
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
		if !slices.EqualFunc(d.course, c.want, near) || d.capped != c.capped {
			t.Errorf("%v became %v, %d of them capped", c.values, d.course, d.capped)
		}
	}
}

// livedDay is a day of 40 s with one CPU of load in the second half of each run alone, twice, and with batch beside it on all
// else of the machine. Each request takes as long as given in milliseconds, those of the second half twice as long.
func livedDay(latency map[string]float64) *LivedDay {
	d := &LivedDay{
		measured: measured{Repeats: 2, Latest: time.Millisecond, Machine: "2 × CPU"}, Day: Day{Name: "machine a, day 1", Values: []float64{1, 3}},
		Percent: 9, Length: 40 * time.Second, course: course{0.1, 0.3},
	}
	all := float64(runtime.NumCPU())
	for repeat, factor := range []float64{1, 3} {
		for _, name := range []string{modeAlone, modeWaterline} {
			r := colocated{mode: name, lead: settled, load: d.mean(), repeat: repeat, began: time.Unix(1000, 0), scheduled: "SCHED_FIFO"}
			var asked []asked
			for second := range 40 {
				late := float64(second / 20) // 0 or 1
				online := 0.1 + 0.2*late
				w := window{length: time.Second, busy: online, used: map[string]time.Duration{"redis": time.Duration(online * float64(time.Second))}, asks: 10 * time.Millisecond}
				if name == modeWaterline {
					w.busy = 0.9 * all
					w.used["agent"] = 20 * time.Millisecond
					w.used["ffmpeg"] = time.Duration((w.busy - online - 0.08) * float64(time.Second)) // 0.05 are others'
				} else {
					w.busy += 0.06
				}
				r.seconds = append(r.seconds, w)
				for range 100 {
					a := made(float64(second)+0.5, 0.0001, factor*latency[name]/1000*(1+late))
					a.due, a.sent, a.ready = a.due+settled, a.sent+settled, a.ready+settled
					asked = append(asked, a)
				}
			}
			r.window = together(r.seconds)
			if name == modeWaterline {
				r.frames = 100
			}
			r.count(asked)
			d.runs = append(d.runs, r)
		}
	}
	return d
}

func TestLivedDay(t *testing.T) {
	r := livedDay(map[string]float64{modeAlone: 2, modeWaterline: 2.1}).Result()
	cpus := float64(runtime.NumCPU())
	for key, want := range map[string]float64{
		"alone_p50_ms": 4, "alone_p99_ms": 8, "alone_p99_min_ms": 4, "alone_p99_max_ms": 12, "waterline_p99_ms": 8.4, "waterline_p99_ratio": 1.05, "p99_ratio": 1.05,
		"alone_online_percent": 100 * 0.2 / cpus, "alone_cpu_total_percent": 100 * 0.26 / cpus, "alone_generator_percent": 1 / cpus, "alone_other_percent": 5 / cpus,
		"waterline_cpu_total_percent": 90, "cpu_total_percent": 90, "waterline_batch_percent": 90 - 100*0.28/cpus, "waterline_agent_percent": 2 / cpus,
		"waterline_other_percent": 5 / cpus, "waterline_ffmpeg_frames_per_second": 100, "pods_lost": 0, "asked_percent": 100 * 0.2 / cpus, "day_seconds": 40,
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
		"waterline_part_online_percent": {10 / cpus, 30 / cpus}, "waterline_part_cpu_total_percent": {90, 90}, "waterline_part_other_percent": {5 / cpus, 5 / cpus},
		"waterline_part_batch_percent": {90 - 18/cpus, 90 - 38/cpus}, "alone_part_batch_percent": {0, 0},
	} {
		got := r.Series[key]
		if len(got) != 20 || math.Abs(got[0]-want[0]) > 0.011 || math.Abs(got[9]-want[0]) > 0.011 || math.Abs(got[10]-want[1]) > 0.011 || math.Abs(got[19]-want[1]) > 0.011 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := r.Headline.String(); got != "CPU 90 % used, p99 1.05 × alone, 0 pods lost (goal: CPU ≥ 60 % used, p99 ≤ 1.10 × alone, no pod lost; met)" {
		t.Error(got)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "beside batch") || !strings.Contains(svg, "goal for the mean, 60 %") {
		t.Error(svg)
	}
}

// What a reader sees. The shares are those of a machine of two CPUs.
func TestLivedDayText(t *testing.T) {
	m := map[string]float64{}
	for key, value := range map[string]float64{
		"p50_ms": 1.61, "p99_ms": 3.924, "p999_ms": 7.1, "errors": 0, "online_percent": 9.04, "batch_percent": 0, "generator_percent": 0.44,
		"other_percent": 1.2, "cpu_total_percent": 10.7, "pods_lost": 0,
	} {
		m["alone_"+key], m["waterline_"+key] = value, value
	}
	m["waterline_kubelet_percent"], m["waterline_control_plane_percent"] = 0.5, 0.36
	m["waterline_p99_ratio"], m["waterline_ffmpeg_frames_per_second"], m["waterline_agent_percent"] = 1.0712, 123.46, 0.31
	m["waterline_batch_percent"], m["waterline_cpu_total_percent"] = 77.25, 88.3
	r := livedDay(map[string]float64{modeAlone: 2, modeWaterline: 2.1}).Result()
	table := Table{Head: r.Table.Head, Rows: [][]string{dayRow(m, "alone_", modeAlone), dayRow(m, "waterline_", modeWaterline), dayRow(m, "none_", "none")}}
	golden.Compare(t, "testdata/headline.txt", fmt.Sprintf("%s\n%s\n", table, r.Headline))
}

// Nothing is met by a machine that does something else, by one that lost a pod, or without enough work or speed. On a node
// what keeps it running is at work, and is no stranger.
func TestLivedDaySpoiled(t *testing.T) {
	others := func(d *LivedDay) {
		for i := range d.runs {
			d.runs[i].window.busy += 0.2
		}
	}
	for what, c := range map[string]struct {
		spoil func(*LivedDay)
		met   bool
		said  string
	}{
		"nothing": {func(*LivedDay) {}, true, "0 pods lost"},
		"others":  {others, false, "busy otherwise"},
		"a node": {func(d *LivedDay) {
			others(d)
			for i := range d.runs {
				d.runs[i].upkeep = map[string]time.Duration{nodeUpkeep: 5 * time.Second, clusterUpkeep: 3 * time.Second}
			}
		}, true, "0 pods lost"},
		"a pod": {func(d *LivedDay) { d.runs[1].lost = 1 }, false, "1 pods lost"},
		"idle": {func(d *LivedDay) {
			for _, i := range []int{1, 3} {
				w := &d.runs[i].window
				w.busy, w.used["ffmpeg"] = w.busy-w.of("ffmpeg")/2, w.used["ffmpeg"]/2
			}
		}, false, "CPU "},
		"slow": {func(d *LivedDay) {
			for _, i := range []int{1, 3} {
				for j := range d.runs[i].latency {
					d.runs[i].latency[j] *= 1.2
				}
			}
		}, false, "p99 1.26"},
		"late": {func(d *LivedDay) {
			d.discarded = d.of(modeWaterline, d.mean())
			d.runs = d.of(modeAlone, d.mean())
		}, false, "late too often"},
	} {
		d := livedDay(map[string]float64{modeAlone: 2, modeWaterline: 2.1})
		c.spoil(d)
		r := d.Result()
		if r.Headline.Met != c.met || !strings.Contains(r.Headline.Value, c.said) {
			t.Errorf("%s: %s", what, r.Headline)
		}
		if len(r.Table.Rows) != 2 {
			t.Errorf("%s: %s", what, r.Table)
		}
		chart.Standalone(r.Chart)
	}
}

// The notes say what was capped and on what the day was measured.
func TestLivedDayNotes(t *testing.T) {
	d := livedDay(map[string]float64{modeAlone: 2, modeWaterline: 2.1})
	said := func() string { return strings.Join(d.Result().Notes, "\n") }
	if notes := said(); !strings.Contains(notes, "The day is that of machine a, day 1, 2 values within 40s.") || strings.Contains(notes, "capped") || !strings.Contains(notes, "10 to 30 % of one CPU") {
		t.Error(notes)
	}
	d.capped = 1
	if notes := said(); !strings.Contains(notes, "In 1 of 2 values it was to be more") || !strings.Contains(notes, "capped at 70 % of a CPU") {
		t.Error(notes)
	}
}
