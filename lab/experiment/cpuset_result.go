package experiment

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// metrics returns the figures of a trial, by their names.
func (t *cpusetTrial) metrics() map[string]float64 {
	m := map[string]float64{}
	for name, value := range map[string]float64{
		"p50_ms": measure.Quantile(t.latency, 0.5), "p99_ms": t.p99(), "answers_per_second": t.answers,
		"batch_cpus": t.window.CPUsOf("batch"), "outsiders_cpus": t.outside(), "late_p99_ms": measure.Quantile(t.late, 0.99),
	} {
		m[t.mode+"_"+name] = measure.Round(value, 3)
	}
	return m
}

func (t *cpusetTrial) row(name string) []string {
	return []string{
		name, measure.MillisText(measure.Quantile(t.latency, 0.5)), measure.MillisText(t.p99()),
		fmt.Sprintf("%.0f", t.answers), fmt.Sprintf("%.2f", t.window.CPUsOf("batch")),
	}
}

// report makes the result of trials in modes alone, none and exclusive.
func (r *run) report(trials []cpusetTrial) {
	res := &r.result
	alone, none, exclusive := &trials[0], &trials[1], &trials[2]
	r.circumstances(none.window)
	res.Table.Head = []string{"server", "p50 ms", "p99 ms", "answers/s", "batch CPUs"}
	bars := chart.Bars{
		Title: "Latency of the server, p99", Caption: "p99 of the server's latency, beside a pod that burns all CPUs",
		Unit: "ms", Mark: "alone",
		Desc: "Bars: latency that 99 of 100 requests did not exceed, beside a pod that burns all CPUs, by the mode of the " +
			"server's CPUs. Marks: without that pod.",
	}
	for i := range trials {
		t := &trials[i]
		for key, value := range t.metrics() {
			res.Metrics[key] = value
		}
		if t == alone {
			res.Table.Rows = append(res.Table.Rows, t.row("alone"))
			continue
		}
		res.Table.Rows = append(res.Table.Rows, t.row("beside batch, "+t.mode))
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: t.mode, Note: "p50 " + measure.MillisText(measure.Quantile(t.latency, 0.5)) + " ms", Value: t.p99(),
			Theory: alone.p99(), Strong: t == exclusive,
		})
	}
	res.Chart = bars
	res.Metrics["exclusive_intruders"] = float64(exclusive.intruders)
	res.Metrics["requests"] = float64(len(none.latency))
	res.Headline = report.Headline{
		Value: fmt.Sprintf("p99 %s ms exclusive, %s ms none", measure.MillisText(exclusive.p99()),
			measure.MillisText(none.p99())),
		Goal: "exclusive is not slower, and no other pod was seen on its CPU",
		Met:  exclusive.p99() <= none.p99() && exclusive.intruders == 0,
	}
	r.noteTrials(trials)
}

// noteTrials adds the notes that a reader needs to judge the figures.
func (r *run) noteTrials(trials []cpusetTrial) {
	none, exclusive := &trials[1], &trials[2]
	r.note("The server has one thread and gets %.0f requests a second, of %.1f ms of CPU each. Requests come at random "+
		"moments, in every mode the same, as those of many users do, so that some wait for others even when the server is "+
		"alone.", none.rate, 1000*serverLoad/none.rate)
	r.note("The batch pod is Burstable, requests what the server leaves of the node, and runs %d busy loops. No pod "+
		"has a "+
		"weight annotation: the kernel shares by requests.", load.Threads())
	r.note("Mode exclusive leaves the batch pod %d of %d CPUs; it used %.2f, and %.2f before.",
		runtime.NumCPU()-1, runtime.NumCPU(), exclusive.window.CPUsOf("batch"), none.window.CPUsOf("batch"))
	var late, busy []string
	worst := 0.0
	limit := measure.Millis(load.LateLimit)
	for i := range trials {
		t := &trials[i]
		worst = max(worst, measure.Quantile(t.late, 0.99))
		if measure.Quantile(t.late, 0.99) > limit {
			late = append(late, t.mode)
		}
		if t.outside() > measure.TooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs (%s)", t.outside(), t.mode))
		}
	}
	r.note("Latency is counted from when a request was due until the client had its answer. The client is not in a "+
		"pod, and "+
		"stays on a CPU that is not the server's own. It sent %s ms late, p99 of the worst mode.", measure.MillisText(worst))
	if len(late) > 0 {
		r.note("The client was late by more than %.0f ms, p99, in mode %s: the figures there are partly its own.",
			limit, strings.Join(late, ", "))
	}
	if len(busy) > 0 {
		r.note("Processes outside of the two pods used %s. CPU sets bind pods only: other processes may run on the server's "+
			"CPU too, and that is in the figures.", strings.Join(busy, ", "))
	}
}
