package experiment

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// trials is a run on two CPUs in which no other pod was on the server's exclusive CPU.
func trials() []cpusetTrial {
	made := func(mode string, latency float64) cpusetTrial {
		t := cpusetTrial{trial: trial{mode: mode, rate: 300, answers: 300}}
		for i := range 1000 {
			t.latency = append(t.latency, latency*float64(i+1)/1000)
			t.late = append(t.late, 0.05)
		}
		t.window = measure.Window{Length: 10 * time.Second, Busy: 2, Used: map[string]time.Duration{
			"server": 3 * time.Second, "batch": 17 * time.Second,
		}}
		return t
	}
	all := []cpusetTrial{made("alone", 2), made("none", 8), made("exclusive", 2.5)}
	delete(all[0].window.Used, "batch")
	all[0].window.Busy = 0.31
	all[2].window.Used["batch"], all[2].window.Busy = 10*time.Second, 1.3
	return all
}

func TestTrials(t *testing.T) {
	r := &run{result: report.Begin("cpuset", "")}
	r.report(trials())
	res := &r.result
	for key, want := range map[string]float64{
		"alone_p99_ms": 1.98, "none_p50_ms": 4, "none_p99_ms": 7.92, "exclusive_p99_ms": 2.475,
		"none_answers_per_second": 300, "exclusive_batch_cpus": 1, "none_batch_cpus": 1.7, "alone_outsiders_cpus": 0.01,
		"exclusive_intruders": 0, "requests": 1000, "exclusive_late_p99_ms": 0.05,
	} {
		if got, found := res.Metrics[key]; !found || math.Abs(got-want) > 0.002 {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := res.Headline.String(); got != "p99 2.48 ms exclusive, 7.92 ms none (goal: exclusive is not slower, and "+
		"no other pod was seen on its CPU; met)" {
		t.Error(got)
	}
	if svg := chart.Standalone(res.Chart); !strings.Contains(svg, "7.92 ms") || !strings.Contains(svg, "alone 1.98 ms") {
		t.Error(svg)
	}
	if notes := strings.Join(res.Notes, "\n"); strings.Contains(notes, "partly its own") ||
		strings.Contains(notes, "outside of") || !strings.Contains(notes, "it used 1.00, and 1.70 before") {
		t.Errorf("%s", notes)
	}
}

// TestTrialsDoubts checks that the notes name what makes the figures doubtful.
func TestTrialsDoubts(t *testing.T) {
	r := &run{result: report.Begin("cpuset", "")}
	res := &r.result
	all := trials()
	for i := range all[1].late {
		all[1].late[i] = 1.2
	}
	all[2].window.Busy = 2
	all[2].intruders = 1
	r.report(all)
	notes := strings.Join(res.Notes, "\n")
	if !strings.Contains(notes, "late by more than 1 ms, p99, in mode none:") ||
		!strings.Contains(notes, "used 0.70 CPUs (exclusive)") {
		t.Error(notes)
	}
	if res.Headline.Met {
		t.Error("met, with another pod on its CPU")
	}
	all = trials()
	for i, ms := range all[1].latency {
		all[2].latency[i] = 1.1 * ms
	}
	if r.report(all); res.Headline.Met {
		t.Error("met, though slower")
	}
}

func TestCount(t *testing.T) {
	at := func(due, sent, ready float64) load.Request {
		d := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		return load.Request{Due: d(due), Sent: d(sent), Ready: d(ready)}
	}
	var got trial
	// The first counts for nothing, the last was answered after the end.
	all := []load.Request{at(0.5, 0.9, 0.95), at(1.5, 1.51, 1.6), at(2, 2, 2.02), at(2.9, 2.9, 3.2)}
	if err := got.count(all, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.latency) != "[20 100 300]" || fmt.Sprint(got.late) != "[0 0 10]" || got.answers != 1 {
		t.Errorf("%+v", got)
	}
	all[2].Ready = 0
	if err := new(trial).count(all, 2*time.Second); err == nil || !strings.Contains(err.Error(), "1 of 3") {
		t.Errorf("one without an answer: %v", err)
	}
}
