package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a ResourceManager with NodeManagers and pods, in which steps are carried out. It follows what Hadoop 3.5 does:
// a NodeManager registers with the floor, and with the label of its host; a resize to the same size is ignored; what
// does not fit after the time is killed, newest first; another ResourceManager knows totals, labels and excluded hosts,
// but no deadline, and stops at once what drains.
type world struct {
	t       testing.TB
	now     time.Time
	start   time.Time
	set     Settings
	rm      RM
	silent  bool
	leaders int
	workers []*place
	out     strings.Builder
	said    map[string]Step
	crash   func() bool // whether the controller is killed before this step; nil: never
	kills   int         // containers that were killed
	early   int         // of them, before their deadline
}

// place is a worker, and what is true of it in the world.
type place struct {
	Worker
	never    bool          // its NodeManager does not register
	as       string        // it registers under another name
	boots    time.Time     // when its NodeManager registers
	deadline time.Time     // of the present size; zero: none
	drain    time.Time     // when the ResourceManager stops the draining; zero: it does not drain
	full     Size          // the total before
	lasts    []time.Time   // ends of its containers, oldest first
	each     Size          // of its containers
	demand   int           // containers that it would run if they fitted
	takes    time.Duration // that a container runs
}

func newWorld(t testing.TB) *world {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	return &world{
		t: t, now: start, start: start, said: map[string]Step{},
		set: Settings{
			Label: "elastic", Floor: Size{1024, 1}, Ceiling: Size{16384, 8}, Step: Size{2048, 2}, Grace: time.Minute,
			Drain: 10 * time.Minute, Register: 3 * time.Minute, CoolDown: time.Minute, Attempts: 2, Graceful: true,
		},
		rm: RM{Labels: true, Started: "rm1"}, leaders: 1,
	}
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(&w.out, "%6s  %s\n", w.now.Sub(w.start), fmt.Sprintf(format, args...))
}

// manager returns the NodeManager of a place's present pod; nil: it has not registered.
func (p *place) manager() *Manager {
	if p.Pod == nil || p.Pod.Started.IsZero() {
		return nil
	}
	for i := range p.Managers {
		if m := &p.Managers[i]; !m.Heartbeat.Before(p.Pod.Started) {
			return m
		}
	}
	return nil
}

// second lets a second pass for a place.
func (w *world) second(p *place) {
	if p.Pod != nil && p.Pod.Started.IsZero() {
		p.Pod.Started, p.boots = w.now, w.now.Add(10*time.Second)
	}
	m := p.manager()
	if m == nil {
		if p.Pod != nil && !p.never && !w.silent && !w.now.Before(p.boots) {
			w.register(p)
		}
		return
	}
	live := m.State == running || m.State == decommissioning || m.State == unhealthy
	if !live {
		return
	}
	m.Heartbeat = w.now
	p.lasts = slices.DeleteFunc(p.lasts, func(end time.Time) bool { return !w.now.Before(end) })
	if m.State == running && !w.silent {
		for p.demand > len(p.lasts) && w.more(p).fits(m.Total) {
			if m.Label != w.set.Label {
				w.t.Errorf("%s: a container lands on %s, whose label is %q", w.now.Sub(w.start), p.Name, m.Label)
			}
			p.lasts = append(p.lasts, w.now.Add(p.takes))
			m.Used = w.used(p)
		}
	}
	m.Used, m.Containers = w.used(p), len(p.lasts)
	over := !m.Used.fits(m.Total) && !p.deadline.IsZero() && !w.now.Before(p.deadline) && m.State == running
	if !w.silent && (over || !p.drain.IsZero() && !w.now.Before(p.drain)) {
		for len(p.lasts) > 0 && (m.State == decommissioning || !w.used(p).fits(m.Total)) {
			p.lasts = p.lasts[:len(p.lasts)-1]
			w.kills++
		}
		m.Used, m.Containers = w.used(p), len(p.lasts)
	}
	if m.State == decommissioning {
		m.Total = m.Used
		if m.Containers == 0 && !w.silent {
			m.State = decommissioned
		}
	}
}

func (w *world) register(p *place) {
	m := Manager{ID: p.Host + ":45454", State: running, Label: p.Label, Total: w.set.Floor, Heartbeat: w.now}
	if p.as != "" {
		p.Stray = p.as
		return
	}
	p.Managers = append(slices.DeleteFunc(p.Managers, func(old Manager) bool { return old.ID == m.ID }), m)
	if p.Excluded {
		p.Managers[len(p.Managers)-1].State = shutdown // refused
	}
}

func (w *world) used(p *place) Size {
	n := int64(len(p.lasts))
	return Size{n * p.each.MemoryMiB, n * p.each.VCores}
}

func (w *world) more(p *place) Size {
	n := int64(len(p.lasts)) + 1
	return Size{n * p.each.MemoryMiB, n * p.each.VCores}
}

// round decides and carries out the steps, unless the controller is killed before one of them.
func (w *world) round() {
	in := Input{Now: w.now, Settings: w.set, RM: w.rm}
	in.RM.Known = !w.silent
	for _, p := range w.workers {
		worker := p.Worker
		worker.Managers = slices.Clone(p.Managers)
		in.Workers = append(in.Workers, worker)
	}
	for i, s := range Next(&in) {
		if w.crash != nil && w.crash() {
			return
		}
		w.carry(w.workers[i], s)
	}
}

// carry carries out a step, and reports it if it is another one than before.
func (w *world) carry(p *place, s Step) {
	shown := s
	if s.Verb != Resize {
		shown.Within = 0 // it gets shorter in every round
	}
	if before, known := w.said[p.Name]; !known || before != shown {
		if w.said[p.Name] = shown; s.Verb == Resize {
			w.say("%s %s: %s to %s within %s, %s %s", p.Name, s.Phase, s.Verb, s.Size, s.Within, s.Why, s.Text)
		} else {
			w.say("%s %s: %s, %s %s", p.Name, s.Phase, s.Verb, s.Why, s.Text)
		}
	}
	m := p.manager()
	switch s.Verb {
	case LabelHost:
		if p.Label = w.set.Label; m != nil {
			m.Label = p.Label
		}
	case CreatePod:
		p.Pod = &Pod{}
	case DeletePod:
		w.stop(p)
	case Exclude:
		if p.Excluded = true; m != nil && m.State == running {
			m.State, p.drain, p.full = decommissioning, w.now.Add(s.Within), m.Total
		}
	case Include:
		if p.Excluded = false; m != nil && m.State == decommissioning {
			m.State, m.Total, p.drain = running, p.full, time.Time{}
		}
	case Resize:
		if m == nil || s.Size == m.Total {
			return
		}
		m.Total, p.Pod.Armed = s.Size, w.rm.Started
		p.deadline = w.now.Add(s.Within)
	}
}

// stop ends a pod, with what runs in it.
func (w *world) stop(p *place) {
	m := p.manager()
	if n := len(p.lasts); n > 0 {
		w.kills += n
		if p.End.IsZero() || w.now.Before(p.End) {
			w.early += n
		}
	}
	if m == nil {
		p.Attempts++
	} else if m.State == running || m.State == unhealthy {
		m.State, m.Used, m.Containers = shutdown, Size{}, 0
	}
	if m != nil {
		p.Attempts = 0
	}
	p.Pod, p.Ended, p.lasts, p.deadline, p.drain = nil, w.now, nil, time.Time{}, time.Time{}
}

// failover makes another ResourceManager the active one.
func (w *world) failover() {
	w.leaders++
	w.rm.Started = fmt.Sprintf("rm%d", w.leaders)
	for _, p := range w.workers {
		p.deadline = time.Time{}
		if m := p.manager(); m != nil && m.State == decommissioning {
			w.early += len(p.lasts)
			w.kills += len(p.lasts)
			p.lasts = nil
			m.State, m.Used, m.Containers = decommissioned, Size{}, 0
		}
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
