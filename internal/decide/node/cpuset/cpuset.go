// Package cpuset decides which CPUs each pod may run on: CPUs of its own for pods whose annotation asks for them, all that
// are nobody's alone for the others.
//
// There are four pools. Reserved CPUs, for the kubelet and the system, are nobody's own. Exclusive ones are each of one pod
// alone. Share ones are the home of one pod, where others may run too. What is not exclusive is shared: there run all pods
// that have no CPUs of their own.
//
// Who has CPUs keeps them: a pod that comes, goes, grows or shrinks never makes another with CPUs of its own move.
package cpuset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// again is when CPUs that a running pod gives up in this round may be given to another: once the kernel knows.
const again = time.Millisecond

// patient is how old a pod must be to be told that it cannot be known yet which CPUs it can have.
const patient = time.Minute

// Result is who has which CPUs. [Settle] says what that means for the cgroups.
type Result struct {
	CPUs       *model.CPUPlan // nil: nothing on this node asks for CPUs
	Conditions []model.Condition
	Notices    []model.Notice
	Next       time.Time // when to decide again though nothing changed; zero: never
}

// claim is a pod on its way through the rule.
type claim struct {
	pod     *model.Pod
	mode    model.CPUMode
	how     model.CPUPlacement
	wants   []want
	held    []Allocation // that it had before this round
	base    []Allocation // of its wants, in their order: what of that it keeps, perhaps too few CPUs or none
	why     model.Reason // why it gets nothing
	running bool         // processes of it may be there
	forced  bool         // it cannot keep what it has
	adopted bool         // what it has was read from its cgroups
	later   bool         // it waits for CPUs that are given up in this round
}

// round is one round of the rule.
type round struct {
	n         *model.Node
	p         *model.Policy
	m         *machine
	online    model.CPUSet
	pool      model.CPUSet // that pods may run on
	reserved  model.CPUSet
	free      model.CPUSet // that can still be given
	exclusive model.CPUSet // given
	freed     model.CPUSet // given up in this round, perhaps still used
	rest      int64        // CPU that nobody requested, in milli-cores
	unknown   bool         // what may be given is not known: nobody gets anything new
	state     State
	result    Result
}

// Decide gives every pod that asks for CPUs of its own some, as far as there are.
func Decide(n *model.Node, p *model.Policy, state State) (Result, State) {
	r := &round{n: n, p: p, state: State{Known: true, Allocations: make([]Allocation, 0, len(state.Allocations)+2), Moves: state.recent(n.Now)}}
	r.reportBad()
	if !state.Needed(n.Pods, p) {
		return r.result, State{Known: true}
	}
	if n.Tree.NoCpusets || n.Topology == nil {
		return r.nowhere(), state
	}
	r.survey()
	claims := r.claims(&state)
	waiting := r.keep(claims)
	r.give(waiting)
	r.breathe(claims)
	r.result.Conditions = slices.Grow(r.result.Conditions, len(claims))
	for _, c := range claims {
		r.conclude(c)
	}
	slices.SortFunc(r.state.Allocations, compareAllocation)
	r.remember(&state)
	if r.state.Needed(n.Pods, p) {
		r.plan()
	} else {
		r.state = State{Known: true}
	}
	slices.SortFunc(r.result.Conditions, func(a, b model.Condition) int { return strings.Compare(a.UID, b.UID) })
	return r.result, r.state
}

// nowhere tells the pods that ask for CPUs that this node cannot give any.
func (r *round) nowhere() Result {
	why := model.Reason{Code: model.CPUsUnknown, Fix: "see the agent's log: the topology of this machine could not be read"}
	if r.n.Tree.NoCpusets {
		why = model.Reason{Code: model.CPUsUnsupported, Fix: "enable the kernel's cpuset controller for the kubelet's cgroup"}
	}
	for _, pod := range r.n.Pods {
		if mode, _ := asked(pod, r.p); mode != model.CPUNone && !pod.Ended {
			r.report(pod, mode, why)
		}
	}
	return r.result
}

// reportBad tells the pods of whose annotation nothing can be made. The event about it comes from there.
func (r *round) reportBad() {
	for _, pod := range r.n.Pods {
		if bad := pod.Annotations.BadCPUs; bad.Code != "" && !pod.Ended {
			r.condition(pod, model.PodCondition{Reason: bad.Code, Message: bad.Details()})
		}
	}
}

// survey finds out which CPUs there are to give.
func (r *round) survey() {
	k := &r.n.Kubelet
	r.m = newMachine(r.n.Topology)
	r.online = available(r.n)
	r.pool = r.online
	r.unknown = !k.Known
	if k.StaticCPUs {
		r.pool = r.online.Minus(k.TakenCPUs)
		r.unknown = r.unknown || !k.PoolKnown
	}
	whole := int((k.ReservedMilli + 999) / 1000)
	switch {
	case !k.ReservedCPUs.Empty():
		r.reserved = k.ReservedCPUs.And(r.online)
	case k.StaticCPUs && !k.AllocatableCPUs.Empty():
		r.reserved = r.online.Minus(k.AllocatableCPUs)
	case whole >= r.online.Len():
		r.reserved = r.online
	case whole > 0:
		r.reserved, _ = r.m.take(r.online, model.CPUSet{}, whole, model.PlacePacked)
	}
	r.free = r.pool.Minus(r.reserved)
	r.rest = int64(r.free.Len()) * 1000
	if a := r.n.Allocatable.CPU; a > 0 {
		r.rest = min(r.rest, a)
	}
	r.rest -= promised(r.n.Pods)
}

// available returns the CPUs of a node on which pods may run at all.
func available(n *model.Node) model.CPUSet {
	all := n.Topology.Online()
	if allowed := all.And(n.Tree.CPUs); !allowed.Empty() {
		return allowed
	}
	return all
}

// claims lists the pods that ask for CPUs or have some, ordered by UID.
func (r *round) claims(state *State) []*claim {
	var all []*claim
	for _, p := range r.n.Pods {
		held := state.of(p.UID)
		mode, how := asked(p, r.p)
		if p.Ended || len(held) == 0 && mode == model.CPUNone {
			continue
		}
		c := &claim{pod: p, mode: mode, how: how, held: held, running: len(r.n.Tree.Pods[p.UID].Containers) > 0}
		if mode != model.CPUNone {
			c.wants, c.why = wants(p, mode, &r.n.Kubelet)
		}
		if !state.Known {
			c.held = adopt(r.n, c)
			c.adopted = len(c.held) > 0
		}
		all = append(all, c)
	}
	// A pod that the API no longer shows, or does not show yet, keeps its CPUs while there is a cgroup of it.
	for _, h := range state.Allocations {
		if _, exists := r.n.Tree.Pods[h.UID]; exists && model.FindPod(r.n.Pods, h.UID) == nil {
			r.hold(h)
			r.rest -= int64(h.CPUs.Len()) * 1000
		}
	}
	return all
}

// hold notes that somebody has CPUs.
func (r *round) hold(h Allocation) {
	r.state.Allocations = append(r.state.Allocations, h)
	r.free = r.free.Minus(h.CPUs)
	if h.Mode == model.CPUExclusive {
		r.exclusive = r.exclusive.Or(h.CPUs)
	}
}

// keep lets every pod keep what it has and still asks for, and returns those that need more, or something else.
func (r *round) keep(claims []*claim) []*claim {
	var waiting []*claim
	for _, c := range claims {
		c.base = make([]Allocation, len(c.wants))
		same, enough := len(c.held) == len(c.wants), true
		var kept model.CPUSet
		for i, w := range c.wants {
			h := Allocation{UID: c.pod.UID, Container: w.container, Mode: c.mode}
			if j := slices.IndexFunc(c.held, func(h Allocation) bool { return h.Container == w.container }); j >= 0 {
				h.CPUs = c.held[j].CPUs.And(r.free)
				c.forced = c.forced || h.CPUs != c.held[j].CPUs
				same = same && c.held[j].Mode == h.Mode
			}
			if h.CPUs.Len() > w.cpus {
				h.CPUs = r.m.shed(h.CPUs, w.cpus, c.how)
			}
			enough = enough && h.CPUs.Len() == w.cpus
			same = same && enough && !c.forced
			c.base[i] = h
			kept = kept.Or(h.CPUs)
			r.free = r.free.Minus(h.CPUs)
		}
		switch {
		case same && !c.adopted, r.unknown && len(c.wants) > 0 && enough:
			for _, h := range c.base {
				r.hold(h)
			}
		case c.running && !c.forced && !c.adopted && len(c.held) > 0 && !r.move():
			// It would be moved, but that must wait.
			c.base, c.why = slices.Clone(c.held), r.patience()
			for _, h := range c.base {
				r.hold(h)
			}
		default:
			if c.running {
				for _, h := range c.held {
					r.freed = r.freed.Or(h.CPUs.Minus(kept))
				}
			}
			r.free = r.free.Minus(r.freed)
			if len(c.wants) > 0 {
				waiting = append(waiting, c)
			}
		}
	}
	return waiting
}

// move takes one of the moves that are left and reports whether there was one.
func (r *round) move() bool {
	if len(r.state.Moves) >= maxMoves {
		return false
	}
	r.state.Moves = append(r.state.Moves, r.n.Now)
	return true
}

// patience says that a move must wait, and comes back when it need not any more.
func (r *round) patience() model.Reason {
	r.wake(r.state.Moves[0].Add(moveWindow))
	return model.Reason{Code: model.CPUsMoveLater, Operands: []model.Operand{{Name: "most", Value: maxMoves, Unit: model.UnitPods}}}
}

func (r *round) wake(at time.Time) {
	if r.result.Next.IsZero() || at.Before(r.result.Next) {
		r.result.Next = at
	}
}

// give gives CPUs to those who wait, oldest first. Who cannot be served is passed over: a younger one may ask for less.
func (r *round) give(waiting []*claim) {
	slices.SortStableFunc(waiting, func(a, b *claim) int {
		if a.adopted != b.adopted {
			if a.adopted {
				return -1
			}
			return 1
		}
		return cmp.Or(a.pod.Created.Compare(b.pod.Created), strings.Compare(a.pod.UID, b.pod.UID))
	})
	for _, c := range waiting {
		given, why := r.serve(c)
		if why.Code == "" && c.running && len(c.held) == 0 && !r.move() {
			why = r.patience()
		}
		if c.why = why; why.Code == "" {
			c.base = given
			for _, h := range given {
				r.hold(h)
			}
			continue
		}
		var lost model.CPUSet
		for _, h := range c.base {
			lost = lost.Or(h.CPUs)
		}
		c.base = nil
		if c.running {
			r.freed = r.freed.Or(lost)
		} else {
			r.free = r.free.Or(lost)
		}
		if (why.Code == model.CPUsTaken || why.Code == model.CPUsSplitCores) && !r.freed.Empty() && sum(c.wants) <= r.free.Len()+r.freed.Len() {
			c.later = true
			r.wake(r.n.Now.Add(again))
		}
	}
}

// serve chooses CPUs for a pod, or says why it gets none. It changes nothing.
func (r *round) serve(c *claim) ([]Allocation, model.Reason) {
	asked, most := sum(c.wants), r.pool.Minus(r.reserved).Len()
	count := func(name string, n int) model.Operand {
		return model.Operand{Name: name, Value: int64(n), Unit: model.UnitCPUs}
	}
	switch {
	case r.unknown:
		return nil, model.Reason{Code: model.CPUsUnknown, Fix: "the kubelet's configuration, or under its static policy its pool of CPUs, could not be read; see the agent's log"}
	case asked > most:
		return nil, model.Reason{Code: model.CPUsTooMany, Operands: []model.Operand{count("requested", asked), count("node", most)}, Fix: "ask for less, or choose a larger node"}
	}
	free, given := r.free, slices.Clone(c.base)
	for i, w := range c.wants {
		h := &given[i]
		more, ok := r.m.take(free, h.CPUs, w.cpus-h.CPUs.Len(), c.how)
		if !ok {
			code, fix := model.CPUsTaken, "it is tried again when CPUs come free"
			if free.Len() >= w.cpus-h.CPUs.Len() {
				code, fix = model.CPUsSplitCores, "ask for whole cores, or wait until some come free"
			}
			return nil, model.Reason{Code: code, Operands: []model.Operand{count("requested", asked), count("free", r.free.Len())}, Fix: fix}
		}
		h.CPUs = h.CPUs.Or(more)
		free = free.Minus(more)
	}
	if c.mode != model.CPUExclusive {
		return given, model.Reason{}
	}
	var alone model.CPUSet
	for _, h := range given {
		alone = alone.Or(h.CPUs)
	}
	// Exclusive CPUs serve exactly the request of the pod that has them, so they leave as much to the others as before. That
	// is only too little if more was promised than there is: by static pods, or because CPUs went offline.
	if r.rest < 0 || r.pool.Minus(r.exclusive).Minus(alone).Empty() {
		return nil, model.Reason{Code: model.CPUsPromised, Operands: []model.Operand{
			count("requested", asked), {Name: "short", Value: max(-r.rest, 0), Unit: model.UnitMilli},
		}, Fix: "the other pods' requests must fit the rest, and one CPU must be left; it is tried again when some go"}
	}
	return given, model.Reason{}
}

// breathe takes exclusive CPUs back, from the youngest pod first, should none be left for the others: CPUs went offline.
func (r *round) breathe(claims []*claim) {
	if !r.pool.Minus(r.exclusive).Empty() {
		return
	}
	byAge := slices.Clone(claims)
	slices.SortFunc(byAge, func(a, b *claim) int {
		return cmp.Or(b.pod.Created.Compare(a.pod.Created), strings.Compare(b.pod.UID, a.pod.UID))
	})
	for _, c := range byAge {
		if !r.pool.Minus(r.exclusive).Empty() {
			return
		}
		for _, h := range c.base {
			if h.Mode == model.CPUExclusive {
				r.exclusive = r.exclusive.Minus(h.CPUs)
				r.state.Allocations = slices.DeleteFunc(r.state.Allocations, func(o Allocation) bool { return o.UID == h.UID })
				c.why = model.Reason{Code: model.CPUsLost, Fix: "CPUs of this node went offline, and one must be left for the others"}
			}
		}
		if c.why.Code == model.CPUsLost {
			c.base = nil
		}
	}
}

// conclude tells a pod what it got.
func (r *round) conclude(c *claim) {
	if c.forced && len(c.held) > 0 {
		r.notice(c.pod, model.Reason{Code: model.CPUsLost, Key: "cpu-manager", Text: string(c.mode), Fix: "CPUs that it had went offline, or the kubelet gave them to another pod"})
	}
	switch {
	case c.mode == model.CPUNone:
	case c.later:
		r.wait(c.pod)
	case c.why.Code == model.CPUsUnknown && r.young(c.pod):
		r.wait(c.pod)
	case c.why.Code != "":
		r.report(c.pod, c.mode, c.why)
	default:
		r.grant(c)
	}
}

// young reports whether a pod need not be told yet that nothing is known: an agent that has just started asks the kubelet
// first. It comes back when it must be told.
func (r *round) young(p *model.Pod) bool {
	old := p.Created.Add(patient)
	if p.CPUCondition.Reason != "" {
		return true
	}
	if r.n.Now.Before(old) {
		r.wake(old)
		return true
	}
	return false
}

// remember keeps in mind which pods had CPUs of their own: the runtime may still have them on record for a container, and
// would write them again when it updates it.
func (r *round) remember(before *State) {
	uids := slices.Clone(before.Once)
	for _, h := range before.Allocations {
		uids = append(uids, h.UID)
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		_, exists := r.n.Tree.Pods[uid]
		if exists && len(r.state.of(uid)) == 0 {
			r.state.Once = append(r.state.Once, uid)
		}
	}
}
