package colocate

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/measure"
	"github.com/waterline-io/waterline/lab/redisbench"
)

// The goals.
const (
	goalRatio = 1.10 // p99 beside batch to p99 alone
	goalCPU   = 90   // percent of the machine's CPU time that is used
	goalBatch = 0.8  // batch's part of the CPU time that nothing else uses
)

// outcome is all that the experiment measured.
type outcome struct {
	redisbench.Runs
	loads    []float64
	stressor string
}

// modes returns the modes with the server, as a table shows them.
func modes() []string {
	return []string{redisbench.Alone, redisbench.Plain, redisbench.Unsuppressed, redisbench.Waterline}
}

// report makes the result: of every mode and load the medians of all repeats.
//
// Metrics, each beginning with its mode and its load in percent of a CPU, such as waterline_60_p99_ms: the figures of a
// [redisbench.Run]; p99_min_ms and p99_max_ms, the least and the greatest of the repeats; p99_ratio, to p99 alone, and
// p99_ratio_upper, up to which it is with 95 % confidence; p99_waits_ratio, to p99 of the same requests if the server
// had never waited for a CPU, also of runs on a slow CPU, with its _min and _max, and p99_waits_over_alone, how much
// greater that is than alone; batch_work_percent, the work of batch as a part of its work alone; and what batch added
// to the server's wait for a CPU and to its CPU time, by the same requests of the same repeat alone:
// added_wait_ms_per_request, added_cpu_ms_per_request, and added_wait_p99_ms of pairs. Mode batch_alone has no load.
// With memcached there are also memcached_p50_ms, memcached_p99_ms and memcached_cpus; with steps rise_p99_ms, of the
// requests of the first seconds after them, and rise_p99_ratio, to that alone.
//
// Then p99_ratio_plain, p99_ratio_unsuppressed and p99_ratio_waterline, the worst of all loads; cpu_total_percent and
// batch_share_of_free_cpu, the least of all loads in mode waterline; runs, runs_discarded, and generator_late_p99_ms,
// the worst of all runs that count. A figure that could not be measured in time is missing.
func (o *outcome) report(r *report.Result) {
	o.Describe(r)
	reference := o.Medians(redisbench.BatchAlone, 0)
	o.Add(r, key(0, redisbench.BatchAlone), redisbench.BatchAlone, 0, reference)
	r.Table.Head = []string{
		"load, mode", "p50 ms", "p99", "p99 range", "p99.9", "× alone", "95 % ≤", "by waits", "errors", "online", "batch",
		"other", "used", "of free", "work", "CPU ms", "wait ms", "+ CPU ms", "+ wait ms", "+ wait p99",
	}
	for _, part := range o.loads {
		for _, mode := range modes() {
			o.Add(r, key(part, mode), mode, part, reference)
			r.Table.Rows = append(r.Table.Rows, row(r.Metrics, part, mode))
		}
	}
	r.Table.Rows = append(r.Table.Rows, row(r.Metrics, 0, redisbench.BatchAlone))
	o.sumUp(r)
	o.draw(r)
	r.Notes = o.notes(r.Metrics)
}

// key begins the names of the metrics of one mode at one load.
func key(part float64, mode string) string {
	if part == 0 {
		return mode + "_"
	}
	return fmt.Sprintf("%s_%.0f_", mode, 100*part)
}

func row(m map[string]float64, part float64, mode string) []string {
	key := key(part, mode)
	label := "batch alone"
	if part != 0 {
		label = fmt.Sprintf("%.0f %%, %s", 100*part, mode)
	}
	spread := "–"
	if least, found := m[key+"p99_min_ms"]; found {
		spread = fmt.Sprintf("%.2f–%.2f", least, m[key+"p99_max_ms"])
	}
	figure := measure.Figures(m, key)
	return []string{
		label, figure("p50_ms", "%.2f"), figure("p99_ms", "%.2f"), spread, figure("p999_ms", "%.2f"),
		figure("p99_ratio", "%.2f"), figure("p99_ratio_upper", "%.2f"), figure("p99_waits_ratio", "%.2f"),
		figure("errors", "%.0f"),
		figure("online_cpus", "%.2f"), figure("batch_cpus", "%.2f"),
		figure("other_cpus", "%.2f"), figure("cpu_total_percent", "%.0f %%"), figure("batch_share_of_free_cpu", "%.2f"),
		figure("batch_work_percent", "%.0f %%"), figure("cpu_ms_per_request", "%.2f"), figure("wait_ms_per_request", "%.2f"),
		figure("added_cpu_ms_per_request", "%.2f"), figure("added_wait_ms_per_request", "%.3f"),
		figure("added_wait_p99_ms", "%.2f"),
	}
}

// sumUp adds the figures that the experiment is run for. A figure that is missing at a load is missing altogether.
func (o *outcome) sumUp(r *report.Result) {
	over := func(mode, figure string, pick func([]float64) float64) (float64, bool) {
		var all []float64
		for _, part := range o.loads {
			value, found := r.Metrics[key(part, mode)+figure]
			if !found {
				return 0, false
			}
			all = append(all, value)
		}
		return pick(all), true
	}
	for _, mode := range modes()[1:] {
		if ratio, found := over(mode, "p99_ratio", slices.Max); found {
			r.Metrics["p99_ratio_"+mode] = ratio
		}
	}
	r.Headline.Goal = fmt.Sprintf("p99 ≤ %.2f × alone, CPU ≥ %d %% used, batch ≥ %.0f %% of what was free",
		goalRatio, goalCPU, 100*goalBatch)
	ratio, timely := r.Metrics["p99_ratio_"+redisbench.Waterline]
	cpu, known := over(redisbench.Waterline, "cpu_total_percent", slices.Min)
	share, _ := over(redisbench.Waterline, "batch_share_of_free_cpu", slices.Min)
	if !timely || !known {
		r.Headline.Value = "not measured: the generator was late, or the CPU slow, too often"
		return
	}
	r.Metrics["cpu_total_percent"], r.Metrics["batch_share_of_free_cpu"] = cpu, share
	r.Headline.Value = fmt.Sprintf("p99 %.2f × alone, CPU %.0f %% used, batch %.0f %% of what was "+
		"free", ratio, cpu, 100*share)
	if o.Busy() {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Headline.Met = ratio <= goalRatio && cpu >= goalCPU && share >= goalBatch && !o.Busy()
}

// draw compares the modes at the highest load.
func (o *outcome) draw(r *report.Result) {
	part := slices.Max(o.loads)
	bars := chart.Bars{
		Title: "Latency of Redis, p99", Unit: "ms", Mark: "alone",
		Caption: fmt.Sprintf("p99 of Redis at %.0f %% of a CPU, beside ffmpeg and stress-ng", 100*part),
		Desc: "Bars: latency that 99 of 100 requests did not exceed, beside batch that would take the whole machine. " +
			"Marks: without batch.",
	}
	for _, mode := range modes()[1:] {
		p99, found := r.Metrics[key(part, mode)+"p99_ms"]
		if !found {
			continue
		}
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: mode, Note: fmt.Sprintf("CPU %.0f %% used", r.Metrics[key(part, mode)+"cpu_total_percent"]),
			Value: p99, Theory: r.Metrics[key(part, redisbench.Alone)+"p99_ms"], Strong: mode == redisbench.Waterline,
		})
	}
	r.Chart = bars
}

// notes returns what a reader must know to judge the figures.
func (o *outcome) notes(m map[string]float64) []string {
	work := "a loop"
	batch := fmt.Sprintf("Batch is ffmpeg and stress-ng with %d threads each. In mode plain there is no agent, ffmpeg is "+
		"Burstable and requests the rest of the node, and stress-ng is BestEffort. In modes unsuppressed and waterline both "+
		"are batch pods.", runtime.NumCPU())
	if o.stressor != "" {
		work = "look-ups in a set"
		batch = fmt.Sprintf("Batch is stress-ng of kind %s with %d processes: a BestEffort pod in mode plain, and a batch "+
			"pod in modes unsuppressed and waterline.", o.stressor, runtime.NumCPU())
	}
	notes := []string{
		fmt.Sprintf("Redis has one thread and requests %d milli-cores as a Burstable pod; each request is %s of %.1f "+
			"ms of CPU. Requests come at random moments, in all modes of a repeat the same, by %d connections. Medians of %d "+
			"repeats in random order.", redisbench.RequestMilli, work, measure.Millis(redisbench.RequestCost),
			redisbench.Connections, o.Repeats),
		batch,
		"Online, batch and other are CPUs that were used, other by neither pods nor the generator. CPU ms and wait ms " +
			"are the " +
			"server's CPU time and its wait for a CPU, for each request. By waits is p99, divided by p99 of the same " +
			"requests if the server had never waited for a CPU.",
		"Latency is counted from when a request was due. CPU time that the hypervisor gave to other machines does not " +
			"count as " +
			"the machine's. Free is the CPU time that neither Redis, the agent, the generator nor the rest of the machine " +
			"used. " +
			"Work is that of batch, in frames and operations, against batch alone.",
		o.GeneratorNote(),
	}
	notes = append(notes, o.BusyNotes()...)
	notes = append(append(notes, o.crowdNotes(m)...), o.stepNotes(m)...)
	part := slices.Max(o.loads)
	for _, mode := range modes() {
		notes = append(notes, o.SlowestNote(mode, part, fmt.Sprintf("mode %s at %.0f %%", mode, 100*part)))
	}
	return notes
}

// crowdNotes describes the second online service, if there was one.
func (o *outcome) crowdNotes(m map[string]float64) (notes []string) {
	for _, part := range o.loads {
		for _, mode := range modes() {
			k := key(part, mode)
			if p99, ran := m[k+"memcached_p99_ms"]; ran {
				notes = append(notes, fmt.Sprintf("memcached, mode %s, Redis at %.0f %%: p50 %.2f ms, p99 %.2f ms, %.2f CPUs.",
					mode, 100*part, m[k+"memcached_p50_ms"], p99, m[k+"memcached_cpus"]))
			}
		}
	}
	return notes
}

// stepNotes describes the first second after the load rose, if it did.
func (o *outcome) stepNotes(m map[string]float64) (notes []string) {
	for _, part := range o.loads {
		for _, mode := range modes() {
			k := key(part, mode)
			if p99, rose := m[k+"rise_p99_ms"]; rose {
				note := fmt.Sprintf("The first seconds after the requests rose at once to %.0f %%, mode %s: p99 %.2f ms",
					100*part, mode, p99)
				if ratio, compared := m[k+"rise_p99_ratio"]; compared {
					note += fmt.Sprintf(", %.2f × alone", ratio)
				}
				notes = append(notes, note+".")
			}
		}
	}
	return notes
}
