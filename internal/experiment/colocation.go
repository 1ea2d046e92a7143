package experiment

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// What experiment colocate is to show.
const (
	goalRatio = 1.10 // p99 beside batch to p99 alone
	goalCPU   = 90   // percent of the machine's CPU time that is used
	goalBatch = 0.8  // of the CPU time that nobody else uses
)

// Colocation is all that experiment colocate measured.
type Colocation struct {
	measured
	Loads []float64
}

// Result makes figures of it: of every mode and load the medians of all repeats.
//
// Metrics, each beginning with its mode and its load in percent of a CPU, such as waterline_60_p99_ms: those of
// [colocated.figures]; p99_min_ms and p99_max_ms, the least and the greatest of the repeats; p99_ratio, to p99 alone; and
// batch_work_percent, what batch did, of what it does with the machine to itself. That it does so is mode batch_alone, which
// has no load.
// Then p99_ratio_plain, p99_ratio_unsuppressed and p99_ratio_waterline, the worst of all loads; cpu_total_percent and
// batch_share_of_free_cpu, the least of all loads in mode waterline; runs, runs_discarded, and generator_late_p99_ms, the
// worst of all runs that count. What could not be measured in time is missing.
func (c *Colocation) Result() Result {
	r := c.begin(ColocateName, ColocateAbout)
	reference := c.medians(modeBatch, 0)
	c.add(&r, key(0, modeBatch), modeBatch, 0, reference)
	r.Table.Head = []string{"load, mode", "p50 ms", "p99", "p99 range", "p99.9", "× alone", "errors", "online", "batch", "other", "used", "of free", "work", "CPU ms", "wait ms"}
	for _, load := range c.Loads {
		for _, name := range []string{modeAlone, modePlain, modeUnsuppressed, modeWaterline} {
			c.add(&r, key(load, name), name, load, reference)
			r.Table.Rows = append(r.Table.Rows, row(r.Metrics, load, name))
		}
	}
	r.Table.Rows = append(r.Table.Rows, row(r.Metrics, 0, modeBatch))
	c.sumUp(&r)
	c.draw(&r)
	r.Notes = c.notes(&r)
	return r
}

// key begins the names of the metrics of one mode at one load.
func key(load float64, name string) string {
	if load == 0 {
		return name + "_"
	}
	return fmt.Sprintf("%s_%.0f_", name, 100*load)
}

func row(m map[string]float64, load float64, name string) []string {
	key := key(load, name)
	label := "batch alone"
	if load != 0 {
		label = fmt.Sprintf("%.0f %%, %s", 100*load, name)
	}
	figure := figureOf(m, key)
	spread := "–"
	if least, found := m[key+"p99_min_ms"]; found {
		spread = fmt.Sprintf("%.2f–%.2f", least, m[key+"p99_max_ms"])
	}
	return []string{
		label, figure("p50_ms", "%.2f"), figure("p99_ms", "%.2f"), spread, figure("p999_ms", "%.2f"), figure("p99_ratio", "%.2f"), figure("errors", "%.0f"),
		figure("online_cpus", "%.2f"), figure("batch_cpus", "%.2f"), figure("other_cpus", "%.2f"), figure("cpu_total_percent", "%.0f %%"),
		figure("batch_share_of_free_cpu", "%.2f"), figure("batch_work_percent", "%.0f %%"), figure("cpu_ms_per_request", "%.2f"), figure("wait_ms_per_request", "%.2f"),
	}
}

// sumUp adds the figures that the experiment is run for. One that is missing at a load is missing altogether.
func (c *Colocation) sumUp(r *Result) {
	over := func(name, figure string, pick func([]float64) float64) (float64, bool) {
		var all []float64
		for _, load := range c.Loads {
			value, found := r.Metrics[key(load, name)+figure]
			if !found {
				return 0, false
			}
			all = append(all, value)
		}
		return pick(all), true
	}
	for _, name := range []string{modePlain, modeUnsuppressed, modeWaterline} {
		if ratio, found := over(name, "p99_ratio", slices.Max); found {
			r.Metrics["p99_ratio_"+name] = ratio
		}
	}
	r.Headline.Goal = fmt.Sprintf("p99 ≤ %.2f × alone, CPU ≥ %d %% used, batch ≥ %.0f %% of what was free", goalRatio, goalCPU, 100*goalBatch)
	ratio, timely := r.Metrics["p99_ratio_"+modeWaterline]
	cpu, known := over(modeWaterline, "cpu_total_percent", slices.Min)
	share, _ := over(modeWaterline, "batch_share_of_free_cpu", slices.Min)
	if !timely || !known {
		r.Headline.Value = "not measured: the generator was late too often"
		return
	}
	r.Metrics["cpu_total_percent"], r.Metrics["batch_share_of_free_cpu"] = cpu, share
	r.Headline.Value = fmt.Sprintf("p99 %.2f × alone, CPU %.0f %% used, batch %.0f %% of what was free", ratio, cpu, 100*share)
	if c.busiest() > tooBusy {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Headline.Met = ratio <= goalRatio && cpu >= goalCPU && share >= goalBatch && c.busiest() <= tooBusy
}

// draw compares the modes at the highest load.
func (c *Colocation) draw(r *Result) {
	load := slices.Max(c.Loads)
	bars := chart.Bars{
		Title: "Latency of Redis, p99", Unit: "ms", Mark: "alone",
		Caption: fmt.Sprintf("p99 of Redis at %.0f %% of a CPU, beside ffmpeg and stress-ng", 100*load),
		Desc:    "Bars: what 99 of 100 requests did not exceed, beside batch that would take everything. Marks: without batch.",
	}
	for _, name := range []string{modePlain, modeUnsuppressed, modeWaterline} {
		p99, found := r.Metrics[key(load, name)+"p99_ms"]
		if !found {
			continue
		}
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: name, Note: fmt.Sprintf("CPU %.0f %% used", r.Metrics[key(load, name)+"cpu_total_percent"]),
			Value: p99, Theory: r.Metrics[key(load, modeAlone)+"p99_ms"], Strong: name == modeWaterline,
		})
	}
	r.Chart = bars
}

// notes says what a reader should know to judge the figures.
func (c *Colocation) notes(r *Result) []string {
	notes := []string{
		fmt.Sprintf("Redis has one thread and requests %d milli-cores as a Burstable pod; each request is a loop of %.1f ms of CPU. Requests come at random moments, in all modes of a repeat the same, by %d connections. Medians of %d repeats in random order.",
			onlineMilli, inMillis(redisRequest), connections, c.Repeats),
		fmt.Sprintf("Batch is ffmpeg and stress-ng with %d threads each. In mode plain there is no agent, ffmpeg is Burstable and requests what is left of the node, and stress-ng is BestEffort. In modes unsuppressed and waterline both are batch pods.", runtime.NumCPU()),
		"Online, batch and other are CPUs that were used, other that of neither pods nor the generator; CPU ms and wait ms are what a request took of the server's CPU time, and how long the server waited for a CPU for each.",
		"Latency is counted from when a request was due. CPU that the hypervisor gave to others does not count as the machine's; what was free is what neither Redis, the agent, the generator nor the rest of the machine used. Work is that of batch, in frames and operations, against batch alone.",
		c.generatorNote(),
	}
	notes = append(notes, c.busyNotes()...)
	load := slices.Max(c.Loads)
	for _, name := range []string{modeAlone, modePlain, modeUnsuppressed, modeWaterline} {
		notes = append(notes, c.slowestNote(name, load, fmt.Sprintf("mode %s at %.0f %%", name, 100*load)))
	}
	return notes
}
