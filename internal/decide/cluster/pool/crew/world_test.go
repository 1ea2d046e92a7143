package crew

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// Times of the world.
const (
	boots   = 8 * time.Second  // until a process that was started is listed by the coordinator
	period  = 10 * time.Second // the engine's grace period: from the drain on, for that long, new work still comes
	answers = 2 * time.Second  // after which the coordinator lists a change
)

// world is an engine with workers and pods, in which steps are carried out. It does what Trino 435 was seen to do:
//   - A worker that drains still gets work for some seconds, until the coordinator has noticed.
//   - After a grace period it waits until it has none, and after one more it ends by itself.
//   - A drain cannot be taken back, unless the world is reversible.
type world struct {
	t       testing.TB
	now     time.Time
	start   time.Time
	set     Settings
	silent  bool // the coordinator does not answer
	refuses bool // the engine does not take drains
	workers []*place
	out     strings.Builder
	said    map[string]string
	tally   pool.Tally
	crash   func() bool // whether the controller is killed now; nil: never
	kills   int         // tasks that ended with a pod whose time was over
	early   int         // tasks that ended with a pod before
	wasted  int         // drains that were taken back where that is not possible
}

// place is a worker, and what is true of it.
type place struct {
	Worker
	never  bool // it does not register
	slow   bool // its pod does not start
	mute   bool // it does not answer
	late   bool // there is no time to ask it
	boots  time.Time
	up     bool
	drains time.Time   // since when it drains; zero: it does not
	idle   time.Time   // since when it drains and has no work
	jobs   []time.Time // when each ends
	demand int         // tasks that it has while it gets work
	takes  time.Duration
}

func newWorld(t testing.TB) *world {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	return &world{
		t: t, now: start, start: start, said: map[string]string{},
		set: Settings{
			Least: 2*period + 10*time.Second, Grace: time.Minute, Drain: 10 * time.Minute, Register: 3 * time.Minute,
			Recover: 5 * time.Minute, Patience: time.Minute, CoolDown: 20 * time.Second, Attempts: 2,
		},
	}
}

func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf("%6s  %s", w.now.Sub(w.start), fmt.Sprintf(format, args...))
	fmt.Fprintln(&w.out, strings.TrimRight(line, " "))
}

// second lets a second pass for a place.
func (w *world) second(p *place) {
	if p.Pod != nil && p.Pod.Started.IsZero() && !p.slow {
		p.Pod.Started, p.boots, p.up = w.now, w.now.Add(boots), true
	}
	if !p.up || w.now.Before(p.boots) || p.never {
		return
	}
	p.jobs = slices.DeleteFunc(p.jobs, func(end time.Time) bool { return !w.now.Before(end) })
	if p.drains.IsZero() || w.now.Sub(p.drains) < answers {
		for len(p.jobs) < p.demand {
			p.jobs = append(p.jobs, w.now.Add(p.takes))
		}
	}
	if p.drains.IsZero() {
		return
	}
	switch {
	case w.now.Sub(p.drains) < period || len(p.jobs) > 0:
		p.idle = time.Time{}
	case p.idle.IsZero():
		p.idle = w.now
	case w.now.Sub(p.idle) >= period && !w.set.Reversible:
		p.Over, p.Ended = true, w.now
		w.gone(p)
	}
}

// state is what the engine says about a place.
func (w *world) state(p *place) State {
	switch {
	case p.late:
		return Unasked
	case !p.up || p.mute:
		return Unknown
	case w.now.Before(p.boots) || p.never:
		return Absent
	case !p.drains.IsZero() && w.set.Reversible && !p.idle.IsZero():
		return Finished
	case !p.drains.IsZero():
		return Leaving
	case w.silent:
		return Unknown
	}
	return Serving
}

// round decides and carries out the steps, unless the controller is killed.
func (w *world) round() {
	in := Input{Now: w.now, Settings: w.set, Known: !w.silent}
	for _, p := range w.workers {
		worker := p.Worker
		worker.State = w.state(p)
		if worker.Over {
			worker.Pod = nil
		}
		in.Workers = append(in.Workers, worker)
	}
	steps := Next(&in)
	w.tally = Count(&in, steps)
	for i, s := range steps {
		if w.killed() || !w.carry(w.workers[i], s) {
			return
		}
	}
}

func (w *world) killed() bool { return w.crash != nil && w.crash() }

// carry carries out a step, and reports it if it is another one than before. It returns false if the controller is
// killed meanwhile.
func (w *world) carry(p *place, s Step) bool {
	line := fmt.Sprintf("%s %s: %s, %s", p.Name, s.Phase, s.Verb, s.Why)
	if s.Verb == Drain {
		line = fmt.Sprintf("%s %s: %s within %s, %s", p.Name, s.Phase, s.Verb, s.Within, s.Why)
	}
	if w.said[p.Name] != line {
		w.said[p.Name] = line
		w.say("%s", line)
	}
	if s.Within < 0 {
		w.t.Errorf("%+v", s)
	}
	if p.Pod != nil {
		if p.Pod.Marks = s.Marks; w.killed() {
			return false
		}
	}
	switch s.Verb {
	case CreatePod:
		p.Pod = &pool.Pod{}
	case Drain:
		if !w.refuses && p.up && !w.now.Before(p.boots) && !p.mute && p.drains.IsZero() {
			p.drains = w.now
		}
	case Undrain:
		if !w.set.Reversible {
			w.wasted++
			break
		}
		p.drains, p.idle = time.Time{}, time.Time{}
	case DeletePod:
		failed := p.Attempts
		if p.Attempts = 0; s.Failed {
			p.Attempts = failed + 1
		}
		w.end(p)
	}
	return true
}

// end ends a pod with what runs in it.
func (w *world) end(p *place) {
	if p.Pod != nil {
		if by := w.due(p); by.IsZero() || w.now.Before(by) {
			w.early += len(p.jobs)
		} else {
			w.kills += len(p.jobs)
		}
		p.Ended = w.now
	}
	p.Over = false
	w.gone(p)
	p.Pod = nil
}

// due is when a pod may be ended busy.
func (w *world) due(p *place) time.Time {
	marks := p.Pod.Marks
	by := marks.End
	if !marks.Leaving.IsZero() {
		if end := marks.Leaving.Add(w.set.Drain); by.IsZero() || end.Before(by) {
			by = end
		}
		if end := marks.Leaving.Add(w.set.Grace); p.Pod.Evicted && end.Before(by) {
			by = end
		}
	}
	return by
}

func (w *world) gone(p *place) {
	p.up, p.jobs, p.drains, p.idle = false, nil, time.Time{}, time.Time{}
	if p.Over {
		p.Pod = nil
	}
}

// run lets seconds pass; rounds are two seconds apart.
func (w *world) run(seconds int) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		for _, p := range w.workers {
			w.second(p)
		}
		if w.now.Sub(w.start)%(2*time.Second) == 0 {
			w.round()
		}
	}
}
