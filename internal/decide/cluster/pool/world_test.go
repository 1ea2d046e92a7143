package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Times of the world. A container that was allocated starts later, and a ResourceManager that becomes active hears from
// its NodeManagers later.
const (
	starts  = 3 * time.Second
	returns = 5 * time.Second
	forgets = time.Minute // a NodeManager that is gone counts as lost
)

// world is a ResourceManager with NodeManagers and pods, in which steps are carried out. It does what Hadoop 3.5.0 was
// seen to do:
//   - A NodeManager registers with the floor, and with the label of its host. One whose host is excluded is refused.
//   - A resize to the same size is ignored. What does not fit after the time is killed, newest first.
//   - A decommission kills at once what has not started, and waits for the rest, up to its time.
//   - The next ResourceManager knows totals and labels, and no deadline. It ends at once what was draining.
type world struct {
	t       testing.TB
	now     time.Time
	start   time.Time
	set     Settings
	rm      RM
	silent  bool
	dead    bool // it enforces no deadline either
	workers []*place
	out     strings.Builder
	said    map[string]Step
	tally   Tally       // of the last round
	crash   func() bool // whether the controller is killed now; nil: never
	kills   int         // containers that were killed at their deadline, or with the pod at its end
	early   int         // those that were killed before
	short   int         // those of kills that did not have the grace from when they did not fit
	lose    func() fate // what becomes of a resize; nil: it arrives

	sized   bool // pods keep the size with which they were made
	follow  bool // the demand
	secret  bool // the ResourceManager does not say what waits
	waits   job  // containers of all workers: each runs until ends - began
	unit    Size // of each
	waiting int  // that no worker has yet
	ended   int  // that ended by themselves
	demand  Demand
	known   Following
}

// place is a worker, and what is true of it.
type place struct {
	Worker
	slow     bool      // its pod does not start
	never    bool      // its NodeManager does not register
	as       string    // its NodeManager registers under this name
	boots    time.Time // when its NodeManager registers
	up       bool      // its NodeManager runs
	bared    time.Time // when somebody took its label away; the next rounds answer that
	silence  time.Time // since when the ResourceManager does not hear from it; zero: it does
	deadline time.Time // of the present size; zero: the ResourceManager knows none
	drain    time.Time // when the ResourceManager ends the drain
	full     Size      // the total before the drain
	excluded bool      // it is in the file
	read     bool      // the file was read since
	jobs     []job     // oldest first
	each     Size      // of its containers
	demand   int       // containers that it would run if they fitted
	guard    bool      // its guard ends what does not fit at the deadline
	mute     bool      // its NodeManager does not answer
	more     int64     // vcores that batch may use on its node beyond what is sold
	history  History   // of its node, as the controller knows it
	heard    time.Time // what its ResourceManager was told in this round
	takes    time.Duration
	lost     int       // containers that Hadoop lost with a ResourceManager
	over     time.Time // since when its containers do not fit; zero: they do
	marked   time.Time // when the mark with its deadline was written
}

// fate is what becomes of a request.
type fate int

const (
	arrives fate = iota
	unheard      // the ResourceManager does not get it
	unknown      // it does, and the answer is lost
)

type job struct{ began, ends time.Time }

func newWorld(t testing.TB) *world {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	return &world{
		t: t, now: start, start: start, said: map[string]Step{},
		set: Settings{
			Label: "elastic", Floor: Size{1024, 1}, Ceiling: Size{16384, 8}, Step: Size{4096, 2}, Pause: 10 * time.Second,
			Window: 20 * time.Second, Core: 1, Grace: time.Minute, Drain: 10 * time.Minute, Register: 3 * time.Minute,
			Recover: 10 * time.Minute, CoolDown: time.Minute, Attempts: 2, Graceful: true,
		},
		rm: RM{Labels: true, Since: start.Add(-time.Hour)},
	}
}

func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf("%6s  %s", w.now.Sub(w.start), fmt.Sprintf(format, args...))
	fmt.Fprintln(&w.out, strings.TrimRight(line, " "))
}

// manager returns what the ResourceManager shows of a place's NodeManager; nil: nothing.
func (p *place) manager() *Manager {
	if len(p.Managers) == 0 {
		return nil
	}
	return &p.Managers[0]
}

// second lets a second pass for a place.
func (w *world) second(p *place) {
	if p.Pod != nil && p.Pod.Started.IsZero() && !p.slow {
		p.Pod.Started, p.boots, p.up = w.now, w.now.Add(10*time.Second), true
	}
	m := p.manager()
	switch {
	case !p.up && m != nil && m.Lives():
		if p.silence.IsZero() {
			p.silence = w.now
		}
		if w.now.Sub(p.silence) >= forgets {
			m.State = "LOST"
		}
		return
	case !p.up || w.now.Before(p.boots) || p.never:
		return
	case p.as != "":
		p.Stray = p.as
		return
	case m == nil || !m.Lives():
		w.register(p)
		return
	}
	p.silence = time.Time{}
	before := len(p.jobs)
	p.jobs = slices.DeleteFunc(p.jobs, func(j job) bool { return !w.now.Before(j.ends) })
	w.ended += before - len(p.jobs)
	for m.State == running && p.demand > len(p.jobs) && p.size(len(p.jobs)+1).Fits(m.Total) && !w.silent {
		if m.Label != w.set.Label && !p.size(len(p.jobs)+1).Fits(w.floor(p)) && w.now.Sub(p.bared) > 4*time.Second {
			w.t.Errorf("%s: more than the floor lands on %s, whose label is %q", w.now.Sub(w.start), p.Name, m.Label)
		}
		p.jobs = append(p.jobs, job{w.now, w.now.Add(p.takes)})
	}
	for m.State == running && w.waiting > 0 && m.Label == w.set.Label && !w.silent {
		if p.each, p.takes = w.unit, w.waits.ends.Sub(w.waits.began); !p.size(len(p.jobs) + 1).Fits(m.Total) {
			break
		}
		p.jobs, w.waiting = append(p.jobs, job{w.now, w.now.Add(p.takes)}), w.waiting-1
	}
	if u := p.Pod.Marks.Until; p.guard && !u.IsZero() && !w.now.Before(u) {
		for !p.size(len(p.jobs)).Fits(p.Pod.Marks.Into) {
			w.kill(p, 1)
		}
	}
	if due := !p.deadline.IsZero() && !w.now.Before(p.deadline); due && m.State == running && !w.dead {
		for !p.size(len(p.jobs)).Fits(m.Total) {
			if w.now.Sub(earlier(p.over, p.marked)) < w.set.Grace {
				w.short++
			}
			w.kill(p, 1)
		}
	}
	if m.State == decommissioning && !w.now.Before(p.drain) && !w.dead {
		w.kill(p, len(p.jobs))
	}
	w.show(p)
	if m.State == decommissioning && len(p.jobs) == 0 {
		m.State, p.up = "DECOMMISSIONED", false
	}
	w.weigh(p)
}

// weigh keeps since when the containers of a place do not fit.
func (w *world) weigh(p *place) {
	if p.size(len(p.jobs)).Fits(p.manager().Total) {
		p.over = time.Time{}
	} else if p.over.IsZero() {
		p.over = w.now
	}
}

// show updates what the ResourceManager shows.
func (w *world) show(p *place) {
	m := p.manager()
	m.Used, m.Containers, m.Listed = p.size(len(p.jobs)), len(p.jobs), 0
	for _, j := range p.jobs {
		if w.now.Sub(j.began) >= starts {
			m.Listed++
		}
	}
	if m.State == decommissioning {
		m.Total = m.Used
	}
}

func (w *world) kill(p *place, n int) {
	w.kills += n
	p.jobs = p.jobs[:len(p.jobs)-n]
}

// register registers a NodeManager, or refuses it.
func (w *world) register(p *place) {
	floor := w.floor(p)
	m := Manager{ID: p.Host() + ":45454", State: running, Label: p.Label, Total: floor}
	if p.full != (Size{}) {
		m.Total, p.full = p.full, Size{}
	}
	if p.excluded && p.read || !floor.Fits(m.Total) && p.size(len(p.jobs)) == (Size{}) {
		m.State, p.up = "SHUTDOWN", false
		w.early += len(p.jobs)
		p.jobs = nil
	}
	p.Managers = []Manager{m}
	w.show(p)
}

// Host is the name under which a place's NodeManager registers.
func (p *place) Host() string { return p.Name + ".bed" }

// floor returns what a place's NodeManager registers with.
func (w *world) floor(p *place) Size {
	if p.Pod != nil && p.Pod.Floor != (Size{}) {
		return p.Pod.Floor
	}
	return w.set.Floor
}

func (p *place) size(containers int) Size { return times(p.each, containers) }

func times(s Size, n int) Size {
	return Size{MemoryMiB: int64(n) * s.MemoryMiB, VCores: int64(n) * s.VCores}
}

// round decides and carries out the steps, unless the controller is killed.
func (w *world) round() {
	in := Input{Now: w.now, Settings: w.set, RM: w.rm}
	in.RM.Known = !w.silent
	for _, p := range w.workers {
		worker := p.Worker
		worker.Managers, worker.Excluded = slices.Clone(p.Managers), p.excluded || !p.read
		worker.Figures, worker.Sells = w.watch(p), p.Allowance != (Size{})
		worker.Heard, p.heard = p.heard, time.Time{}
		if p.Pod != nil && w.silent && !p.mute && p.up {
			own := p.size(len(p.jobs))
			worker.Own = &own
		}
		in.Workers = append(in.Workers, worker)
	}
	in.Demand = w.ask()
	w.known = FollowDemand(&in, w.known)
	steps := Next(&in)
	w.tally = Count(&in, steps)
	for i, s := range steps {
		if w.killed() || !w.carry(w.workers[i], s) {
			w.demand, w.known = Demand{}, Following{}
			for _, p := range w.workers {
				p.history, p.heard = History{}, time.Time{}
			}
			return
		}
	}
}

// ask lets the controller ask what waits, every ten seconds.
func (w *world) ask() Demand {
	d := &w.demand
	if d.Follow = w.follow; !w.follow || w.silent || d.Failing.IsZero() && w.now.Sub(d.Read) < 10*time.Second {
		return *d
	}
	switch {
	case !w.secret:
		d.Read, d.Failing, d.Pending = w.now, time.Time{}, times(w.unit, w.waiting)
		for _, p := range w.workers { // jobs that want a node each
			more := times(p.each, max(p.demand-len(p.jobs), 0))
			d.Pending = Size{d.Pending.MemoryMiB + more.MemoryMiB, d.Pending.VCores + more.VCores}
		}
	case d.Failing.IsZero():
		d.Failing = w.now
	}
	return *d
}

// watch lets the controller look at the node of a place.
func (w *world) watch(p *place) Figures {
	amount := func(s Size) model.Amount { return model.Amount{CPU: s.VCores * 1000, Memory: s.MemoryMiB << 20} }
	floor := w.floor(p)
	rest := Size{p.Allowance.MemoryMiB - floor.MemoryMiB, p.Allowance.VCores - floor.VCores}
	p.history = p.history.See(w.now, amount(rest), amount(Size{rest.MemoryMiB, rest.VCores + p.more}), w.set.Window)
	return p.history.Windows(w.set.Window).Figures(func(rest model.Amount) Size {
		return Allowance(floor, Size{rest.Memory >> 20, rest.CPU / 1000}, 1)
	})
}

func (w *world) killed() bool { return w.crash != nil && w.crash() }

// carry carries out a step, and reports it if it is another one than before. It returns false if the controller is
// killed meanwhile.
func (w *world) carry(p *place, s Step) bool {
	shown := s
	shown.Marks, shown.Held, shown.By = Marks{}, 0, time.Time{}
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
	if s.Within < 0 {
		w.t.Errorf("%+v", s)
	}
	if p.Pod != nil {
		if !s.Marks.Until.Equal(p.Pod.Marks.Until) {
			p.marked = w.now
		}
		if p.Pod.Marks = s.Marks; w.killed() {
			return false
		}
	}
	m := p.manager()
	switch s.Verb {
	case LabelHost:
		if p.Label = w.set.Label; m != nil {
			m.Label = p.Label
		}
	case CreatePod:
		if p.Pod = (&Pod{Created: w.now}); w.sized {
			p.Pod.Floor, p.Pod.Ceiling = w.set.Floor, w.set.Ceiling
		}
	case DeletePod:
		if p.Over {
			p.Over = false
			break
		}
		if s.Failed {
			p.Attempts++
		} else {
			p.Attempts = 0
		}
		w.end(p)
	case Exclude, Include:
		if p.excluded, p.read = s.Verb == Exclude, false; w.killed() {
			return false
		}
		w.refresh(p, s.Within)
		p.heard = w.now.Add(s.Within)
	case Resize:
		if m, _ = p.Manager(); m == nil || s.Size == m.Total {
			break
		}
		what := arrives
		if w.lose != nil {
			what = w.lose()
		}
		if what == unheard {
			break
		}
		m.Total, p.deadline = s.Size, w.now.Add(s.Within)
		if w.weigh(p); what == arrives {
			p.heard = p.deadline
		}
	}
	return true
}

// refresh lets the ResourceManager read the exclude file.
func (w *world) refresh(p *place, within time.Duration) {
	p.read = true
	m := p.manager()
	switch {
	case m == nil:
	case p.excluded && (m.State == running || m.State == unhealthy):
		m.State, p.drain, p.full = decommissioning, w.now.Add(within), m.Total
		for len(p.jobs) > 0 && w.now.Sub(p.jobs[len(p.jobs)-1].began) < starts {
			p.jobs = p.jobs[:len(p.jobs)-1]
			w.early++
		}
	case p.excluded && m.State == decommissioning: // its time changes (NodesListManager of Hadoop)
		p.drain = w.now.Add(within)
	case !p.excluded && m.State == decommissioning:
		m.State, m.Total, p.full, p.deadline = running, p.full, Size{}, time.Time{}
	}
}

// end ends a pod with what runs in it, in order: its NodeManager says goodbye.
func (w *world) end(p *place) {
	by, marks := p.Pod.Marks.End, p.Pod.Marks
	if !marks.Leaving.IsZero() && (by.IsZero() || marks.Leaving.Add(w.set.Drain).Before(by)) {
		by = marks.Leaving.Add(w.set.Drain)
	}
	if p.Pod.Evicted && marks.Leaving.Add(w.set.Grace).Before(by) {
		by = marks.Leaving.Add(w.set.Grace)
	}
	if u := marks.Until; !u.IsZero() && (by.IsZero() || u.Before(by)) {
		by = u
	}
	if by.IsZero() || w.now.Before(by) {
		w.early += len(p.jobs)
	} else {
		w.kills += len(p.jobs)
	}
	if m := p.manager(); m != nil && m.Lives() {
		m.State, m.Used, m.Containers = "SHUTDOWN", Size{}, 0
	}
	w.gone(p)
}

// gone ends a pod without a word.
func (w *world) gone(p *place) {
	p.Pod, p.Ended, p.up, p.jobs, p.Stray = nil, w.now, false, nil, ""
	p.deadline, p.drain, p.full = time.Time{}, time.Time{}, Size{}
}

// failover makes another ResourceManager the active one. It returns the containers that Hadoop kills because of that.
func (w *world) failover() (killed int) {
	w.rm.Since = w.now
	for _, p := range w.workers {
		m := p.manager()
		p.deadline = time.Time{}
		if m == nil || !m.Lives() {
			continue
		}
		p.full, p.boots = m.Total, w.now.Add(returns)
		p.Managers = nil
		if m.State == decommissioning {
			killed += len(p.jobs)
			p.jobs, p.up = nil, false
		}
	}
	return killed
}

// answered notes that the ResourceManager may answer again: labels that were lost meanwhile are known in a round.
func (w *world) answered() {
	for _, p := range w.workers {
		p.bared = w.now
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
