package interference

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// unknown stands for a figure that is not known.
const unknown = -1.0

// catchUp is how long the server needs to catch up once it waits less.
const catchUp = 5 * time.Second

// run is what was measured in one run. Times are from its beginning.
type run struct {
	guilty       int // number of the batch pod, or noPod
	lead, guilts int // seconds until it begins, and for which it is guilty
	seconds      []second
	requests     []load.Request
	events       []event
	window       measure.Window
	loadAverage  float64
}

// second is for how much of a second the server waited for a CPU, in percent.
type second struct {
	waits float64 // by the kernel's count for its process
	seen  float64 // as the agent sees it; unknown in a second in which it sees nothing new
}

func newRun(guilty, seconds int) run {
	return run{guilty: guilty, lead: (4*seconds + 2) / 3, guilts: seconds}
}

// total returns the length of the run in seconds.
func (r *run) total() int { return r.lead + r.guilts + (2*r.guilts+2)/3 }

func (r *run) length() time.Duration { return time.Duration(r.total()) * time.Second }

func (r *run) begins() time.Duration { return time.Duration(r.lead) * time.Second }
func (r *run) ends() time.Duration   { return time.Duration(r.lead+r.guilts) * time.Second }

// name returns the name of the guilty pod; "": there is none.
func (r *run) name() string {
	if r.guilty == noPod {
		return ""
	}
	return fmt.Sprintf("batch-%d", r.guilty)
}

// count takes from the requests those that count. The latency of an unanswered request is the longest wait.
func (r *run) count(all []load.Request) {
	for _, a := range all {
		if a.Ready == 0 {
			a.Ready = generatorLead + r.length() + load.AnswerTimeout
		}
		a.Due, a.Sent, a.Ready = a.Due-generatorLead, a.Sent-generatorLead, a.Ready-generatorLead
		if a.Due >= 0 {
			r.requests = append(r.requests, a)
		}
	}
}

// first returns the first event from a time on that matches; nil: there is none.
func (r *run) first(from time.Duration, matches func(*event) bool) *event {
	for i := range r.events {
		if e := &r.events[i]; e.at >= from && matches(e) {
			return e
		}
	}
	return nil
}

// namedRightly returns when the guilty pod was named while it was guilty; nil: never.
func (r *run) namedRightly() *event {
	e := r.first(r.begins(), func(e *event) bool { return e.names() && e.pod == r.name() })
	if e == nil || e.at >= r.ends() {
		return nil
	}
	return e
}

// namedWrongly returns when a pod was named that was not guilty, or not yet; nil: never.
func (r *run) namedWrongly() *event {
	return r.first(0, func(e *event) bool { return e.names() && (e.pod != r.name() || e.at < r.begins()) })
}

// tried returns when the first trial of the guilty pod began; nil: never.
func (r *run) tried() *event {
	return r.first(0, func(e *event) bool { return e.code == model.ThrottleTried && e.pod == r.name() })
}

// countOf returns the number of events of a code that happened to the guilty pod, or to innocent ones.
func (r *run) countOf(code model.Code, guilty bool) (n int) {
	for _, e := range r.events {
		if e.code == code && (e.pod == r.name()) == guilty {
			n++
		}
	}
	return n
}

// freed returns when the last throttle of the guilty pod ended; below 0: it did not, or there was none.
func (r *run) freed() time.Duration {
	at := time.Duration(-1)
	for _, e := range r.events {
		if e.pod != r.name() || e.names() {
			continue
		}
		if at = -1; e.frees() {
			at = e.at
		}
	}
	return at
}

// part is a part of a run.
type part int

const (
	partBefore    part = iota // no pod is guilty yet
	partWaits                 // a pod is guilty, and is not throttled
	partThrottled             // a pod is guilty, and is throttled
	partAfter                 // no pod is guilty any more
	parts
)

var partNames = [parts]string{"before", "waiting", "throttled", "after"}

// partOf returns the part that a time is in; below 0 while the server catches up.
func (r *run) partOf(at time.Duration) part {
	switch {
	case at < r.begins():
		return partBefore
	case at >= r.ends():
		if at < r.ends()+catchUp {
			return -1
		}
		return partAfter
	}
	throttled := time.Duration(-1)
	for _, e := range r.events {
		switch {
		case e.pod != r.name() || e.names() || e.at > at:
		case e.frees():
			throttled = -1
		case throttled < 0:
			throttled = e.at
		}
	}
	switch {
	case throttled < 0:
		return partWaits
	case at < throttled+catchUp:
		return -1
	}
	return partThrottled
}

// figures returns the figures of each part of a run, by names that end in units. A figure that was not measured is
// missing.
func (r *run) figures() map[string]float64 {
	var waits, seen, latency [parts][]float64
	for i, s := range r.seconds {
		p := r.partOf(time.Duration(i) * time.Second)
		if p < 0 {
			continue
		}
		if waits[p] = append(waits[p], s.waits); s.seen != unknown {
			seen[p] = append(seen[p], s.seen)
		}
	}
	for _, a := range r.requests {
		if p := r.partOf(a.Due); p >= 0 {
			latency[p] = append(latency[p], measure.Millis(a.Latency()))
		}
	}
	f := map[string]float64{
		"steal_percent": r.window.Steal, "load_1m": r.loadAverage, "other_cpus": r.otherCPUs(),
		"agent_cpus": r.window.CPUsOf("agent"),
	}
	for p, name := range partNames {
		if len(waits[p]) > 0 {
			f[name+"_wait_percent"] = measure.Mean(waits[p])
		}
		if len(seen[p]) > 0 {
			f[name+"_seen_percent"] = measure.Mean(seen[p])
		}
		if slices.Sort(latency[p]); len(latency[p]) > 0 {
			f[name+"_p50_ms"] = measure.Quantile(latency[p], 0.5)
			f[name+"_p99_ms"] = measure.Quantile(latency[p], 0.99)
		}
	}
	if e := r.namedRightly(); e != nil {
		f["named_after_seconds"], f["score"] = (e.at - r.begins()).Seconds(), float64(e.score)/1000
	}
	if e := r.tried(); e != nil {
		f["tried_after_seconds"] = (e.at - r.begins()).Seconds()
	}
	if freed := r.freed(); freed >= r.ends() {
		f["given_back_after_seconds"] = (freed - r.ends()).Seconds()
	}
	return f
}

// otherCPUs returns how many CPUs were used by neither pods nor the generator. A process of ours that stands in for a
// guilty pod is among them.
func (r *run) otherCPUs() float64 {
	stolen := float64(runtime.NumCPU()) * r.window.Steal / 100
	return max(r.window.Busy-stolen-r.window.CPUs()-r.window.GeneratorCPUs(), 0)
}

// outcomeOfTrial returns how the first trial of the guilty pod ended.
func (r *run) outcomeOfTrial() string {
	outcome := "–"
	for _, e := range r.events {
		if e.pod != r.name() || e.names() {
			continue
		}
		switch e.code {
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
