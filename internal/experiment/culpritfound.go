package experiment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

// CulpritFound is all that experiment culprit measured.
type CulpritFound struct {
	When    time.Time
	Machine string
	Seconds int // for which a pod was guilty in each run
	runs    []culpritRun
}

// medianOf returns the middle of what some runs have of a figure, and the most.
func medianOf(runs []map[string]float64, figure string) (middle, most float64, found bool) {
	var all []float64
	for _, r := range runs {
		if value, found := r[figure]; found {
			all = append(all, value)
		}
	}
	if len(all) == 0 {
		return 0, 0, false
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2, all[len(all)-1], true
}

// Result makes figures of it.
//
// Metrics: guilty_runs, and of them named_rightly_runs, named_wrongly_runs, in which somebody innocent was named, and not_named_runs;
// nobody_runs, and of them false_alarm_runs, in which anybody was. seconds_to_name_median and _max. trials, trials_kept and
// trials_undone of guilty pods, innocent_trials, and given_back_runs, in which a pod that was throttled had all back in the end. Medians over
// the runs with a guilty pod: before_, waiting_, throttled_ and after_, each with wait_percent, seen_percent, which is
// what the agent reckons, p50_ms and p99_ms. Over all runs:
// other_cpus, steal_percent and load_1m, the most of each.
//
// Series, of each run in turn: guilty, -1 for nobody; every figure of the run, -1 for none; and of each run by itself the seconds, such as run_1_wait_percent
// and run_1_seen_percent.
func (f *CulpritFound) Result() Result {
	r := Result{Name: CulpritName, About: CulpritAbout, When: f.When, Machine: f.Machine, Metrics: map[string]float64{"seconds": float64(f.Seconds)}, Series: map[string][]float64{}}
	r.Table.Head = []string{
		"run", "guilty", "named", "after s", "score", "wrongly", "trial", "waits %: before", "guilty", "throttled", "after", "seen %: before", "guilty", "p99 s: before", "guilty", "throttled", "after", "back after s",
	}
	var guilty, all []map[string]float64
	for i := range f.runs {
		run := &f.runs[i]
		figures := run.figures()
		f.count(&r, run, i)
		r.Table.Rows = append(r.Table.Rows, run.row(i, figures))
		if all = append(all, figures); run.guilty >= 0 {
			guilty = append(guilty, figures)
		}
	}
	f.series(&r, all)
	for _, p := range partNames {
		for _, figure := range []string{"wait_percent", "seen_percent", "p50_ms", "p99_ms"} {
			if middle, _, found := medianOf(guilty, p+"_"+figure); found {
				r.Metrics[p+"_"+figure] = round(middle, 2)
			}
		}
	}
	if middle, most, found := medianOf(guilty, "named_after_seconds"); found {
		r.Metrics["seconds_to_name_median"], r.Metrics["seconds_to_name_max"] = round(middle, 1), round(most, 1)
	}
	for _, figure := range []string{"other_cpus", "steal_percent", "load_1m"} {
		_, most, _ := medianOf(all, figure)
		r.Metrics[figure] = round(most, 2)
	}
	f.sumUp(&r)
	return r
}

// count adds what became of one run.
func (f *CulpritFound) count(r *Result, run *culpritRun, i int) {
	add := func(name string, n int) { r.Metrics[name] += float64(n) }
	one := map[bool]int{true: 1}
	add("guilty_runs", one[run.guilty >= 0])
	add("nobody_runs", one[run.guilty < 0])
	add("named_rightly_runs", one[run.rightly() != nil])
	add("named_wrongly_runs", one[run.guilty >= 0 && run.wrongly() != nil])
	add("false_alarm_runs", one[run.guilty < 0 && run.wrongly() != nil])
	add("not_named_runs", one[run.guilty >= 0 && run.rightly() == nil])
	add("trials", run.count(model.ThrottleTried, true))
	add("trials_kept", run.count(model.ThrottleKept, true))
	add("trials_undone", run.count(model.ThrottleUndone, true))
	add("innocent_trials", run.count(model.ThrottleTried, false))
	add("given_back_runs", one[run.free() >= 0])
	for _, second := range run.all {
		for figure, value := range map[string]float64{"wait": second.waits, "seen": second.seen} {
			name := fmt.Sprintf("run_%d_%s_percent", i+1, figure)
			r.Series[name] = append(r.Series[name], round(value, 1))
		}
	}
	r.Series["guilty"] = append(r.Series["guilty"], float64(run.guilty))
}

// series adds the figures of all runs.
func (f *CulpritFound) series(r *Result, all []map[string]float64) {
	for _, figures := range all {
		for figure := range figures {
			r.Series[figure] = nil
		}
	}
	for figure := range r.Series {
		if r.Series[figure] != nil {
			continue
		}
		for _, figures := range all {
			value, found := figures[figure]
			if !found {
				value = unknown
			}
			r.Series[figure] = append(r.Series[figure], round(value, 3))
		}
	}
}

// row is a run's line of the table.
func (r *culpritRun) row(i int, figures map[string]float64) []string {
	figure := figureOf(figures, "")
	of := func(a *accusal) string {
		if a == nil {
			return "–"
		}
		return a.who
	}
	seconds := func(name string) string {
		if value, found := figures[name]; found {
			return fmt.Sprintf("%.2f", value/1000)
		}
		return "–"
	}
	row := []string{fmt.Sprint(i + 1), "outsider", of(r.rightly()), figure("named_after_seconds", "%.0f"), figure("score", "%.2f"), of(r.wrongly()), r.outcome()}
	if r.guilty >= 0 {
		row[1] = r.name()
	}
	for _, p := range partNames {
		row = append(row, figure(p+"_wait_percent", "%.0f"))
	}
	for _, p := range partNames[:partThrottled] {
		row = append(row, figure(p+"_seen_percent", "%.0f"))
	}
	for _, p := range partNames {
		row = append(row, seconds(p+"_p99_ms"))
	}
	return append(row, figure("given_back_after_seconds", "%.0f"))
}

// outcome says how the first trial of the guilty pod ended.
func (r *culpritRun) outcome() string {
	outcome := "–"
	for _, a := range r.accusals {
		if a.who != r.name() || a.names() {
			continue
		}
		switch a.what {
		case model.ThrottleTried:
			outcome = "open"
			continue
		case model.ThrottleKept:
			return "kept"
		case model.ThrottleUndone:
			return "undone"
		}
		return "unclear"
	}
	return outcome
}

// story tells what the agent said and did in a run, in seconds from when the guilty one began; "": nothing.
func (r *culpritRun) story(i int) string {
	var told []string
	for _, a := range r.accusals {
		what := string(a.what)
		if a.what == "" {
			what = "has all back"
		}
		told = append(told, fmt.Sprintf("%.0f s %s %s", (a.at-r.begins()).Seconds(), a.who, what))
	}
	if len(told) == 0 {
		return ""
	}
	return fmt.Sprintf("Run %d, from when the guilty one began: %s.", i+1, strings.Join(told, ", "))
}

// sumUp adds the figure that the experiment is run for, the chart, and what a reader should know.
func (f *CulpritFound) sumUp(r *Result) {
	m := r.Metrics
	r.Headline = Headline{
		Value: fmt.Sprintf("named rightly in %.0f of %.0f, after %.0f s (%.0f at most), an innocent one in %.0f; false alarms in %.0f of %.0f; the server waits for %.0f → %.0f %% of the time",
			m["named_rightly_runs"], m["guilty_runs"], m["seconds_to_name_median"], m["seconds_to_name_max"], m["named_wrongly_runs"], m["false_alarm_runs"], m["nobody_runs"],
			m["waiting_wait_percent"], m["throttled_wait_percent"]),
		Goal: "named rightly in all, nobody innocent in any",
		Met:  m["named_rightly_runs"] == m["guilty_runs"] && m["named_wrongly_runs"]+m["false_alarm_runs"] == 0,
	}
	bars := chart.Bars{
		Title: "How long the server waits for its CPU", Caption: "For how much of the time a server waits for its CPU", Mark: "before",
		Desc: "Bars: of the time, medians of the runs in which a pod was guilty. Marks: before it began.",
	}
	for _, p := range partNames {
		if wait, found := m[p+"_wait_percent"]; found {
			bars.Bars = append(bars.Bars, chart.Bar{Label: p, Note: fmt.Sprintf("p99 %.2f s", m[p+"_p99_ms"]/1000), Value: wait, Theory: m["before_wait_percent"], Strong: p == partNames[partThrottled]})
		}
	}
	r.Chart = bars
	r.Notes = f.notes(r)
}

// notes says what a reader should know to judge the figures.
func (f *CulpritFound) notes(r *Result) []string {
	notes := []string{
		fmt.Sprintf("The server is asked %d times a second, at random moments, for %v of CPU. It requests %dm and all of batch weighs %d shares, or it would hardly wait. It stays on one CPU, whoever is innocent on another.", culpritRate, culpritRequest, culpritServer, culpritBatch),
		fmt.Sprintf("Whoever is guilty begins after %d s, runs for %v of each %v, for %d s, and does nothing afterwards. Of the others one is always busy and weighs ten times as much, the rest are bursty. Where nobody is guilty a process outside of the pods does the same.",
			newCulpritRun(0, f.Seconds).lead, culpritRuns, culpritRuns+culpritPause, f.Seconds),
		fmt.Sprintf("How long it waits is what the kernel says of its process. The agent sees that too where its kernel has no pressure; on cgroup v2 it sees the pod's. Parts in which it catches up, %v each, are left out.", culpritSettles),
	}
	for i := range f.runs {
		if told := f.runs[i].story(i); told != "" {
			notes = append(notes, told)
		}
	}
	var pressed int
	for i := range f.runs {
		if figures := f.runs[i].figures(); f.runs[i].guilty >= 0 && figures["waiting_seen_percent"] < 10 {
			pressed++
		}
	}
	if pressed > 0 {
		notes = append(notes, fmt.Sprintf("In %d runs the agent saw the server wait for less than 10 %% of the time while it did, so nobody could be named.", pressed))
	}
	var busy []string
	for i := range f.runs {
		if run := &f.runs[i]; run.guilty >= 0 && run.others() > tooBusy || run.window.steal > 100*tooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs and %.0f %% (run %d)", run.others(), run.window.steal, i+1))
		}
	}
	if len(busy) > 0 {
		notes = append(notes, "Others on this machine used, and the hypervisor took, "+strings.Join(busy, ", ")+", for which the server may have waited too.")
	}
	return notes
}
