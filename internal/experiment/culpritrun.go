package experiment

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
)

// unknown stands for a figure that is not known.
const unknown = -1.0

// culpritSettles is how long it takes the server to catch up once it waits less.
const culpritSettles = 5 * time.Second

// culpritRun is what was measured in one run. Times are from its beginning.
type culpritRun struct {
	guilty        int // number of the batch pod; below 0: nobody is
	lead, seconds int // until it begins, and for which it goes on
	all           []culpritSecond
	asked         []asked
	accusals      []accusal
	window        window
	loadAverage   float64
}

// culpritSecond is for how much of a second the server waited for a CPU, in percent.
type culpritSecond struct {
	waits float64 // by what the kernel says of its process
	seen  float64 // as the agent measures it; unknown in a second in which it does not look
}

func newCulpritRun(guilty, seconds int) culpritRun {
	return culpritRun{guilty: guilty, lead: (4*seconds + 2) / 3, seconds: seconds}
}

// total is how long the run takes, in seconds.
func (r *culpritRun) total() int { return r.lead + r.seconds + (2*r.seconds+2)/3 }

func (r *culpritRun) length() time.Duration { return time.Duration(r.total()) * time.Second }

func (r *culpritRun) begins() time.Duration { return time.Duration(r.lead) * time.Second }
func (r *culpritRun) ends() time.Duration   { return time.Duration(r.lead+r.seconds) * time.Second }

// name is what the guilty pod is called; "": nobody is.
func (r *culpritRun) name() string {
	if r.guilty < 0 {
		return ""
	}
	return fmt.Sprintf("batch-%d", r.guilty)
}

// ask takes what became of the requests. One without an answer took as long as was waited for it.
func (r *culpritRun) ask(all []asked) {
	for _, a := range all {
		if a.ready == 0 {
			a.ready = settled + r.length() + lastAnswers
		}
		a.due, a.sent, a.ready = a.due-settled, a.sent-settled, a.ready-settled
		if a.due >= 0 {
			r.asked = append(r.asked, a)
		}
	}
}

// accusal is one thing that the agent said of a pod, or did to it.
type accusal struct {
	at    time.Duration
	who   string     // the pod's UID, or its name
	what  model.Code // SuspectNamed, SuspectOnline, ThrottleTried, ThrottleKept, ThrottleUndone, ThrottleEased, trialVoid; "": it has all back
	score int64      // in thousandths, of one that was named
}

// trialVoid is of a trial after which a pod has what it had before, which was less than all.
const trialVoid model.Code = "TrialVoid"

// tale gathers what the agent said of pods and did to them, from one round of its journal to the next.
type tale struct {
	all   []accusal
	named time.Duration // the last time that somebody was
	held  []model.Throttle
}

func (t *tale) take(r *journal.Round) {
	b := r.Plan.Interference
	if b == nil {
		b = &model.Interference{}
	}
	if r.Node.Load == nil {
		return
	}
	clock := r.Node.Load.Clock
	if b.Named.Suspect != "" && b.NamedAt != t.named {
		t.named = b.NamedAt
		t.all = append(t.all, accusal{at: b.NamedAt, who: b.Named.Suspect, what: b.Named.Code, score: b.Named.Score})
	}
	for _, h := range t.held {
		if b.Throttle(h.UID) == nil {
			code := model.Code("")
			if b.Undone.UID == h.UID {
				code = b.Undone.Code
			}
			t.all = append(t.all, accusal{at: clock, who: h.UID, what: code})
		}
	}
	before := model.Interference{Throttles: t.held}
	for _, h := range b.Throttles {
		was := before.Throttle(h.UID)
		switch {
		case was != nil && was.Code == h.Code && was.Milli == h.Milli:
		case was != nil && was.Code == model.ThrottleTried && was.Milli != h.Milli: // it has back what the last of several trials took
			t.all = append(t.all, accusal{at: clock, who: h.UID, what: trialVoid})
		default:
			t.all = append(t.all, accusal{at: clock, who: h.UID, what: h.Code})
		}
	}
	t.held = slices.Clone(b.Throttles)
}

// first returns the first of some accusals from a time on; nil if there is none.
func (r *culpritRun) first(from time.Duration, is func(*accusal) bool) *accusal {
	for i := range r.accusals {
		if a := &r.accusals[i]; a.at >= from && is(a) {
			return a
		}
	}
	return nil
}

// back reports whether the pod has all back that was taken of it.
func (a *accusal) back() bool { return a.what == "" || a.what == model.ThrottleUndone }

func (a *accusal) names() bool { return a.what == model.SuspectNamed || a.what == model.SuspectOnline }

// rightly returns when the guilty pod was named while it was guilty; nil: never.
func (r *culpritRun) rightly() *accusal {
	a := r.first(r.begins(), func(a *accusal) bool { return a.names() && a.who == r.name() })
	if a == nil || a.at >= r.ends() {
		return nil
	}
	return a
}

// wrongly returns when somebody was named who is not guilty, or not yet; nil: never.
func (r *culpritRun) wrongly() *accusal {
	return r.first(0, func(a *accusal) bool { return a.names() && (a.who != r.name() || a.at < r.begins()) })
}

// did returns when something was done to the guilty pod; nil: never.
func (r *culpritRun) did(from time.Duration, what model.Code) *accusal {
	return r.first(from, func(a *accusal) bool { return a.what == what && a.who == r.name() })
}

// count returns how often something was done to innocent pods or to the guilty one.
func (r *culpritRun) count(what model.Code, guilty bool) (n int) {
	for _, a := range r.accusals {
		if a.what == what && (a.who == r.name()) == guilty {
			n++
		}
	}
	return n
}

// free returns when the guilty pod had all back that was taken of it, for the last time; below 0: it had not, or nothing was taken.
func (r *culpritRun) free() time.Duration {
	at := time.Duration(-1)
	for _, a := range r.accusals {
		if a.who != r.name() || a.names() {
			continue
		}
		if at = -1; a.back() {
			at = a.at
		}
	}
	return at
}

// part is what the server went through in a part of a run.
type part int

const (
	partBefore    part = iota // nobody is guilty yet
	partWaits                 // somebody is, and is not throttled
	partThrottled             // somebody is, and is throttled
	partAfter                 // no longer
	parts
)

var partNames = [parts]string{"before", "waiting", "throttled", "after"}

// partOf returns which part of a run a time is in, below 0 while the server catches up.
func (r *culpritRun) partOf(at time.Duration) part {
	switch {
	case at < r.begins():
		return partBefore
	case at >= r.ends():
		if at < r.ends()+culpritSettles {
			return -1
		}
		return partAfter
	}
	held := time.Duration(-1)
	for _, a := range r.accusals {
		switch {
		case a.who != r.name() || a.names() || a.at > at:
		case a.back():
			held = -1
		case held < 0:
			held = a.at
		}
	}
	switch {
	case held < 0:
		return partWaits
	case at < held+culpritSettles:
		return -1
	}
	return partThrottled
}

// figures returns what was measured in each part of a run, by names that end in units. What was not measured is not there.
func (r *culpritRun) figures() map[string]float64 {
	var waits, seen, latency [parts][]float64
	for i, second := range r.all {
		p := r.partOf(time.Duration(i) * time.Second)
		if p < 0 {
			continue
		}
		if waits[p] = append(waits[p], second.waits); second.seen != unknown {
			seen[p] = append(seen[p], second.seen)
		}
	}
	for _, a := range r.asked {
		if p := r.partOf(a.due); p >= 0 {
			latency[p] = append(latency[p], inMillis(a.latency()))
		}
	}
	f := map[string]float64{"steal_percent": r.window.steal, "load_1m": r.loadAverage, "other_cpus": r.others(), "agent_cpus": r.window.of("agent")}
	for p, name := range partNames {
		if len(waits[p]) > 0 {
			f[name+"_wait_percent"] = mean(waits[p])
		}
		if len(seen[p]) > 0 {
			f[name+"_seen_percent"] = mean(seen[p])
		}
		if slices.Sort(latency[p]); len(latency[p]) > 0 {
			f[name+"_p50_ms"], f[name+"_p99_ms"] = quantile(latency[p], 0.5), quantile(latency[p], 0.99)
		}
	}
	if a := r.rightly(); a != nil {
		f["named_after_seconds"], f["score"] = (a.at - r.begins()).Seconds(), float64(a.score)/1000
	}
	if a := r.did(0, model.ThrottleTried); a != nil {
		f["tried_after_seconds"] = (a.at - r.begins()).Seconds()
	}
	if free := r.free(); free >= r.ends() {
		f["given_back_after_seconds"] = (free - r.ends()).Seconds()
	}
	return f
}

// others is how many CPUs were used by who is not measured. Those that an outsider of ours used in the place of a pod are among them.
func (r *culpritRun) others() float64 {
	return max(r.window.busy-float64(runtime.NumCPU())*r.window.steal/100-r.window.cpus()-r.window.asked(), 0)
}
