package experiment

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

const (
	latest  = 1   // milliseconds that a client may be late, p99, before what it measured is its own
	tooBusy = 0.1 // CPUs that may be used outside of the pods before it shows in the figures
)

// trial is what was measured of the server in one mode.
type trial struct {
	mode      string
	rate      float64 // of requests, a second
	window    window
	latency   []float64     // milliseconds, sorted
	late      []float64     // milliseconds that requests were sent after they were due, sorted
	answers   float64       // a second
	switches  switches      // a second
	intruders int           // threads of other pods on the server's CPUs, at all looks together
	noticed   time.Duration // until the agent had read the annotation that made this mode
	took      time.Duration // from then until every process was where it belongs; 0: nothing was changed
}

// count takes from a client's requests what counts.
func (t *trial) count(all []asked, length time.Duration) error {
	unanswered, answered := 0, 0
	for _, a := range all {
		if a.due < warm {
			continue
		}
		t.late = append(t.late, inMillis(a.late()))
		if a.ready == 0 {
			unanswered++
			continue
		}
		t.latency = append(t.latency, inMillis(a.latency()))
		if a.ready < warm+length {
			answered++
		}
	}
	if unanswered == 0 && answered == 0 {
		return fmt.Errorf("in mode %s the server answered none of %d requests in time: this machine is too busy", t.mode, len(t.late))
	}
	if unanswered > 0 {
		return fmt.Errorf("in mode %s the server did not answer %d of %d requests within %v", t.mode, unanswered, len(t.late), lastAnswers)
	}
	t.answers = float64(answered) / length.Seconds()
	slices.Sort(t.latency)
	slices.Sort(t.late)
	return nil
}

func (t *trial) p99() float64 { return quantile(t.latency, 0.99) }

// outsiders is how many CPUs were used outside of the pods.
func (t *trial) outsiders() float64 { return max(t.window.busy-t.window.cpus(), 0) }

// metrics returns the figures, by their names.
func (t *trial) metrics() map[string]float64 {
	m := map[string]float64{}
	for name, value := range map[string]float64{
		"p50_ms":                                quantile(t.latency, 0.5),
		"p99_ms":                                t.p99(),
		"p999_ms":                               quantile(t.latency, 0.999),
		"answers_per_second":                    t.answers,
		"context_switches_per_second":           t.switches.voluntary + t.switches.involuntary,
		"voluntary_context_switches_per_second": t.switches.voluntary,
		"involuntary_context_switches_per_second": t.switches.involuntary,
		"migrations_per_second":                   t.switches.migrations,
		"cpu_ms_per_request":                      1000 * t.window.of("server") / t.answers,
		"batch_cpus":                              t.window.of("batch"),
		"outsiders_cpus":                          t.outsiders(),
		"late_p99_ms":                             quantile(t.late, 0.99),
	} {
		m[t.mode+"_"+name] = round(value, 3)
	}
	return m
}

func (t *trial) row(name string) []string {
	whole := func(x float64) string { return fmt.Sprintf("%.0f", x) }
	return []string{
		name, millis(quantile(t.latency, 0.5)), millis(t.p99()), millis(quantile(t.latency, 0.999)), whole(t.answers),
		whole(t.switches.voluntary), whole(t.switches.involuntary), fmt.Sprintf("%.1f", t.switches.migrations),
		fmt.Sprintf("%.2f", t.window.of("batch")),
	}
}

// report makes the result of trials in modes alone, none, share and exclusive.
func report(r *Result, trials []trial) {
	alone, none, exclusive := &trials[0], &trials[1], &trials[3]
	r.circumstances(none.window)
	r.Table.Head = []string{"server", "p50 ms", "p99 ms", "p99.9 ms", "answers/s", "switches/s", "involuntary/s", "migrations/s", "batch CPUs"}
	bars := chart.Bars{
		Title: "Latency of the server, p99", Caption: "p99 of the server's latency, beside a pod that burns all CPUs", Unit: "ms", Mark: "alone",
		Desc: "Bars: what 99 of 100 requests did not exceed, beside a pod that burns all CPUs, by the mode of the server's CPUs. Marks: without that pod.",
	}
	var slowest time.Duration
	for i := range trials {
		t := &trials[i]
		for key, value := range t.metrics() {
			r.Metrics[key] = value
		}
		slowest = max(slowest, t.took)
		if t == alone {
			r.Table.Rows = append(r.Table.Rows, t.row("alone"))
			continue
		}
		r.Table.Rows = append(r.Table.Rows, t.row("beside batch, "+t.mode))
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: t.mode, Note: "p50 " + millis(quantile(t.latency, 0.5)) + " ms", Value: t.p99(), Theory: alone.p99(), Strong: t == exclusive,
		})
	}
	r.Chart = bars
	r.Metrics["switch_max_ms"] = round(inMillis(slowest), 2)
	r.Metrics["exclusive_intruders"] = float64(exclusive.intruders)
	r.Metrics["requests"] = float64(len(none.latency))
	r.Headline = Headline{
		Value: fmt.Sprintf("p99 %s ms exclusive, %s ms none", millis(exclusive.p99()), millis(none.p99())),
		Goal:  "exclusive is not slower, and no other pod was seen on its CPU",
		Met:   exclusive.p99() <= none.p99() && exclusive.intruders == 0,
	}
	r.Notes = append(r.Notes, trialNotes(trials)...)
}

// trialNotes says what a reader should know to judge the figures.
func trialNotes(trials []trial) []string {
	none, share, exclusive := &trials[1], &trials[2], &trials[3]
	notes := []string{
		fmt.Sprintf("The server has one thread and is asked %.0f times a second, for %.1f ms of CPU each. Requests come at random moments, in every mode the same, as those of many users do, so that some wait for others even when it is alone. p99.9 is of %d requests.",
			none.rate, 1000*serverLoad/none.rate, len(none.latency)),
		fmt.Sprintf("The batch pod is Burstable, requests what the server leaves of the node, and runs %d busy loops. Nobody has a weight: the kernel shares by requests.", threads()),
		fmt.Sprintf("Mode share binds the server to a CPU and keeps nobody off it. Mode exclusive leaves the batch pod %d of %d CPUs; it used %.2f, and %.2f before.",
			runtime.NumCPU()-1, runtime.NumCPU(), exclusive.window.of("batch"), none.window.of("batch")),
		fmt.Sprintf("The running server's annotation was changed twice. From when the agent had read it, %s and %s ms later every process was where it belongs. Without a cluster, which would tell it, the agent looks once a second; it had to be waited for %s and %s ms.",
			millis(inMillis(share.took)), millis(inMillis(exclusive.took)), millis(inMillis(share.noticed)), millis(inMillis(exclusive.noticed))),
	}
	var late, busy []string
	worst := 0.0
	for i := range trials {
		t := &trials[i]
		worst = max(worst, quantile(t.late, 0.99))
		if quantile(t.late, 0.99) > latest {
			late = append(late, t.mode)
		}
		if t.outsiders() > tooBusy {
			busy = append(busy, fmt.Sprintf("%.2f CPUs (%s)", t.outsiders(), t.mode))
		}
	}
	notes = append(notes, fmt.Sprintf("Latency is counted from when a request was due until the client had its answer. The client is not in a pod, and stays on a CPU that is not the server's own. It sent %s ms late, p99 of the worst mode.", millis(worst)))
	if len(late) > 0 {
		notes = append(notes, fmt.Sprintf("The client was late by more than %d ms, p99, in mode %s: what was measured there is partly its own.", latest, strings.Join(late, ", ")))
	}
	if len(busy) > 0 {
		notes = append(notes, "Outside of the two pods were used "+strings.Join(busy, ", ")+". CPU sets bind pods only: the rest of the machine may run on the server's CPU too, and that is in the figures.")
	}
	return notes
}
