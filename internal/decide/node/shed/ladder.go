package shed

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Ages up to which readings count.
const (
	maxSampleAge = 5 * time.Second  // of the cgroup and of processes
	maxListAge   = 10 * time.Second // of the NodeManager's list: a busy one answers slowly
	budgetTime   = time.Minute
)

// Times of the ladder.
const (
	// leaveLead is the time before the deadline in which executors are told to leave. While only CPU is over, it may be an
	// hour away, and the CPU may come back.
	leaveLead = 5 * time.Minute
	// managerTime is the time after the deadline that the ResourceManager has: it kills with the next heartbeats of the
	// NodeManager, within 3 s.
	managerTime = 10 * time.Second
	// managerTimeCPU is the same while only vcores are over and the CPU is not scarce: it can be throttled, memory cannot.
	managerTimeCPU = 30 * time.Second
	// managerTimeMaster is the same for masters, which all containers of an application depend on.
	managerTimeMaster = 30 * time.Second
	// refused is how long a container is left alone that gets no signal from the kernel or the ResourceManager.
	refused = time.Minute
)

// The CPU is scarce from these parts on, in thousandths.
const (
	scarceUse      = 900 // of the limit that is used
	scarceThrottle = 250 // of the periods that are throttled
)

// near is how far below the hard mark, in percent of the limit, memory is looked at closely.
const near = 10

// waits are times of step 3.
type waits struct {
	term   time.Duration // from SIGTERM to SIGKILL
	kill   time.Duration // from SIGKILL until a container whose processes stay counts as stuck
	settle time.Duration // from a signal to the measurement that the next one rests on
}

func calm() waits {
	return waits{term: 10 * time.Second, kill: 5 * time.Second, settle: 2 * time.Second}
}

// hurried are the waits at the hard mark. A JVM needs about a second to end with SIGTERM.
func hurried() waits { return waits{term: 2 * time.Second, kill: time.Second, settle: time.Second} }

// detour is the time in which a signal by way of the ResourceManager arrives, and the NodeManager's list shows its
// effect: a heartbeat of the NodeManager each, of a second by default.
const detour = 3 * time.Second

// reached reports whether a signal to a container can have an effect.
func (c *Container) reached() bool { return c.Processes > 0 || c.Remote && !c.Ended }

// round is the working data of one round.
type round struct {
	in    *Input
	s     State
	order []*Container // the first one leaves first
}

// Decide returns what to do now, and the state for the next round.
func Decide(in *Input, s State) (Decision, State) {
	r := round{in: in, s: s}
	r.s.Tried, r.s.Ended = slices.Clone(s.Tried), slices.Clone(s.Ended)
	r.outcome()
	r.forget()
	r.sort()
	d := r.decide()
	r.note(&d)
	return d, r.s
}

// outcome takes an action back that reached no process.
func (r *round) outcome() {
	o := r.in.Outcome
	if o.Container == "" || o.Delivered > 0 {
		return
	}
	t := r.tried(o.Container)
	if t == nil {
		return
	}
	switch {
	case !t.Killed.IsZero():
		t.Killed = time.Time{}
	case !t.Terminated.IsZero():
		if i := slices.Index(r.s.Ended, t.Terminated); i >= 0 {
			r.s.Ended = slices.Delete(r.s.Ended, i, i+1)
		}
		t.Terminated = time.Time{}
	default:
		t.Decommissioned = time.Time{}
	}
}

// forget drops what does not count any more.
func (r *round) forget() {
	in := r.in
	r.s.Ended = slices.DeleteFunc(r.s.Ended, func(at time.Time) bool { return in.Now.Sub(at) >= budgetTime })
	r.s.Tried = slices.DeleteFunc(r.s.Tried, func(t Tried) bool {
		i := slices.IndexFunc(in.Container, func(c Container) bool { return c.ID == t.Container })
		return i < 0
	})
	if !in.Allowance.Until.Equal(r.s.Until) {
		r.s.Until, r.s.Since, r.s.Met = in.Allowance.Until, in.Now, false
	}
	if r.recent(in.Listed, maxListAge) && in.Listed.After(r.s.Since) && !r.over().any() {
		r.s.Met = true
	}
}

func (r *round) recent(at time.Time, most time.Duration) bool {
	return !at.IsZero() && r.in.Now.Sub(at) <= most
}

// sort brings the containers into the order in which they leave.
func (r *round) sort() {
	for i := range r.in.Container {
		r.order = append(r.order, &r.in.Container[i])
	}
	slices.SortFunc(r.order, func(a, b *Container) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), b.Started.Compare(a.Started), cmp.Compare(b.ID, a.ID))
	})
}

// rank is the first criterion of the order. Containers of which nothing is known may be masters.
func (c *Container) rank() int {
	switch {
	case !c.Known:
		return 4
	case c.Ended:
		return 0 // its application has done without it
	case c.Master:
		return 3
	case c.Opportunistic:
		return 1
	}
	return 2
}

// excess is by how much containers exceed the allowance; what fits is 0.
type excess struct{ memory, vcores int64 }

func (e excess) any() bool { return e.memory > 0 || e.vcores > 0 }

// over returns by how much the containers exceed the allowance by what they asked for.
func (r *round) over() excess { return r.overWithout(func(*Container) bool { return false }) }

// overWithout returns the same without some containers.
func (r *round) overWithout(gone func(*Container) bool) excess {
	e := excess{-r.in.Allowance.MemoryMiB, -r.in.Allowance.VCores}
	for i := range r.in.Container {
		if c := &r.in.Container[i]; r.counts(c) && !gone(c) {
			e.memory += c.MemoryMiB
			e.vcores += c.VCores
		}
	}
	return excess{max(e.memory, 0), max(e.vcores, 0)}
}

// counts reports whether a container uses what it asked for. A container that had processes and has none has ended,
// even if the NodeManager has not noticed. One that never had a process is starting; by an old list, it may have ended.
func (r *round) counts(c *Container) bool {
	switch {
	case c.Ended || !c.Known:
		return false
	case c.Processes > 0:
		return true
	case r.recent(r.in.Listed, maxListAge):
		return c.Holds && c.Started.IsZero()
	}
	return false
}

func (r *round) decide() Decision {
	in := r.in
	full := in.Memory.reaches(in.Settings.HardPercent)
	measured, seen := r.recent(in.Memory.At, maxSampleAge), r.recent(in.Scanned, maxSampleAge)
	deadline := !in.Allowance.Until.IsZero() && !r.s.Met && r.over().any()
	var d Decision
	switch {
	case full && measured && seen:
		d = r.end(hurried(), r.atHardMark())
		if d.Signal == None && deadline { // it waits for memory to be read again, on which the allowance does not depend
			if a := r.allowed(); a.Signal != None {
				d = a
			}
		}
	case deadline && seen:
		d = r.allowed()
	case full || deadline:
		d = r.wait(model.ReadingsOld, r.ages()...)
	}
	d.Closely = !in.Allowance.Until.IsZero() && !r.s.Met && !r.farOff() || in.Memory.Near(in.Settings)
	return d
}

// farOff reports whether it is too early to act on the deadline.
func (r *round) farOff() bool {
	return r.in.Allowance.Until.Sub(r.in.Now) > leaveLead && r.over().memory == 0
}

// Near reports whether memory is so near the hard mark that a decision needs a new look at processes.
func (m *Memory) Near(s Settings) bool { return m.reaches(s.HardPercent - near) }

// reaches reports whether memory that nobody can reclaim reaches a part of the limit, in percent.
func (m *Memory) reaches(percent int64) bool {
	return m.Limit > 0 && percent > 0 && m.fixed() >= m.Limit/100*percent
}

func (m *Memory) fixed() int64 { return max(m.Used-m.Reclaimable, 0) }

// allowed decides while containers exceed an allowance that has a deadline.
func (r *round) allowed() Decision {
	in := r.in
	over := r.over()
	past := in.Now.Sub(in.Allowance.Until)
	patience := managerTime
	if over.memory == 0 && !r.scarce() {
		patience = managerTimeCPU
	}
	switch {
	case r.farOff():
		return r.wait(model.DeadlineRuns, r.operands(over)...)
	case past < 0:
		return r.decommission()
	case past < patience:
		return r.wait(model.RMKillsFirst, r.operands(over)...)
	}
	return r.end(calm(), model.Reason{Code: model.DeadlineMissed, Operands: r.operands(over)})
}

// scarce reports whether the CPU limit slows the worker down.
func (r *round) scarce() bool {
	c := &r.in.CPU
	return r.recent(c.At, maxSampleAge) && c.Limit > 0 &&
		(c.Milli*1000 >= c.Limit*scarceUse || c.Throttled >= scarceThrottle)
}

// decommission gives the decommission signal to the next executor, unless the rest fits without those that have it.
func (r *round) decommission() Decision {
	told := func(c *Container) bool { return r.tried(c.ID) != nil }
	over := r.overWithout(told)
	if !over.any() {
		return r.wait(model.DeadlineRuns, r.operands(r.over())...)
	}
	for _, c := range r.order {
		if c.Known && !c.Master && !c.Ended && c.Decommissions && c.Processes > 0 && !told(c) && !r.refuses(c) {
			return Decision{Container: c.ID, Signal: Decommission, Reason: model.Reason{
				Code: model.ExecutorDecommissioned, Operands: r.operands(over),
			}}
		}
	}
	return r.wait(model.DeadlineRuns, r.operands(over)...)
}

// end ends the next container. Before that, it waits for the one before, and for a measurement.
func (r *round) end(w waits, why model.Reason) Decision {
	hard := why.Code == model.MemoryAtHardMark
	if d, busy := r.underway(w, why, hard); busy {
		return d
	}
	if !r.measured(r.s.Last.Add(w.settle), hard) {
		return r.wait(model.ShedSettles, why.Operands...)
	}
	c := r.next(hard)
	switch {
	case c == nil:
		return r.wait(model.NoneToShed, why.Operands...)
	case !hard && len(r.s.Ended) >= r.in.Settings.KillsPerMinute:
		return r.wait(model.KillBudgetSpent,
			model.Operand{Name: "ended", Value: int64(len(r.s.Ended)), Unit: model.UnitContainers},
			model.Operand{Name: "budget", Value: int64(r.in.Settings.KillsPerMinute), Unit: model.UnitContainers})
	}
	return Decision{Container: c.ID, Signal: Terminate, Reason: why}
}

// underway decides about the container that was told to end last and is still there.
func (r *round) underway(w waits, why model.Reason, hard bool) (d Decision, busy bool) {
	for _, c := range r.order {
		t := r.tried(c.ID)
		if t == nil || t.Terminated.IsZero() || !c.reached() || r.refuses(c) {
			continue
		}
		w := w
		if c.Remote {
			w.term, w.kill = w.term+detour, w.kill+detour
		}
		after := model.Operand{
			Name: "after", Value: int64(r.in.Now.Sub(t.Terminated) / time.Second), Unit: model.UnitSeconds,
		}
		switch {
		case !t.Killed.IsZero() && r.in.Now.Sub(t.Killed) < w.kill,
			t.Killed.IsZero() && (r.in.Now.Sub(t.Terminated) < w.term || !r.measured(r.s.Last, hard)):
			return r.wait(model.ShedSettles, why.Operands...), true
		case t.Killed.IsZero():
			return Decision{Container: c.ID, Signal: Kill, Reason: model.Reason{
				Code: model.TermIgnored, Operands: append([]model.Operand{after}, why.Operands...),
			}}, true
		}
	}
	return Decision{}, false
}

// measured reports whether what the next signal rests on was measured after a time.
func (r *round) measured(after time.Time, hard bool) bool {
	in := r.in
	switch {
	case r.s.Last.IsZero():
		return true
	case !in.Scanned.After(after), hard && !in.Memory.At.After(after):
		return false
	}
	// While the NodeManager is silent, processes alone say who is left.
	return hard || in.Listed.After(after) || !r.recent(in.Listed, maxListAge)
}

// next returns the container that leaves next; nil: none may.
func (r *round) next(hard bool) *Container {
	for _, c := range r.order {
		switch t := r.tried(c.ID); {
		case !c.reached(), r.refuses(c), t != nil && !t.Terminated.IsZero():
			continue // it cannot be told, or is stuck
		case hard:
			return c
		case !r.counts(c):
			continue // its end changes nothing
		case c.Master && (r.othersLeft() || r.in.Now.Sub(r.in.Allowance.Until) < managerTimeMaster):
			return nil
		}
		return c
	}
	return nil
}

// othersLeft reports whether a container is left that is no master.
func (r *round) othersLeft() bool {
	return slices.ContainsFunc(r.order, func(c *Container) bool { return !c.Master && r.counts(c) })
}

func (r *round) refuses(c *Container) bool { return r.recent(c.Refused, refused) }

func (r *round) tried(id string) *Tried {
	i, found := slices.BinarySearchFunc(r.s.Tried, id,
		func(t Tried, id string) int { return cmp.Compare(t.Container, id) })
	if !found {
		return nil
	}
	return &r.s.Tried[i]
}

// note keeps what is done now.
func (r *round) note(d *Decision) {
	if d.Signal == None {
		return
	}
	now := r.in.Now
	if r.tried(d.Container) == nil {
		r.s.Tried = append(r.s.Tried, Tried{Container: d.Container})
		slices.SortFunc(r.s.Tried, func(a, b Tried) int { return cmp.Compare(a.Container, b.Container) })
	}
	t := r.tried(d.Container)
	switch d.Signal {
	case Decommission:
		t.Decommissioned = now
		return
	case Terminate:
		t.Terminated = now
		r.s.Ended = append(r.s.Ended, now)
	case Kill:
		t.Killed = now
	}
	r.s.Last = now
}

func (r *round) wait(code model.Code, operands ...model.Operand) Decision {
	return Decision{Reason: model.Reason{Code: code, Operands: operands}}
}

func (r *round) atHardMark() model.Reason {
	m := &r.in.Memory
	return model.Reason{Code: model.MemoryAtHardMark, Operands: []model.Operand{
		{Name: "fixed", Value: m.fixed(), Unit: model.UnitBytes},
		{Name: "limit", Value: m.Limit, Unit: model.UnitBytes},
		{Name: "mark", Value: r.in.Settings.HardPercent, Unit: model.UnitPart},
	}}
}

// operands are those of an excess: what is over, what is allowed, and the time to the deadline, negative after it.
func (r *round) operands(over excess) []model.Operand {
	a := &r.in.Allowance
	var all []model.Operand
	if over.memory > 0 {
		all = append(all, model.Operand{Name: "over", Value: over.memory << 20, Unit: model.UnitBytes},
			model.Operand{Name: "allowed", Value: a.MemoryMiB << 20, Unit: model.UnitBytes})
	}
	if over.vcores > 0 {
		all = append(all, model.Operand{Name: "over", Value: over.vcores, Unit: model.UnitVCores},
			model.Operand{Name: "allowed", Value: a.VCores, Unit: model.UnitVCores})
	}
	left := a.Until.Sub(r.in.Now).Round(time.Second) / time.Second
	return append(all, model.Operand{Name: "left", Value: int64(left), Unit: model.UnitSeconds})
}

// ages are those of the readings, in seconds; -1: there was none.
func (r *round) ages() []model.Operand {
	age := func(name string, at time.Time) model.Operand {
		o := model.Operand{Name: name, Value: -1, Unit: model.UnitSeconds}
		if !at.IsZero() {
			o.Value = int64(r.in.Now.Sub(at) / time.Second)
		}
		return o
	}
	return []model.Operand{age("memory", r.in.Memory.At), age("processes", r.in.Scanned), age("list", r.in.Listed)}
}
