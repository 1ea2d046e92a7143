package suppress

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/measure"
)

const goalMillis = 300 // p99 until batch may use only the rest

// outcome is all that the experiment measured.
type outcome struct {
	by          string        // that suppresses
	length      time.Duration // of each step
	steps       []step
	window      measure.Window // of all steps and the rests between them
	reader      time.Duration  // CPU time
	scheduled   string         // scheduling class of the reader
	loadAverage float64
}

// report makes the result.
//
// Metrics, of all steps, times with p50, p99 and max: suppress_p99_ms, from the moment when the online threads begin
// until batch may use no more than 10 % of the machine above its median allowance in the next second; use_p99_ms, until
// it used no more over 100 ms; giveback_p99_ms, from the moment when they end until batch may again use its median
// allowance in the second before they began, less 10 % of the machine.
//
// Then overshoot_milli_p50 and _max, how far the least allowance was below the median one in the last second of the
// step; before_milli_p50, after_milli_p50 and online_milli_p50, the allowances before and after, and the use of the
// online pod; steps, steps_not_smaller and steps_not_given_back; reader_late_p99_ms and _max; other_cpus, used by
// neither pods nor the reader, agent_cpus and reader_cpus.
func (o *outcome) report(r *report.Result) {
	r.Table.Head = []string{"", "p50", "p99", "most"}
	down := o.addTimes(r, "suppress", "until batch may use only the rest, ms", func(x step) float64 { return x.down })
	o.addTimes(r, "use", "until it uses no more, ms", func(x step) float64 { return x.used })
	back := o.addTimes(r, "giveback", "until it may use as much as before, ms", func(x step) float64 { return x.back })
	o.addAllowances(r)
	late := o.values(func(x step) float64 { return x.late })
	m, n := r.Metrics, len(o.steps)
	m["reader_late_p99_ms"], m["reader_late_max_ms"] = measure.Quantile(late, 0.99), measure.Quantile(late, 1)
	m["steps"], m["steps_not_smaller"] = float64(n), float64(n-len(down))
	m["steps_not_given_back"] = float64(len(down) - len(back))
	m["cpus_machine"], m["load_1m"] = float64(runtime.NumCPU()), o.loadAverage
	m["steal_percent"], m["other_cpus"] = measure.Round(o.window.Steal, 2), measure.Round(o.other(), 3)
	m["agent_cpus"], m["reader_cpus"] = measure.Round(o.window.CPUsOf("agent"), 3), measure.Round(o.readerCPUs(), 3)

	p99, busy := measure.Quantile(down, 0.99), o.other() > measure.TooBusy
	r.Headline = report.Headline{
		Value: fmt.Sprintf("p99 %.0f ms, given back after %.0f ms, p99", p99, measure.Quantile(back, 0.99)),
		Goal:  fmt.Sprintf("≤ %d ms, in every step, and always given back", goalMillis),
		Met:   n > 0 && len(down) == n && len(back) == n && p99 <= goalMillis && !busy,
	}
	if busy {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Chart = chart.Steps{
		Title: "How long until batch makes room",
		Desc: "Part of all steps in online load after which batch was limited to the rest of the machine within so many " +
			"milliseconds.",
		Values: down, Unit: "ms", Goal: goalMillis,
	}
	r.Notes = o.notes(r)
}

// values returns a figure of each step that has it, sorted.
func (o *outcome) values(of func(step) float64) []float64 {
	var all []float64
	for _, x := range o.steps {
		if value := of(x); !math.IsNaN(value) {
			all = append(all, value)
		}
	}
	slices.Sort(all)
	return all
}

// addTimes adds the quantiles of a time, and returns all values.
func (o *outcome) addTimes(r *report.Result, name, label string, of func(step) float64) []float64 {
	all := o.values(of)
	r.Series[name+"_ms"] = all
	cells := []string{label}
	for _, q := range []struct {
		name string
		part float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		cell := "–"
		if len(all) > 0 {
			value := measure.Quantile(all, q.part)
			r.Metrics[name+"_"+q.name+"_ms"] = value
			cell = fmt.Sprintf("%.0f", value)
		}
		cells = append(cells, cell)
	}
	r.Table.Rows = append(r.Table.Rows, cells)
	return all
}

// addAllowances adds the allowances of batch and the use of the online pod.
func (o *outcome) addAllowances(r *report.Result) {
	for _, a := range []struct {
		name, label string
		of          func(step) int64
	}{
		{"before", "batch may use before, mCPU", func(x step) int64 { return x.before }},
		{"after", "batch may use after, mCPU", func(x step) int64 { return x.after }},
		{"overshoot", "less than that for a while, mCPU", func(x step) int64 { return x.overshoot }},
		{"online", "the online pod uses, mCPU", func(x step) int64 { return x.online }},
	} {
		all := o.values(func(x step) float64 { return float64(a.of(x)) })
		r.Metrics[a.name+"_milli_p50"], r.Metrics[a.name+"_milli_max"] = measure.Quantile(all, 0.5), measure.Quantile(all, 1)
		cells := []string{a.label}
		for _, q := range []float64{0.5, 0.99, 1} {
			cells = append(cells, fmt.Sprintf("%.0f", measure.Quantile(all, q)))
		}
		r.Table.Rows = append(r.Table.Rows, cells)
	}
}

// readerCPUs returns how many CPUs the reader used.
func (o *outcome) readerCPUs() float64 { return float64(o.reader) / float64(max(o.window.Length, 1)) }

// other returns how many CPUs were used by neither pods nor the reader, without those that the hypervisor gave to other
// machines.
func (o *outcome) other() float64 {
	stolen := float64(runtime.NumCPU()) * o.window.Steal / 100
	ours := float64(o.window.Total()+o.reader) / float64(max(o.window.Length, 1))
	return max(o.window.Busy-stolen-ours, 0)
}

// notes returns what a reader must know to judge the figures.
func (o *outcome) notes(r *report.Result) []string {
	online, batch := pods()
	notes := []string{
		fmt.Sprintf("The online pod is Burstable, requests %d milli-cores and has %d threads, which burn for %v in each "+
			"of %d "+
			"steps; batch has %d. It is suppressed by %s.",
			online.RequestMilli, online.Threads, o.length, len(o.steps), batch.Threads, o.by),
		fmt.Sprintf("A process outside of the pods (%s) starts and stops the online threads and reads every %v how much "+
			"CPU batch "+
			"may use and uses. It used %.3f CPUs, and its longest gap between two reads was %.0f ms.",
			o.scheduled, sampleEvery, o.readerCPUs(), r.Metrics["reader_late_max_ms"]),
		"Between two steps the online load rests for twice as long as batch had less: load that comes again sooner " +
			"swings, and " +
			"batch then waits longer.",
	}
	if n := r.Metrics["steps_not_smaller"]; n > 0 {
		notes = append(notes, fmt.Sprintf("In %.0f steps batch was not given less.", n))
	}
	if n := r.Metrics["steps_not_given_back"]; n > 0 {
		notes = append(notes, fmt.Sprintf("After %.0f steps batch did not have its CPU back within %v.", n, backTimeout))
	}
	if other := o.other(); other > measure.TooBusy {
		notes = append(notes, fmt.Sprintf("The rest of the machine used %.2f CPUs. That counts as system and reduces "+
			"what batch "+
			"may use. It grows when batch is suppressed and leaves room, so it is in all figures.", other))
	}
	return notes
}
