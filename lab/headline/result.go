package headline

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	reportchart "github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
)

const (
	goalCPU   = 60   // percent of the machine's CPU time that is used
	goalRatio = 1.10 // p99 beside batch to p99 alone
	dayParts  = 20   // of which latency and use are shown apart
)

// The modes, and how their metrics begin.
const (
	alone     = redisbench.Alone + "_"
	waterline = redisbench.Waterline + "_"
)

func modes() []string { return []string{redisbench.Alone, redisbench.Waterline} }

// outcome is all that the experiment measured.
type outcome struct {
	redisbench.Runs
	day     Day
	percent float64 // of the machine that the day was to take in the mean
	length  time.Duration
	onNode  bool       // in pods of a real node
	rates   load.Rates // parts of one CPU that the requests took
	capped  int        // of the rates
}

// load returns the part of one CPU that the requests took in the mean.
func (o *outcome) load() float64 { return measure.Mean(o.rates) }

// report makes the result: medians of all repeats, and of the parts of the day those of all repeats together.
//
// Metrics, each beginning with alone_ or waterline_: the figures of a [redisbench.Run]; p99_min_ms, p99_max_ms and
// p99_ratio; online_percent, batch_percent, agent_percent, generator_percent and other_percent, of the machine's CPU
// time, and on a node kubelet_percent and control_plane_percent, which are parts of other_percent. Then
// cpu_total_percent and p99_ratio of mode waterline, pods_lost of all runs; asked_percent, the part of the machine that
// the requests took; day_seconds, day_values and day_values_capped; runs, runs_discarded and generator_late_p99_ms.
//
// Series, beginning likewise: part_p99_ms and part_p50_ms, part_cpu_total_percent, and one for each of the percentages
// above: of twentieths of the day.
func (o *outcome) report(r *report.Result) {
	o.Describe(r)
	r.Table.Head = []string{
		"", "p50 ms", "p99", "p99.9", "× alone", "errors", "online", "batch", "agent", "generator", "other", "of it kubelet",
		"control plane", "used", "frames/s", "pods lost",
	}
	for _, mode := range modes() {
		key := mode + "_"
		o.Add(r, key, mode, o.load(), nil)
		cpus := float64(runtime.NumCPU()) * (1 - r.Metrics[key+"steal_percent"]/100)
		for _, part := range []string{
			"online", "batch", "agent", "generator", "other", redisbench.Kubelet, redisbench.ControlPlane,
		} {
			if value, found := r.Metrics[key+part+"_cpus"]; found {
				r.Metrics[key+part+"_percent"] = measure.Round(100*value/cpus, 2)
			}
		}
		o.addParts(r, key, mode)
		r.Table.Rows = append(r.Table.Rows, row(r.Metrics, mode))
	}
	o.sumUp(r)
	draw(r)
	r.Notes = o.notes()
}

func row(m map[string]float64, mode string) []string {
	figure := measure.Figures(m, mode+"_")
	cells := []string{mode}
	for _, name := range []string{"p50_ms", "p99_ms", "p999_ms", "p99_ratio"} {
		cells = append(cells, figure(name, "%.2f"))
	}
	cells = append(cells, figure("errors", "%.0f"))
	for _, part := range []string{
		"online", "batch", "agent", "generator", "other", redisbench.Kubelet, redisbench.ControlPlane, "cpu_total",
	} {
		cells = append(cells, figure(part+"_percent", "%.1f %%"))
	}
	return append(cells, figure("ffmpeg_frames_per_second", "%.1f"), figure("pods_lost", "%.0f"))
}

// addParts adds the series of the parts of the day.
func (o *outcome) addParts(r *report.Result, key, mode string) {
	runs := o.Of(mode, o.load())
	parts := dayParts
	for _, run := range runs {
		parts = min(parts, len(run.Seconds))
	}
	for i := range parts {
		all := redisbench.Run{}
		var windows []measure.Window
		for _, run := range runs {
			n := len(run.Seconds)
			windows = append(windows, run.Seconds[i*n/parts:(i+1)*n/parts]...)
			for _, a := range run.Requests {
				if int(int64(a.Due-run.Lead)*int64(parts)/int64(o.length)) == i {
					all.Latency = append(all.Latency, measure.Millis(a.Latency()))
				}
			}
		}
		if len(windows) == 0 {
			continue
		}
		slices.Sort(all.Latency)
		all.Window = measure.Join(windows)
		for figure, cpus := range map[string]float64{
			"cpu_total": all.Used(), "online": all.Window.CPUsOf("redis"), "batch": all.Batch(),
			"agent": all.Window.CPUsOf("agent"), "generator": all.Window.GeneratorCPUs(), "other": all.Other(),
		} {
			name := key + "part_" + figure + "_percent"
			r.Series[name] = append(r.Series[name], measure.Round(100*cpus/all.CPUs(), 3))
		}
		for figure, q := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99} {
			name := key + "part_" + figure
			r.Series[name] = append(r.Series[name], measure.Round(measure.Quantile(all.Latency, q), 3))
		}
	}
}

// sumUp adds the figures that the experiment is run for.
func (o *outcome) sumUp(r *report.Result) {
	m := r.Metrics
	m["asked_percent"] = measure.Round(100*o.load()/float64(runtime.NumCPU()), 2)
	m["day_seconds"], m["day_values"], m["day_values_capped"] = o.length.Seconds(), float64(len(o.rates)),
		float64(o.capped)
	for i := range o.Counted {
		m["pods_lost"] += float64(o.Counted[i].Lost)
	}
	r.Headline.Goal = fmt.Sprintf("CPU ≥ %d %% used, p99 ≤ %.2f × alone, no pod lost", goalCPU, goalRatio)
	ratio, timely := m[waterline+"p99_ratio"]
	if !timely {
		r.Headline.Value = "not measured: the generator was late, or the CPU slow, too often"
		return
	}
	cpu := m[waterline+"cpu_total_percent"]
	m["cpu_total_percent"], m["p99_ratio"] = cpu, ratio
	r.Headline.Value = fmt.Sprintf("CPU %.0f %% used, p99 %.2f × alone, %.0f pods lost", cpu, ratio, m["pods_lost"])
	if o.Busy() {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Headline.Met = cpu >= goalCPU && ratio <= goalRatio && m["pods_lost"] == 0 && !o.Busy()
}

// draw shows the day beside batch, and the latency with and without batch.
func draw(r *report.Result) {
	with, without := waterline+"part_", alone+"part_"
	rest := slices.Clone(r.Series[with+"other_percent"])
	for i := range rest {
		rest[i] += r.Series[with+"agent_percent"][i] + r.Series[with+"generator_percent"][i]
	}
	r.Chart = chart.Stack{
		Title: "CPU of the machine in the course of a day",
		Desc: "Areas, one upon the other: CPU used by online, batch and all else, beside batch. Line across them: CPU used " +
			"without batch. Below: p99 of Redis.",
		Layers: []chart.Layer{
			{Name: "online", Values: r.Series[with+"online_percent"]},
			{Name: "batch", Values: r.Series[with+"batch_percent"]},
			{Name: "all else", Values: rest},
		},
		Over: chart.Layer{Name: "used without batch", Values: r.Series[without+"cpu_total_percent"]},
		Goal: goalCPU, Unit: "ms", Caption: "p99 of Redis",
		Below: []reportchart.Line{
			{Name: "alone", Values: r.Series[without+"p99_ms"]},
			{Name: "beside batch", Values: r.Series[with+"p99_ms"], Strong: true},
		},
	}
}

// notes returns what a reader must know to judge the figures.
func (o *outcome) notes() []string {
	cpus := float64(runtime.NumCPU())
	notes := []string{fmt.Sprintf("The day is that of %s, %d values within %v. The values are scaled to a mean of "+
		"%.3g %% of the "+
		"machine's %.0f CPUs; the requests took %.0f to %.0f %% of one "+
		"CPU.", o.day.Name, len(o.rates), o.length, o.percent, cpus,
		100*slices.Min(o.rates), 100*slices.Max(o.rates))}
	if o.capped > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d values were more than Redis's one thread can do in good time, and "+
			"were capped "+
			"at %.0f %% of a CPU: the mean is %.1f %% of the machine.", o.capped, len(o.rates), 100*mostOnline,
			100*o.load()/cpus))
	}
	notes = append(notes,
		fmt.Sprintf("Redis requests %d milli-cores as a Burstable pod; each request is a loop of %.1f ms of CPU. "+
			"Requests come at "+
			"random moments, at the same in both modes, by %d connections. Runs came in random order; each mode had %d, of "+
			"which "+
			"the figures are medians.", redisbench.RequestMilli, measure.Millis(redisbench.RequestCost), redisbench.Connections,
			o.Repeats),
		fmt.Sprintf("Batch is %d processes of ffmpeg with %d threads each in a batch pod; in mode alone there is neither "+
			"batch nor a policy.", encoders, runtime.NumCPU()),
		"Online, batch, agent, generator and other are parts of the machine's CPU time, without the share of the "+
			"hypervisor; "+
			"other is everything outside of these pods and of the generator's cgroup. Latency is counted from when a "+
			"request was "+
			"due.",
		o.GeneratorNote())
	if o.onNode {
		notes = append(notes, "The kubelet, with the container runtime, and the control plane, as far as it is on this "+
			"machine, "+
			"are parts of other. A pod is lost that did not last until the end of a run, was being deleted, or was started "+
			"again.")
	}
	notes = append(notes, o.BusyNotes()...)
	for _, mode := range modes() {
		notes = append(notes, o.SlowestNote(mode, o.load(), "mode "+mode))
	}
	return notes
}
