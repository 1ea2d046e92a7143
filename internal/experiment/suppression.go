package experiment

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// goalSuppress is the longest that 99 of 100 steps may take until batch may use only what is left, in milliseconds.
const goalSuppress = 300

// Suppression is all that experiment suppress measured.
type Suppression struct {
	When        time.Time
	Machine     string
	By          string        // what suppresses
	Length      time.Duration // of each step
	steps       []step
	window      window        // of all steps and what is between them
	reader      time.Duration // CPU time
	scheduled   string        // how the reader was
	loadAverage float64
}

// Result makes figures of it.
//
// Metrics, of all steps, times with p50, p99 and max: suppress_p99_ms, from the moment when the online threads begin until
// batch may use no more than 10 % of the machine above what it may in the middle of the next second; use_p99_ms, until it
// used no more over 100 ms; giveback_p99_ms, from the moment when they end until batch may again use what it might in the
// middle of the second before they began, less 10 % of the machine. Then overshoot_milli_p50 and _max, how much less it might
// use at the least than in the middle of the last second of the step; before_milli_p50, after_milli_p50 and
// online_milli_p50, what batch might use before and after, and what the online pod used; steps, steps_not_smaller and
// steps_not_given_back; reader_late_p99_ms and _max; other_cpus, what was used by neither pods nor the reader, agent_cpus and
// reader_cpus.
func (s *Suppression) Result() Result {
	r := Result{Name: SuppressName, About: SuppressAbout, When: s.When, Machine: s.Machine, Metrics: map[string]float64{}, Series: map[string][]float64{}}
	r.Table.Head = []string{"", "p50", "p99", "most"}
	down := s.time(&r, "suppress", "until batch may use only what is left, ms", func(x step) float64 { return x.down })
	s.time(&r, "use", "until it uses no more, ms", func(x step) float64 { return x.used })
	back := s.time(&r, "giveback", "until it may use what it might before, ms", func(x step) float64 { return x.back })
	s.amounts(&r)
	late := s.values(func(x step) float64 { return x.late })
	m, n := r.Metrics, len(s.steps)
	m["reader_late_p99_ms"], m["reader_late_max_ms"] = quantile(late, 0.99), quantile(late, 1)
	m["steps"], m["steps_not_smaller"], m["steps_not_given_back"] = float64(n), float64(n-len(down)), float64(len(down)-len(back))
	m["cpus_machine"], m["steal_percent"], m["load_1m"] = float64(runtime.NumCPU()), round(s.window.steal, 2), s.loadAverage
	m["other_cpus"], m["agent_cpus"], m["reader_cpus"] = round(s.rest(), 3), round(s.window.of("agent"), 3), round(s.read(), 3)

	p99 := quantile(down, 0.99)
	r.Headline = Headline{
		Value: fmt.Sprintf("p99 %.0f ms, given back after %.0f ms, p99", p99, quantile(back, 0.99)),
		Goal:  fmt.Sprintf("≤ %d ms, in every step, and always given back", goalSuppress),
		Met:   n > 0 && len(down) == n && len(back) == n && p99 <= goalSuppress && s.rest() <= tooBusy,
	}
	if s.rest() > tooBusy {
		r.Headline.Value += ", on a machine that was busy otherwise"
	}
	r.Chart = chart.Steps{
		Title: "How long until batch makes room", Desc: "Part of all steps in online load after which batch was kept to what is left after so many milliseconds.",
		Values: down, Unit: "ms", Goal: goalSuppress,
	}
	r.Notes = s.notes(&r)
	return r
}

// values returns a figure of each step in which it is known, sorted.
func (s *Suppression) values(of func(step) float64) []float64 {
	var all []float64
	for _, x := range s.steps {
		if value := of(x); !math.IsNaN(value) {
			all = append(all, value)
		}
	}
	slices.Sort(all)
	return all
}

// time adds how long something took.
func (s *Suppression) time(r *Result, name, label string, of func(step) float64) []float64 {
	all := s.values(of)
	r.Series[name+"_ms"] = all
	cells := []string{label}
	for _, q := range []struct {
		name string
		part float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		cell := "–"
		if len(all) > 0 {
			value := quantile(all, q.part)
			r.Metrics[name+"_"+q.name+"_ms"] = value
			cell = fmt.Sprintf("%.0f", value)
		}
		cells = append(cells, cell)
	}
	r.Table.Rows = append(r.Table.Rows, cells)
	return all
}

// amounts adds what batch might use, and the online pod did.
func (s *Suppression) amounts(r *Result) {
	for _, a := range []struct {
		name, label string
		of          func(step) int64
	}{
		{"before", "batch may use before, mCPU", func(x step) int64 { return x.before }},
		{"after", "batch may use after, mCPU", func(x step) int64 { return x.after }},
		{"overshoot", "less than that for a while, mCPU", func(x step) int64 { return x.overshoot }},
		{"online", "the online pod uses, mCPU", func(x step) int64 { return x.online }},
	} {
		all := s.values(func(x step) float64 { return float64(a.of(x)) })
		r.Metrics[a.name+"_milli_p50"], r.Metrics[a.name+"_milli_max"] = quantile(all, 0.5), quantile(all, 1)
		r.Table.Rows = append(r.Table.Rows, []string{
			a.label, fmt.Sprintf("%.0f", quantile(all, 0.5)), fmt.Sprintf("%.0f", quantile(all, 0.99)), fmt.Sprintf("%.0f", quantile(all, 1)),
		})
	}
}

// read is how many CPUs the reader used.
func (s *Suppression) read() float64 { return float64(s.reader) / float64(max(s.window.length, 1)) }

// rest is how many CPUs were used by neither pods nor the reader. What the hypervisor gave to others is not among them.
func (s *Suppression) rest() float64 {
	stolen := float64(runtime.NumCPU()) * s.window.steal / 100
	return max(s.window.busy-stolen-float64(s.window.total()+s.reader)/float64(max(s.window.length, 1)), 0)
}

// notes says what a reader should know to judge the figures.
func (s *Suppression) notes(r *Result) []string {
	online, batch := suppressPods()
	notes := []string{
		fmt.Sprintf("The online pod is Burstable, requests %d milli-cores and has %d threads, which burn for %v in each of %d steps; batch has %d. It is suppressed by %s.",
			online.requestMilli, online.threads, s.Length, len(s.steps), batch.threads, s.By),
		fmt.Sprintf("A process outside of the pods (%s) starts and stops the online threads and looks every %v at what batch may use and uses. It used %.3f CPUs and was kept from looking for %.0f ms at the longest.",
			s.scheduled, sampleEvery, s.read(), r.Metrics["reader_late_max_ms"]),
		"Between two steps batch has back what it had for twice as long as it had less: load that comes again sooner swings, and batch then waits longer.",
	}
	if n := r.Metrics["steps_not_smaller"]; n > 0 {
		notes = append(notes, fmt.Sprintf("In %.0f steps batch was not given less.", n))
	}
	if n := r.Metrics["steps_not_given_back"]; n > 0 {
		notes = append(notes, fmt.Sprintf("After %.0f steps batch did not have back within %v what it had.", n, noMore))
	}
	if s.rest() > tooBusy {
		notes = append(notes, fmt.Sprintf("The rest of the machine used %.2f CPUs. It counts as system and takes from what batch may use, more when batch is suppressed and leaves it room: what it does is in all figures.", s.rest()))
	}
	return notes
}
