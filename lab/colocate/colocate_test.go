package colocate

import (
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
)

const lead = 3 * time.Second

// latencies are the greatest of each mode, in milliseconds.
var latencies = map[string]float64{
	redisbench.Alone: 10, redisbench.Plain: 20, redisbench.Unsuppressed: 12, redisbench.Waterline: 10.5,
}

// measured is an experiment of three repeats at one load, on as many CPUs as this machine has, all of them used. In the
// repeats the latencies are 1, 2 and 4 times those given.
func measured(latency map[string]float64) outcome {
	runs := redisbench.Runs{Repeats: 3, Latest: time.Millisecond, Machine: "2 × CPU"}
	all := float64(runtime.NumCPU())
	for _, factor := range []float64{1, 4, 2} {
		for _, name := range append(modes(), redisbench.BatchAlone) {
			r := redisbench.Run{
				Mode: name, Lead: lead, Load: 0.6, Began: time.Unix(1000, 0), Scheduled: "SCHED_FIFO", Waited: time.Second,
			}
			r.Window = measure.Window{Length: 10 * time.Second, Busy: all, Used: map[string]time.Duration{}}
			if name == redisbench.BatchAlone {
				r.Load, r.Scheduled = 0, ""
			} else {
				r.Window.Used["redis"] = 6 * time.Second
				var requests []load.Request
				for n := range 100 {
					due, took := lead.Seconds()+float64(n)/50, factor*latency[name]/1000*float64(n+1)/100
					requests = append(requests, made(due, 0.0001, took))
				}
				requests[99].Ahead = 7
				requests[99].Server = host.Schedstat{Ran: 30 * time.Millisecond, Waited: 20 * time.Millisecond}
				r.Count(requests)
			}
			if name == redisbench.Alone {
				r.Window.Busy = 0.6
			} else {
				left := time.Duration(all*float64(r.Window.Length)) - r.Window.Used["redis"]
				r.Window.Used[redisbench.FFmpeg], r.Window.Used[redisbench.StressNG] = left/2, left-left/2
				r.Frames, r.Operations = 100*left.Seconds()/(10*all), 1000*left.Seconds()/(10*all)
			}
			runs.Counted = append(runs.Counted, r)
		}
	}
	return outcome{Runs: runs, loads: []float64{0.6}}
}

// made is a request by when it was due, how late it was sent, and its latency, in seconds.
func made(due, late, latency float64) load.Request {
	d := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return load.Request{Due: d(due), Sent: d(due + late), Ready: d(due) + d(latency)}
}

func TestResult(t *testing.T) {
	o := measured(latencies)
	r := resultOf(&o)
	cpus := float64(runtime.NumCPU())
	for key, want := range map[string]float64{
		"alone_60_p99_ms": 19.8, "alone_60_p99_min_ms": 9.9, "alone_60_p99_max_ms": 39.6, "alone_60_p50_ms": 10,
		"plain_60_p99_ratio": 2,
		"p99_ratio_plain":    2, "p99_ratio_unsuppressed": 1.2, "p99_ratio_waterline": 1.05, "cpu_total_percent": 100,
		"batch_share_of_free_cpu":    1,
		"alone_60_cpu_total_percent": 100 * 0.6 / cpus, "waterline_60_batch_cpus": cpus - 0.6,
		"waterline_60_batch_work_percent": 100 * (cpus - 0.6) / cpus,
		"waterline_60_online_cpus":        0.6, "waterline_60_cpu_ms_per_request": 60, "waterline_60_wait_ms_per_request": 10,
		"waterline_60_errors":      0,
		"waterline_60_late_p99_ms": 0.1, "generator_late_p99_ms": 0.1, "batch_alone_batch_cpus": cpus, "runs": 15,
		"runs_discarded": 0,
	} {
		if got, found := r.Metrics[key]; !found || math.Abs(got-want) > 0.06 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	const headline = "p99 1.05 × alone, CPU 100 % used, batch 100 % of what was free " +
		"(goal: p99 ≤ 1.10 × alone, CPU ≥ 90 % used, batch ≥ 80 % of what was free; met)"
	if got := r.Headline.String(); got != headline {
		t.Error(got)
	}
	if got := r.Series["plain_60_p99_ms"]; !slices.Equal(got, []float64{19.8, 79.2, 39.6}) {
		t.Errorf("p99 of each repeat: %v", got)
	}
	for figure, want := range map[string]float64{"ran_ms": 30, "waited_ms": 20} {
		if got := r.Series["plain_60_slowest_"+figure]; len(got) != 15 || got[0] != want || got[1] != 0 {
			t.Errorf("%s of the five slowest of each repeat: %v", figure, got)
		}
	}
	table := r.Table.String()
	if !strings.Contains(table, "60 %, waterline") || !strings.Contains(table, "10.39–41.58") ||
		len(r.Table.Rows) != 5 {
		t.Error(table)
	}
	for _, cells := range r.Table.Rows {
		if len(cells) != len(r.Table.Head) {
			t.Errorf("%d cells under %d heads: %v", len(cells), len(r.Table.Head), cells)
		}
	}
	notes := strings.Join(r.Notes, "\n")
	const slowest = "The slowest request in mode plain at 60 % came at 00:16:44.980: 80.00 ms; sent 0.10 ms late with 7 " +
		"requests before it; until the answer the server ran for 30.00 ms and waited for a CPU for 20.00 ms."
	if !strings.Contains(notes, slowest) || !strings.Contains(notes, "(SCHED_FIFO)") ||
		strings.Contains(notes, "The rest of the machine") {
		t.Error(notes)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "waterline") || !strings.Contains(svg, "alone 19.80 ms") {
		t.Error(svg)
	}
}

// TestResultLate checks that nothing that was not measured in time has a figure, and that no goal is met then.
func TestResultLate(t *testing.T) {
	o := measured(latencies)
	o.Discarded = o.Of(redisbench.Waterline, 0.6)
	o.Counted = slices.DeleteFunc(o.Counted, func(r redisbench.Run) bool { return r.Mode == redisbench.Waterline })
	r := resultOf(&o)
	for _, key := range []string{"p99_ratio_waterline", "cpu_total_percent", "batch_share_of_free_cpu",
		"waterline_60_p99_ms"} {
		if value, found := r.Metrics[key]; found {
			t.Errorf("%s is %v", key, value)
		}
	}
	if r.Headline.Met || !strings.Contains(r.Headline.Value, "slow, too often") || r.Metrics["runs_discarded"] != 3 ||
		r.Metrics["p99_ratio_plain"] != 2 {
		t.Errorf("%s, %v", r.Headline, r.Metrics)
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "There are no figures of mode waterline at 60 %") {
		t.Error(notes)
	}
}

// TestResultBusy checks what else keeps the goal from being met.
func TestResultBusy(t *testing.T) {
	for what, spoil := range map[string]func(*redisbench.Run){
		"others":  func(r *redisbench.Run) { r.Window.Used["ffmpeg"] -= 5 * time.Second },
		"nothing": func(*redisbench.Run) {},
		"idle": func(r *redisbench.Run) {
			r.Window.Used["ffmpeg"], r.Window.Busy = 0, r.Window.CPUs()-r.Window.CPUsOf("ffmpeg")
		},
		"partly idle": func(r *redisbench.Run) {
			less := 0.12 * float64(runtime.NumCPU())
			r.Window.Used["ffmpeg"] -= time.Duration(less * float64(r.Window.Length))
			r.Window.Busy -= less
		},
		"slow": func(r *redisbench.Run) {
			for i := range r.Latency {
				r.Latency[i] *= 1.2
			}
		},
		"stolen": func(r *redisbench.Run) { // what others take of the machine is not used, nor is it free
			r.Window.Steal = 10
			r.Window.Used["ffmpeg"] -= time.Duration(0.1 * float64(runtime.NumCPU()) * float64(r.Window.Length))
		},
	} {
		o := measured(latencies)
		for i := range o.Counted {
			if o.Counted[i].Mode == redisbench.Waterline {
				spoil(&o.Counted[i])
			}
		}
		r := resultOf(&o)
		if want := what == "nothing" || what == "stolen"; r.Headline.Met != want {
			t.Errorf("%s: %s", what, r.Headline)
		}
		if got := strings.Contains(r.Headline.Value, "busy otherwise"); got != (what == "others") {
			t.Errorf("%s: %s", what, r.Headline)
		}
	}
}

func resultOf(o *outcome) *report.Result {
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestCells(t *testing.T) {
	cfg := Config{Policy: filepath.Join(t.TempDir(), "none.yaml")}
	if _, err := cfg.cells(); err == nil {
		t.Error("no error for a policy file that does not exist")
	}
	cfg = Config{Loads: []float64{0.3, 0.6}, Settle: 7}
	cells, err := cfg.cells()
	if err != nil || len(cells) != 1+2*len(modes()) {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	for _, c := range cells {
		if c.Online == (c.Load == 0) || (c.Lead == 7*time.Second) != (c.Name == redisbench.Waterline) {
			t.Errorf("%+v", c)
		}
		if c.Policy == "" {
			continue
		}
		if p, err := kube.ParsePolicy([]byte(c.Policy)); err != nil || p.Policy.Mode != model.ModeEnforce {
			t.Errorf("%s: %+v, %v", c.Name, p, err)
		}
	}
}

func TestSteps(t *testing.T) {
	rates, rises := steps(0.6, 12*time.Second)
	if !slices.Equal(rates, load.Rates{0.05, 0.6, 0.05, 0.6, 0.05, 0.6}) ||
		!slices.Equal(rises, []time.Duration{2 * time.Second, 6 * time.Second, 10 * time.Second}) {
		t.Errorf("%v, rises at %v", rates, rises)
	}
	if rates, rises := steps(0.6, time.Second); len(rates) != 2 || !slices.Equal(rises, []time.Duration{time.Second / 2}) {
		t.Errorf("%v, rises at %v", rates, rises)
	}
	cfg := Config{Loads: []float64{0.3, 0.6}, Steps: true}
	cfg.Seconds = 8
	cells, err := cfg.cells()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.Online && (len(c.Rates) != 4 || len(c.Rises) != 2) {
			t.Errorf("%s: %v, rises at %v", c.Name, c.Rates, c.Rises)
		}
	}
	// Of 100 requests in two seconds, whose latency goes up, the first 50 are in the second after the rise.
	o := measured(latencies)
	for i := range o.Counted {
		if o.Counted[i].Mode != redisbench.BatchAlone {
			o.Counted[i].Rises = []time.Duration{0}
		}
	}
	r := resultOf(&o)
	if got := r.Metrics["alone_60_rise_p99_ms"]; got != 10 || r.Metrics["waterline_60_rise_p99_ratio"] != 1.05 {
		t.Errorf("p99 of the first second: %v, %v × alone", got, r.Metrics["waterline_60_rise_p99_ratio"])
	}
	const note = "The first seconds after the requests rose at once to 60 %, mode plain: p99 "
	notes := strings.Join(r.Notes, "\n")
	if !strings.Contains(notes, note) || !strings.Contains(notes, ", 2.00 × alone.") {
		t.Error(notes)
	}
}
