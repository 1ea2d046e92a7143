// Package suppress decides how much CPU batch may use now. The rules cpuset and quota enforce it, on batch pods only.
//
// Two limits are computed. The first follows from arithmetic: the CPU that online pods leave under the waterline. It
// falls at once and rises slowly. Three signals show whether online pods have the CPU that they need. Each second,
// package slack computes what is left from the measurements. Every 100 ms, a glance at three counters shows sudden
// rises. And where the kernel reports pressure, online pods that wait for a CPU, without their own quota as the cause,
// stop the limit from rising or lower it. A rise is visible even while batch fills the machine. Online pods outweigh
// batch, so they take the CPU that they need from batch.
//
// The second follows from harm, as package harm measures it: the whole machine while no online pod is harmed, and never
// less than the first.
package suppress

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How the limit follows the CPU that is left. Fractions are in thousandths of the capacity.
const (
	noise  = 25               // smaller changes do not change the limit
	sudden = 75               // a rise of online usage that counts between two measurements
	calm   = 3 * time.Second  // the limit does not rise for this long after it fell
	calmer = 30 * time.Second // maximum of that time, which doubles each time the limit falls again soon after it rose
	pace   = time.Second      // between two raises of the limit
	growth = 100              // largest raise, but never less than one CPU

	waiting = 150 // fraction of time that an online pod waits, in thousandths, from which the limit is lowered
	push    = 50  // by this per second; half of it returns each second in which no pod waits
	pushed  = 250 // and by this in total, because pods that wait for each other wait regardless of batch

	fade = time.Minute // the height of spikes falls by a sixteenth in this time

	margin = 100 // batch gets a further CPU or core when its limit exceeds that by this, in milli-cores
	none   = -1
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Known    bool
	Milli    int64         // limit of batch
	CPUs     int           // number of CPUs for batch; 0: all
	Shrunk   time.Duration // when the limit fell or online pods waited last
	Looked   time.Duration // when a raise was last considered
	Least    int64         // lowest target since the later of the two; none: there was none yet
	Grown    time.Duration // when the limit rose last
	Calm     time.Duration // wait after a fall
	Push     int64         // amount withheld because online pods wait
	Pushed   time.Duration // when Push was computed last
	Bearing  bearing       `json:",omitzero"` // with suppression by harm
	Parts    []model.BatchPart
	Reaction model.Reaction
	Spikes   spikes
}

// Decide returns the limit of batch: nil if batch is not limited, or nothing was measured yet. Harm counts with
// suppression by harm only.
//
// When measurements stop, the account shrinks with the age of the last one, and the limit with it.
func Decide(
	n *model.Node, p *model.Policy, left *model.Slack, harm *model.Harm, s State,
) (*model.Suppression, State) {
	a := &left.CPU
	if !p.Suppress.On() || p.Mode == model.ModeDisabled || n.Load == nil {
		return nil, State{}
	}
	now := n.Load.Clock
	if now < s.Shrunk || now < s.Looked || now < s.Pushed {
		s = State{Known: s.Known, Milli: s.Milli, CPUs: s.CPUs, Parts: s.Parts} // from another boot
	}
	if !a.Use.Measured && !s.Known {
		// An agent that has just started has no measurement. Stopping batch then would stop it at each start of an
		// agent.
		return nil, s
	}
	f := follow{
		n: n, a: a, now: now, minBatch: a.Capacity * p.Suppress.MinBatch / 1000, harm: harm, state: s,
		why: model.Reason{Code: model.SlackUnknown},
	}
	if a.Use.Measured {
		f.press()
		f.state.Spikes.learn(n)
		f.step()
	}
	f.limit = f.state.Milli
	if p.Suppress.By == model.SuppressOnHarm && a.Use.Measured {
		f.bear()
	}
	by := method(n, p, a.Capacity)
	core := 1
	if p.Suppress.By == model.SuppressOnHarm && by == model.SuppressByCpuset {
		core = threads(n.Topology)
	}
	f.cpus(by, core)
	f.parts(left.Memory.Allow)
	f.observe()
	return &model.Suppression{
		Milli: f.limit, CPUs: f.state.CPUs, Cores: core > 1, Parts: f.state.Parts, Reason: f.why, Reaction: f.state.Reaction,
		// A limit of less than one CPU, or one core, cannot be expressed as a number of CPUs.
		Quotas: !f.free() && (by != model.SuppressByCpuset || f.limit < int64(core)*1000),
	}, f.state
}

// OnCPUs reports whether batch can be limited to fewer CPUs. Otherwise quotas limit it, whatever the policy says.
func OnCPUs(n *model.Node, p *model.Policy) bool {
	return p.Suppress.By != model.SuppressByQuota && !n.Tree.NoCpusets && n.Topology != nil
}

// fewCPUs is the size of a node, in milli-cores, below which suppression by harm sets quotas: one CPU less would be
// more than an eighth of the node.
const fewCPUs = 8000

// method returns how the limit is enforced. Quotas cannot keep the other threads of online pods' cores free.
func method(n *model.Node, p *model.Policy, capacity int64) model.SuppressMethod {
	switch {
	case !OnCPUs(n, p):
		return model.SuppressByQuota
	case p.Suppress.By != model.SuppressOnHarm:
		return p.Suppress.By
	case capacity < fewCPUs && threads(n.Topology) == 1:
		return model.SuppressByQuota
	}
	return model.SuppressByCpuset
}

// threads returns the most threads that a core has.
func threads(t *model.Topology) int {
	most, of := 1, map[int]int{}
	for i := range t.CPUs {
		of[t.CPUs[i].Core]++
		most = max(most, of[t.CPUs[i].Core])
	}
	return most
}

// Mark returns what glances are compared with after a measurement and a decision; the zero value if no glance could
// change the decision.
func Mark(n *model.Node, p *model.Policy, a *model.Account, s *State) model.GlanceMark {
	if !s.Known || !p.Suppress.On() || !a.Use.Measured || s.Bearing.Known && !s.Bearing.Blind {
		return model.GlanceMark{}
	}
	least, below := a.Capacity*p.Suppress.MinBatch/1000, s.Milli-a.Capacity*noise/1000
	if least >= below {
		return model.GlanceMark{}
	}
	mark := markOf(n, s.Spikes.Height)
	mark.Most = a.Allow - s.Push - below
	return mark
}

// markOf returns the CPU use at the last measurement.
func markOf(n *model.Node, spike int64) model.GlanceMark {
	l := n.Load
	pods, batch := &l.Classes[model.Guaranteed].CPU, l.Classes[model.BestEffort].CPU.Milli
	beside(n, func(pod *model.Pod) {
		if u := l.Pod(pod.UID); u != nil {
			batch += u.CPU.Milli
		}
	})
	return model.GlanceMark{
		At: pods.At, Pods: pods.Milli - batch, Others: max(l.Node.CPU.Milli-pods.Milli, 0), Known: l.Node.CPU.At != 0,
		Noise: l.CPUMilli * sudden / 1000, Spike: spike,
	}
}

// mostBeside is how many batch pods outside of class BestEffort glances tell from online pods. Each costs one read
// every 100 ms. A node has few: pods that were created without the webhook, or with a sidecar that requests CPU.
const mostBeside = 16

// Beside returns the cgroups of the running batch pods outside of class BestEffort. Without them, a rise of their use
// would look like one of online pods.
func Beside(n *model.Node) []string {
	var dirs []string
	beside(n, func(pod *model.Pod) { dirs = append(dirs, n.Tree.Pods[pod.UID].Dir) })
	return dirs
}

func beside(n *model.Node, each func(*model.Pod)) {
	found := 0
	for _, pod := range n.Pods {
		if pod.QoS != model.BestEffort && found < mostBeside && isRunning(&n.Tree, pod) {
			found++
			each(pod)
		}
	}
}

// follow is the working data of one round.
type follow struct {
	n        *model.Node
	a        *model.Account
	now      time.Duration
	minBatch int64
	harm     *model.Harm // nil: it is not searched
	target   int64
	limit    int64 // of batch
	state    State
	why      model.Reason
}

// press updates the amount withheld because online pods wait for CPUs.
func (f *follow) press() {
	s := &f.state
	if s.Pushed != 0 && f.now-s.Pushed < pace {
		return
	}
	s.Pushed = f.now
	step, most := f.a.Capacity*push/1000, f.a.Capacity*pushed/1000
	switch {
	case !f.pressed() || !Running(f.n.Pods, &f.n.Tree):
		s.Push = max(s.Push-step/2, 0)
	case s.Push < most:
		s.Push, s.Shrunk, s.Least = min(s.Push+step, most), f.now, none
	}
}

// pressed reports whether online pods wait although batch uses no more than the limit.
func (f *follow) pressed() bool {
	if b := &f.state.Bearing; b.Known && f.harm != nil && f.harm.Known {
		return f.harm.Milli > 0 && !f.harm.Deep && b.Limit <= f.state.Milli
	}
	return Waiting(f.n) >= waiting
}

// step moves the limit towards its target.
func (f *follow) step() {
	s, a := &f.state, f.a
	mark := markOf(f.n, s.Spikes.Height)
	rise := mark.Rise(&f.n.Glance)
	if rise > 0 {
		s.Spikes.note(&f.n.Glance, mark.Pods+mark.Others, rise)
	}
	f.target = max(a.Allow-rise-s.Push, min(f.minBatch, a.Capacity))
	f.explain(rise)
	band := a.Capacity * noise / 1000
	if s.Least == none || f.target < s.Least {
		s.Least = f.target
	}
	switch {
	case !s.Known, !Running(f.n.Pods, &f.n.Tree):
		// No batch pod runs, so no online pod is affected.
		s.Known, s.Milli, s.Least, s.Looked = true, f.target, none, f.now
	case f.target < s.Milli-band, f.target < s.Milli && (f.target == f.minBatch || f.target <= band):
		if !f.state.Bearing.Known {
			f.react(s.Milli, f.target)
		}
		s.Calm = f.patience()
		s.Milli, s.Shrunk, s.Least = f.target, f.now, none
	case f.now-s.Shrunk < max(s.Calm, calm) || f.now-s.Looked < pace:
		if f.target > s.Milli+band {
			f.why.Code = model.BatchSettling
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

// patience returns the wait after the limit falls now. If the online load swings, batch stays at the limit of the
// highest load instead of following each swing.
func (f *follow) patience() time.Duration {
	s := &f.state
	was := max(s.Calm, calm)
	switch {
	case s.Grown <= s.Shrunk:
		return was // the limit has not risen since the last fall
	case f.now-s.Grown < was:
		return min(2*was, calmer)
	}
	return max(was/2, calm)
}

// explain sets the reason for the target.
func (f *follow) explain(rise int64) {
	code := model.BatchAllowed
	switch {
	case f.target == f.minBatch && f.minBatch > 0:
		code = model.BatchMinimum
	case rise > 0:
		code = model.OnlineRose
	case f.state.Push > 0:
		code = model.OnlineWaits
	case f.a.Use.Age > 5*time.Second:
		code = model.SlackStale
	}
	operands := []model.Operand{{Name: "left", Value: f.a.Allow, Unit: model.UnitMilli}}
	for _, o := range []model.Operand{
		{Name: "rise", Value: rise, Unit: model.UnitMilli},
		{Name: "withheld", Value: f.state.Push, Unit: model.UnitMilli},
		{Name: "minBatch", Value: f.minBatch, Unit: model.UnitMilli},
	} {
		if o.Value > 0 {
			operands = append(operands, o)
		}
	}
	f.why = model.Reason{Code: code, Operands: operands}
}

// cpus sets the number of CPUs for batch, a multiple of the threads of a core: no thread of an online pod runs beside
// one of batch on the cores that batch leaves. Batch gets a further core only if its limit exceeds that core by some
// margin. Otherwise it would move between CPUs whenever the limit fluctuates.
func (f *follow) cpus(by model.SuppressMethod, core int) {
	s := &f.state
	most := int(f.a.Capacity / 1000)
	if most == 0 || by == model.SuppressByQuota || f.free() {
		s.CPUs = 0
		return
	}
	fit := func(milli int64) int {
		if by == model.SuppressByBoth {
			milli += 999
		}
		return min(max(int(milli/1000)/core*core, core), most)
	}
	switch n := fit(f.limit); {
	case s.CPUs == 0, n < s.CPUs:
		s.CPUs = n
	default:
		s.CPUs = max(s.CPUs/core*core, fit(f.limit-margin)) // the policy may have counted single CPUs before
	}
}

// Waiting returns the fraction of time that tasks of online pods waited for a CPU, in thousandths: that of the pod
// that waited most. Pods throttled by their own quota do not count. It is 0 if the kernel does not report pressure.
func Waiting(n *model.Node) int64 {
	const old = 6 * time.Second // pods without detailed measurement are measured every fifth second
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

// Running reports whether there are running batch pods, which a limit can affect.
func Running(pods []*model.Pod, tree *model.Tree) bool {
	return slices.ContainsFunc(pods, func(pod *model.Pod) bool { return isRunning(tree, pod) })
}

// Asleep reports whether batch uses less than a hundredth of the machine, so that a lower limit would free nothing.
func Asleep(use *model.Use, capacity int64) bool { return use.Measured && 100*use.Batch < capacity }

// isRunning reports whether the pod is a running batch pod.
func isRunning(tree *model.Tree, pod *model.Pod) bool {
	if pod.Class != model.ClassBE || pod.Ended {
		return false
	}
	_, exists := tree.Pods[pod.UID]
	return exists
}
