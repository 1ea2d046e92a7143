// Package suppress decides how much CPU batch may use now: what online pods leave under the waterline, less at once and
// more again little by little. Rules cpuset and quota carry it out, on batch pods only.
//
// Whether online pods have what they need is seen three ways. Each second all is measured, and package slack says what is
// left. Every 100 ms a glance at three counters shows a sudden rise. And where the kernel knows pressure, online pods that
// wait for a CPU, though no quota of their own stops them, hold batch where it is, or push it back.
//
// A rise is seen while batch fills the machine because online pods outweigh batch: what they need they get, from batch.
package suppress

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How batch is followed up and down. Parts are in thousandths of the capacity.
const (
	noise  = 25               // what is allowed is not changed by less
	sudden = 75               // a rise that is acted on between two measurements
	calm   = 3 * time.Second  // after batch was given less, until it is given more
	calmer = 30 * time.Second // likewise, the longest: it doubles each time that giving more proves wrong soon after
	pace   = time.Second      // between two times that it is given more
	growth = 100              // the most that it is given more at once, but never less than one CPU

	waiting = 150 // thousandths of the time that an online pod waits: batch is given less
	push    = 50  // by so much each second, of which half is given back each second that none waits
	pushed  = 250 // and by this in all at most: pods that wait for each other wait whatever batch does

	fade = time.Minute // between two times that spikes count for a sixteenth less

	hold = 100 // milli-cores above what a further CPU takes, until batch gets it
	none = -1
)

// State is what must be remembered from one round to the next. Times are on the clock of [model.Load].
type State struct {
	Known    bool
	Milli    int64         // that batch may use
	CPUs     int           // on so many; 0: on all
	Shrunk   time.Duration // when it last became less, or online pods last waited
	Looked   time.Duration // when it was last seen whether it could be more
	Least    int64         // of what could have been allowed since the later of the two; none: nobody looked yet
	Grown    time.Duration // when it last became more
	Calm     time.Duration // how long to wait after it became less
	Push     int64         // that is withheld because online pods wait
	Pushed   time.Duration // when that was last reckoned
	Parts    []model.BatchPart
	Reaction model.Reaction
	Spikes   spikes
}

// Decide says what batch may use of what the node has left: nil if it is not kept to anything, or nothing was measured yet.
//
// While nothing is measured any more, the account gives less and less with the age of what was measured, and so does this.
func Decide(n *model.Node, p *model.Policy, left *model.Slack, s State) (*model.Suppression, State) {
	a := &left.CPU
	if !p.Suppress.On() || p.Mode == model.ModeDisabled || n.Load == nil {
		return nil, State{}
	}
	now := n.Load.Clock
	if now < s.Shrunk || now < s.Looked || now < s.Pushed {
		s = State{Known: s.Known, Milli: s.Milli, CPUs: s.CPUs, Parts: s.Parts} // of another boot
	}
	if !a.Use.Measured && !s.Known {
		// An agent that has just started knows nothing. To stop batch for that would stop it at each start.
		return nil, s
	}
	f := follow{n: n, a: a, now: now, floor: a.Capacity * p.Suppress.MinBatch / 1000, state: s, why: model.Reason{Code: model.SlackUnknown}}
	if a.Use.Measured {
		f.press()
		f.state.Spikes.learn(n.Load)
		f.step()
	}
	by := p.Suppress.By
	if n.Tree.NoCpusets {
		by = model.SuppressByQuota
	}
	f.cpus(by)
	f.parts(left.Memory.Allow)
	f.observe()
	return &model.Suppression{
		Milli: f.state.Milli, CPUs: f.state.CPUs, Parts: f.state.Parts, Reason: f.why, Reaction: f.state.Reaction,
		Quotas: by != model.SuppressByCpuset || f.state.Milli < 1000, // less than one CPU cannot be said with CPUs
	}, f.state
}

// Mark returns what glances are compared with after a measurement and a decision; the zero value if no glance could change
// the decision.
func Mark(l *model.Load, p *model.Policy, a *model.Account, s *State) model.GlanceMark {
	if !s.Known || !p.Suppress.On() || !a.Use.Measured {
		return model.GlanceMark{}
	}
	least, below := a.Capacity*p.Suppress.MinBatch/1000, s.Milli-a.Capacity*noise/1000
	if least >= below {
		return model.GlanceMark{}
	}
	mark := markOf(l, s.Spikes.Height)
	mark.Most = a.Allow - s.Push - below
	return mark
}

// markOf returns the CPU use at the last measurement.
func markOf(l *model.Load, spike int64) model.GlanceMark {
	pods, best := &l.Classes[model.Guaranteed].CPU, &l.Classes[model.BestEffort].CPU
	return model.GlanceMark{
		At: pods.At, Pods: pods.Milli - best.Milli, Others: max(l.Node.CPU.Milli-pods.Milli, 0), Known: l.Node.CPU.At != 0,
		Noise: l.CPUMilli * sudden / 1000, Spike: spike,
	}
}

// follow is one round.
type follow struct {
	n      *model.Node
	a      *model.Account
	now    time.Duration
	floor  int64
	target int64
	state  State
	why    model.Reason
}

// press withholds from batch while online pods wait, and gives that back a little at a time.
func (f *follow) press() {
	s := &f.state
	if s.Pushed != 0 && f.now-s.Pushed < pace {
		return
	}
	s.Pushed = f.now
	step, most := f.a.Capacity*push/1000, f.a.Capacity*pushed/1000
	switch {
	case Waiting(f.n) < waiting || !Running(f.n.Pods, &f.n.Tree):
		s.Push = max(s.Push-step/2, 0)
	case s.Push < most:
		s.Push, s.Shrunk, s.Least = min(s.Push+step, most), f.now, none
	}
}

// step brings what is allowed nearer to what there is.
func (f *follow) step() {
	s, a := &f.state, f.a
	mark := markOf(f.n.Load, s.Spikes.Height)
	rise := mark.Rise(&f.n.Glance)
	if rise > 0 {
		s.Spikes.note(&f.n.Glance, mark.Pods+mark.Others, rise)
	}
	f.target = max(a.Allow-rise-s.Push, min(f.floor, a.Capacity))
	f.explain(rise)
	band := a.Capacity * noise / 1000
	if s.Least == none || f.target < s.Least {
		s.Least = f.target
	}
	switch {
	case !s.Known, !Running(f.n.Pods, &f.n.Tree):
		// Nobody has to wait for what nobody used.
		s.Known, s.Milli, s.Least = true, f.target, none
	case f.target < s.Milli-band, f.target < s.Milli && f.target == f.floor, f.target < s.Milli && f.target <= band:
		f.react()
		s.Calm = f.patience()
		s.Milli, s.Shrunk, s.Least = f.target, f.now, none
	case f.now-s.Shrunk < max(s.Calm, calm) || f.now-s.Looked < pace:
		if f.target > s.Milli+band {
			f.why.Code = model.BatchWaits
		}
	default:
		if s.Least > s.Milli+band {
			s.Milli, s.Grown = min(s.Least, s.Milli+max(a.Capacity*growth/1000, 1000)), f.now
		}
		if f.target > s.Milli+band {
			f.why.Code = model.BatchGrows
		}
		s.Looked, s.Least = f.now, none
	}
}

// patience returns how long to wait after batch is given less now. Where online load swings, batch stays at what is left at
// its height, instead of being moved with each swing.
func (f *follow) patience() time.Duration {
	s := &f.state
	was := max(s.Calm, calm)
	switch {
	case s.Grown <= s.Shrunk:
		return was // it goes on
	case f.now-s.Grown < was:
		return min(2*was, calmer)
	}
	return max(was/2, calm)
}

// explain says what the target was found from.
func (f *follow) explain(rise int64) {
	code := model.BatchAllowed
	switch {
	case f.target == f.floor && f.floor > 0:
		code = model.BatchMinimum
	case rise > 0:
		code = model.OnlineRose
	case f.state.Push > 0:
		code = model.OnlineWaits
	case f.a.Use.Age > 5*time.Second:
		code = model.SlackDoubted
	}
	operands := []model.Operand{{Name: "left", Value: f.a.Allow, Unit: model.UnitMilli}}
	for _, o := range []model.Operand{{Name: "rise", Value: rise, Unit: model.UnitMilli}, {Name: "withheld", Value: f.state.Push, Unit: model.UnitMilli}, {Name: "floor", Value: f.floor, Unit: model.UnitMilli}} {
		if o.Value > 0 {
			operands = append(operands, o)
		}
	}
	f.why = model.Reason{Code: code, Operands: operands}
}

// cpus says on how many CPUs batch may run. It is given one more only if that is some way below what it may use, or it would
// be moved about when what is left wavers.
func (f *follow) cpus(by model.SuppressMethod) {
	s := &f.state
	most := int(f.a.Capacity / 1000)
	if most == 0 || by == model.SuppressByQuota {
		s.CPUs = 0
		return
	}
	fit := func(milli int64) int {
		if by == model.SuppressByBoth {
			milli += 999
		}
		return min(max(int(milli/1000), 1), most)
	}
	switch n := fit(s.Milli); {
	case s.CPUs == 0, n < s.CPUs:
		s.CPUs = n
	default:
		s.CPUs = max(s.CPUs, fit(s.Milli-hold))
	}
}

// Waiting returns for how much of the time tasks of online pods waited for a CPU while no quota of the pod stopped it, in
// thousandths: that of the pod that waited most. It is 0 where the kernel does not tell.
func Waiting(n *model.Node) int64 {
	const old = 6 * time.Second // pods that are not followed closely are looked at every fifth second
	var most int64
	for i, next := 0, 0; i < len(n.Load.Pods); i++ {
		u := &n.Load.Pods[i]
		for next < len(n.Pods) && n.Pods[next].UID < u.UID {
			next++
		}
		if next == len(n.Pods) || n.Pods[next].UID != u.UID || !n.Pods[next].Class.Online() {
			continue
		}
		if u.Pressure.At != 0 && n.Load.Age(u.Pressure.At) <= old && u.CPU.Throttled == 0 {
			most = max(most, u.Pressure.CPU.Some)
		}
	}
	return most
}

// Running reports whether there is batch that runs, which is what can be kept to something.
func Running(pods []*model.Pod, tree *model.Tree) bool {
	return slices.ContainsFunc(pods, func(pod *model.Pod) bool { return kept(tree, pod) })
}

// Asleep reports whether batch uses less than a hundredth of the machine, so that there is nothing to take from it.
func Asleep(use *model.Use, capacity int64) bool { return use.Measured && 100*use.Batch < capacity }

// kept reports whether a pod is batch that runs.
func kept(tree *model.Tree, pod *model.Pod) bool {
	if pod.Class != model.ClassBE || pod.Ended {
		return false
	}
	_, exists := tree.Pods[pod.UID]
	return exists
}
