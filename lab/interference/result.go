package interference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
	"github.com/waterline-io/waterline/lab/measure"
)

// outcome is all that the experiment measured.
type outcome struct {
	seconds int // for which a pod was guilty in each run
	runs    []run
}

// medianOf returns the median and the greatest of a figure over the runs that have it.
func medianOf(runs []map[string]float64, figure string) (median, most float64, found bool) {
	var all []float64
	for _, r := range runs {
		if value, found := r[figure]; found {
			all = append(all, value)
		}
	}
	if len(all) == 0 {
		return 0, 0, false
	}
	return measure.Median(all), slices.Max(all), true
}

// report makes the result.
//
// Metrics: guilty_runs, and of them named_rightly_runs, named_wrongly_runs, in which an innocent pod was named, and
// not_named_runs; nobody_runs, and of them false_alarm_runs, in which a pod was named. seconds_to_name_median and _max.
// trials, trials_kept and trials_undone of guilty pods, innocent_trials, and given_back_runs, in which a throttled pod
// was free in the end. Medians over the runs with a guilty pod: before_, waiting_, throttled_ and after_, each with
// wait_percent, seen_percent, as the agent sees it, p50_ms and p99_ms. The greatest of all runs: other_cpus,
// steal_percent and load_1m.
//
// Series, of each run in turn: guilty, -1 for no pod; every figure of the run, -1 for none; and of each run by itself
// the seconds, such as run_1_wait_percent and run_1_seen_percent.
func (o *outcome) report(r *report.Result) {
	r.Metrics["seconds"] = float64(o.seconds)
	r.Table.Head = []string{
		"run", "guilty", "named", "after s", "score", "wrongly", "trial", "waits %: before", "guilty", "throttled", "after",
		"seen %: before", "guilty", "p99 s: before", "guilty", "throttled", "after", "back after s",
	}
	var guilty, all []map[string]float64
	for i := range o.runs {
		run := &o.runs[i]
		figures := run.figures()
		count(r, run, i)
		r.Table.Rows = append(r.Table.Rows, run.row(i, figures))
		if all = append(all, figures); run.guilty != noPod {
			guilty = append(guilty, figures)
		}
	}
	addSeries(r, all)
	for _, p := range partNames {
		for _, figure := range []string{"wait_percent", "seen_percent", "p50_ms", "p99_ms"} {
			if median, _, found := medianOf(guilty, p+"_"+figure); found {
				r.Metrics[p+"_"+figure] = measure.Round(median, 2)
			}
		}
	}
	if median, most, found := medianOf(guilty, "named_after_seconds"); found {
		r.Metrics["seconds_to_name_median"] = measure.Round(median, 1)
		r.Metrics["seconds_to_name_max"] = measure.Round(most, 1)
	}
	for _, figure := range []string{"other_cpus", "steal_percent", "load_1m"} {
		_, most, _ := medianOf(all, figure)
		r.Metrics[figure] = measure.Round(most, 2)
	}
	o.sumUp(r)
}

// count adds one run to the counts.
func count(r *report.Result, run *run, i int) {
	add := func(name string, n int) { r.Metrics[name] += float64(n) }
	one, guilty := map[bool]int{true: 1}, run.guilty != noPod
	add("guilty_runs", one[guilty])
	add("nobody_runs", one[!guilty])
	add("named_rightly_runs", one[run.namedRightly() != nil])
	add("named_wrongly_runs", one[guilty && run.namedWrongly() != nil])
	add("false_alarm_runs", one[!guilty && run.namedWrongly() != nil])
	add("not_named_runs", one[guilty && run.namedRightly() == nil])
	add("trials", run.countOf(model.ThrottleTried, true))
	add("trials_kept", run.countOf(model.ThrottleKept, true))
	add("trials_undone", run.countOf(model.ThrottleUndone, true))
	add("innocent_trials", run.countOf(model.ThrottleTried, false))
	add("given_back_runs", one[run.freed() >= 0])
	for _, s := range run.seconds {
		for figure, value := range map[string]float64{"wait": s.waits, "seen": s.seen} {
			name := fmt.Sprintf("run_%d_%s_percent", i+1, figure)
			r.Series[name] = append(r.Series[name], measure.Round(value, 1))
		}
	}
	r.Series["guilty"] = append(r.Series["guilty"], float64(run.guilty))
}

// addSeries adds the figures of all runs.
func addSeries(r *report.Result, all []map[string]float64) {
	names := map[string]bool{}
	for _, figures := range all {
		for figure := range figures {
			names[figure] = true
		}
	}
	for figure := range names {
		for _, figures := range all {
			value, found := figures[figure]
			if !found {
				value = unknown
			}
			r.Series[figure] = append(r.Series[figure], measure.Round(value, 3))
		}
	}
}

// row returns a run's line of the table.
func (r *run) row(i int, figures map[string]float64) []string {
	figure := report.Figures(figures, "")
	podOf := func(e *event) string {
		if e == nil {
			return "–"
		}
		return e.pod
	}
	inSeconds := func(name string) string {
		if value, found := figures[name]; found {
			return fmt.Sprintf("%.2f", value/1000)
		}
		return "–"
	}
	row := []string{
		fmt.Sprint(i + 1), outsiderName, podOf(r.namedRightly()), figure("named_after_seconds", "%.0f"),
		figure("score", "%.2f"), podOf(r.namedWrongly()), r.outcomeOfTrial(),
	}
	if r.guilty != noPod {
		row[1] = r.name()
	}
	for _, p := range partNames {
		row = append(row, figure(p+"_wait_percent", "%.0f"))
	}
	for _, p := range partNames[:partThrottled] {
		row = append(row, figure(p+"_seen_percent", "%.0f"))
	}
	for _, p := range partNames {
		row = append(row, inSeconds(p+"_p99_ms"))
	}
	return append(row, figure("given_back_after_seconds", "%.0f"))
}

// story lists the events of a run, in seconds from when the guilty pod began; "": there are none.
func (r *run) story(i int) string {
	var events []string
	for _, e := range r.events {
		code := string(e.code)
		if e.code == restored {
			code = "is free"
		}
		events = append(events, fmt.Sprintf("%.0f s %s %s", (e.at-r.begins()).Seconds(), e.pod, code))
	}
	if len(events) == 0 {
		return ""
	}
	return fmt.Sprintf("Run %d, from when the guilty pod began: %s.", i+1, strings.Join(events, ", "))
}

// sumUp adds the figure that the experiment is run for, the chart, and the notes.
func (o *outcome) sumUp(r *report.Result) {
	m := r.Metrics
	r.Headline = report.Headline{
		Value: fmt.Sprintf("named rightly in %.0f of %.0f, after %.0f s (%.0f at most), an innocent pod in %.0f; false "+
			"alarms in "+
			"%.0f of %.0f; the server waits for %.0f → %.0f %% of the time",
			m["named_rightly_runs"], m["guilty_runs"], m["seconds_to_name_median"], m["seconds_to_name_max"],
			m["named_wrongly_runs"], m["false_alarm_runs"], m["nobody_runs"], m["waiting_wait_percent"],
			m["throttled_wait_percent"]),
		Goal: "named rightly in all, no innocent pod in any",
		Met: m["named_rightly_runs"] == m["guilty_runs"] &&
			m["named_wrongly_runs"]+m["false_alarm_runs"] == 0,
	}
	bars := chart.Bars{
		Title: "How long the server waits for its CPU", Caption: "Part of the time that a server waits for its CPU",
		Mark: "before",
		Desc: "Bars: part of the time, medians of the runs in which a pod was guilty. Marks: before it began.",
	}
	for _, p := range partNames {
		if wait, found := m[p+"_wait_percent"]; found {
			bars.Bars = append(bars.Bars, chart.Bar{
				Label: p, Note: fmt.Sprintf("p99 %.2f s", m[p+"_p99_ms"]/1000), Value: wait, Theory: m["before_wait_percent"],
				Strong: p == partNames[partThrottled],
			})
		}
	}
	r.Chart = bars
	r.Notes = o.notes()
}

// notes returns what a reader must know to judge the figures.
func (o *outcome) notes() []string {
	notes := []string{
		fmt.Sprintf("The server gets %d requests a second, at random moments, of %v of CPU each. It requests %dm and all "+
			"of batch "+
			"weighs %d shares, or it would hardly wait. It stays on one CPU, innocent pods on another.",
			requestRate, requestCost, serverMilli, int64(batchShares)),
		fmt.Sprintf("The guilty pod begins after %d s, runs for %v of each %v, for %d s, and does nothing afterwards. "+
			"One of the "+
			"others is always busy and weighs ten times as much, the rest are bursty. Where no pod is guilty a process outside "+
			"of the pods does the same.", newRun(0, o.seconds).lead, guiltyRuns, guiltyRuns+guiltyPauses, o.seconds),
		fmt.Sprintf("The wait is the kernel's count for the server's process. The agent reads that too where its kernel "+
			"has no "+
			"pressure; on cgroup v2 it reads the pod's pressure. Parts in which the server catches up, %v each, are left out.",
			catchUp),
	}
	var unseen int
	var busy []string
	for i := range o.runs {
		run := &o.runs[i]
		if story := run.story(i); story != "" {
			notes = append(notes, story)
		}
		if run.guilty != noPod && run.figures()["waiting_seen_percent"] < 10 {
			unseen++
		}
		if run.guilty != noPod && run.otherCPUs() > measure.TooBusy || run.window.Steal > 100*measure.TooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs and %.0f %% (run %d)", run.otherCPUs(), run.window.Steal, i+1))
		}
	}
	if unseen > 0 {
		notes = append(notes, fmt.Sprintf("In %d runs the agent saw the server wait for less than 10 %% of the time, so "+
			"it could "+
			"name no pod.", unseen))
	}
	if len(busy) > 0 {
		notes = append(notes, "Other processes on this machine used, and the hypervisor took, "+strings.Join(busy, ", ")+
			", for which the server may have waited too.")
	}
	return notes
}
