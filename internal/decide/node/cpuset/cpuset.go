// Package cpuset decides on which CPUs each pod may run: its own CPUs for a pod that requests them, all CPUs that are
// not exclusive for the others.
//
// There are four pools. Reserved CPUs, for the kubelet and the system, are never assigned to a pod. Exclusive CPUs
// belong to one pod alone. Share CPUs are the home of one pod, where other pods may run too. All CPUs that are not
// exclusive are shared: pods without their own CPUs run there.
//
// Assignments are stable: a pod that starts, ends, grows or shrinks never moves another pod with its own CPUs.
package cpuset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// retryDelay is the delay until CPUs that a running pod gives up in this round may be assigned to another pod: the
// kernel must have the new lists first.
const retryDelay = time.Millisecond

// noticeDelay is the age from which a pod is informed that the available CPUs are not known yet.
const noticeDelay = time.Minute

// Result is the assignment of CPUs. [Settle] turns it into cgroup settings.
type Result struct {
	CPUs       *model.CPUPlan // nil: no pod on this node requests CPUs
	Room       *model.CPURoom // for further pods that request CPUs; nil: not known, or the policy allows none
	Conditions []model.Condition
	Notices    []model.Notice
	Next       time.Time // when to decide again if nothing changes; zero: never
}

// claim is the intermediate result for one pod.
type claim struct {
	pod     *model.Pod
	mode    model.CPUMode
	how     model.CPUPlacement
	wants   []want
	had     []Allocation // its assignment before this round
	base    []Allocation // one per entry of wants: the part of it that the pod keeps, possibly too few CPUs or none
	why     model.Reason // why it gets no CPUs
	running bool         // it may have running processes
	forced  bool         // it cannot keep its CPUs
	adopted bool         // its assignment was read from its cgroups
	later   bool         // it waits for CPUs given up in this round
}

// round is the working data of one round.
type round struct {
	n         *model.Node
	p         *model.Policy
	m         *machine
	online    model.CPUSet
	pool      model.CPUSet // CPUs that can be in a list: those that pods may use, without isolated and pinned ones
	isolated  model.CPUSet // left out of the pool, by policy
	pinned    []model.OwnCPUs
	reserved  model.CPUSet
	notBatch  model.CPUSet // CPUs to keep batch off
	free      model.CPUSet // CPUs that can still be assigned
	exclusive model.CPUSet // assigned exclusively
	freed     model.CPUSet // given up in this round, possibly still in use
	rest      int64        // CPU without a request, in milli-cores
	unknown   bool         // the available CPUs are not known: nothing new is assigned
	state     State
	result    Result
}

// Decide assigns CPUs to each pod that requests its own, as far as there are enough.
func Decide(n *model.Node, p *model.Policy, state State) (Result, State) {
	r := &round{n: n, p: p, state: State{
		Known: true, Allocations: make([]Allocation, 0, len(state.Allocations)+2), Moves: state.recent(n.Now),
	}}
	r.reportBad()
	r.pinned = pinned(n, p, &state)
	r.reportPinned()
	if !state.Needed(n.Pods, p) {
		r.result.Room = r.idle()
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
	r.result.Room = r.room()
	r.result.Conditions = slices.Grow(r.result.Conditions, len(claims))
	for _, c := range claims {
		r.conclude(c)
	}
	slices.SortFunc(r.state.Allocations, compareAllocation)
	r.remember(&state)
	if r.state.Needed(n.Pods, p) {
		r.plan()
		r.state.Shared = r.result.CPUs.Shared
	} else {
		r.state = State{Known: true}
	}
	slices.SortFunc(r.result.Conditions, func(a, b model.Condition) int { return strings.Compare(a.UID, b.UID) })
	return r.result, r.state
}

// nowhere informs the pods that request CPUs that this node cannot assign any.
func (r *round) nowhere() Result {
	why := model.Reason{
		Code: model.CPUsUnknown, Fix: "see the agent's log: the topology of this machine could not be read",
	}
	if r.n.Tree.NoCpusets {
		why = model.Reason{
			Code: model.CPUsUnsupported, Fix: "enable the kernel's cpuset controller for the kubelet's cgroup",
		}
	}
	for _, pod := range r.n.Pods {
		if mode, _ := requested(pod, r.p); mode != model.CPUNone && !pod.Ended {
			r.report(pod, mode, why)
		}
	}
	return r.result
}

// reportBad sets the conditions of pods with invalid annotations. The events come from the annotation notices.
func (r *round) reportBad() {
	for _, pod := range r.n.Pods {
		if bad := pod.Annotations.BadCPUs; bad.Code != "" && !pod.Ended {
			r.condition(pod, model.PodCondition{Reason: bad.Code, Message: bad.Details()})
		}
	}
}

// survey determines the CPUs that can be assigned.
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
	var pinned model.CPUSet
	for i := range r.pinned {
		pinned = pinned.Or(r.pinned[i].CPUs.And(r.pool))
	}
	if rest := r.pool.Minus(pinned); !rest.Empty() {
		r.pool = rest
	}
	if rest := r.pool.Minus(r.n.Isolated); !r.p.UseIsolated && !rest.Empty() {
		r.isolated, r.pool = r.pool.And(r.n.Isolated), rest
	}
	common := r.online.Minus(r.isolated) // where the kubelet and the system run
	whole := int((k.ReservedMilli + 999) / 1000)
	switch {
	case !k.ReservedCPUs.Empty():
		r.reserved = k.ReservedCPUs.And(r.online)
	case k.StaticCPUs && !k.AllocatableCPUs.Empty():
		r.reserved = r.online.Minus(k.AllocatableCPUs)
	case whole >= common.Len():
		r.reserved = common
	case whole > 0:
		r.reserved, _ = r.m.take(common, model.CPUSet{}, whole, model.PlacePacked)
	}
	r.notBatch = r.n.Isolated.And(r.online)
	if !k.ReservedCPUs.Empty() || k.StaticCPUs && !k.AllocatableCPUs.Empty() {
		// The kubelet's amount of reserved CPU, without numbers, is taken from all CPUs.
		r.notBatch = r.notBatch.Or(r.reserved)
	}
	r.free = r.pool.Minus(r.reserved).Minus(pinned)
	// Requests of containers with pinned CPUs, or with CPUs from the kubelet, are in the sum of requests.
	r.rest = int64(r.free.Len()+pinned.Len())*1000 + served(r.n.Pods, k)
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

// claims lists the pods that request CPUs or have some, ordered by UID.
func (r *round) claims(state *State) []*claim {
	var all []*claim
	for _, p := range r.n.Pods {
		had := state.of(p.UID)
		mode, how := requested(p, r.p)
		if p.Ended || len(had) == 0 && mode == model.CPUNone {
			continue
		}
		c := &claim{pod: p, mode: mode, how: how, had: had, running: len(r.n.Tree.Pods[p.UID].Containers) > 0}
		if mode != model.CPUNone {
			c.wants, c.why = wants(p, mode, &r.n.Kubelet)
		}
		if !state.Known {
			c.had = adopt(r.n, c)
			c.adopted = len(c.had) > 0
		}
		all = append(all, c)
	}
	// A pod that is not in the API, any more or yet, keeps its CPUs while its cgroup exists.
	for _, h := range state.Allocations {
		if _, exists := r.n.Tree.Pods[h.UID]; exists && model.FindPod(r.n.Pods, h.UID) == nil {
			r.assign(h)
			r.rest -= int64(h.CPUs.Len()) * 1000
		}
	}
	return all
}

// assign records an assignment.
func (r *round) assign(h Allocation) {
	r.state.Allocations = append(r.state.Allocations, h)
	r.free = r.free.Minus(h.CPUs)
	if h.Mode == model.CPUExclusive {
		r.exclusive = r.exclusive.Or(h.CPUs)
	}
}

// keep lets each pod keep the CPUs that it has and still requests. It returns the pods that need more or other CPUs.
func (r *round) keep(claims []*claim) []*claim {
	var waiting []*claim
	for _, c := range claims {
		c.base = make([]Allocation, len(c.wants))
		same, enough := len(c.had) == len(c.wants), true
		var kept model.CPUSet
		for i, w := range c.wants {
			h := Allocation{UID: c.pod.UID, Container: w.container, Mode: c.mode}
			if j := slices.IndexFunc(c.had, func(h Allocation) bool { return h.Container == w.container }); j >= 0 {
				h.CPUs = c.had[j].CPUs.And(r.free)
				c.forced = c.forced || h.CPUs != c.had[j].CPUs
				same = same && c.had[j].Mode == h.Mode
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
				r.assign(h)
			}
		case c.running && !c.forced && !c.adopted && len(c.had) > 0 && !r.move():
			// The pod would move, but the limit on moves defers it.
			c.base, c.why = slices.Clone(c.had), r.patience()
			for _, h := range c.base {
				r.assign(h)
			}
		default:
			if c.running {
				for _, h := range c.had {
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

// move uses up one of the remaining moves and reports whether there was one.
func (r *round) move() bool {
	if len(r.state.Moves) >= maxMoves {
		return false
	}
	r.state.Moves = append(r.state.Moves, r.n.Now)
	return true
}

// patience returns the reason for a deferred move, and schedules a round for when the move is possible.
func (r *round) patience() model.Reason {
	r.wake(r.state.Moves[0].Add(moveWindow))
	most := model.Operand{Name: "most", Value: maxMoves, Unit: model.UnitPods}
	return model.Reason{Code: model.CPUsMoveLater, Operands: []model.Operand{most}}
}

func (r *round) wake(at time.Time) {
	if r.result.Next.IsZero() || at.Before(r.result.Next) {
		r.result.Next = at
	}
}

// give assigns CPUs to waiting pods, oldest first. It skips a pod that cannot be served: a younger one may request
// fewer CPUs.
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
		if r.vacating(c) {
			c.base, c.later = nil, true
			r.wake(r.n.Now.Add(retryDelay))
			continue
		}
		given, why, missed := r.serve(c)
		if why.Code == "" && c.running && len(c.had) == 0 && !r.move() {
			why = r.patience()
		}
		if c.why = why; why.Code == "" {
			if c.base = given; missed.Code != "" {
				r.notice(c.pod, missed)
			}
			for _, h := range given {
				r.assign(h)
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
		scarce := why.Code == model.CPUsTaken || why.Code == model.CPUsSplitCores
		if scarce && !r.freed.Empty() && sum(c.wants) <= r.free.Len()+r.freed.Len() {
			c.later = true
			r.wake(r.n.Now.Add(retryDelay))
		}
	}
}

// serve chooses CPUs for a pod, or returns why it gets none. If it chooses others than the pod's hint names, it returns
// why in missed. It changes nothing.
func (r *round) serve(c *claim) (given []Allocation, why, missed model.Reason) {
	number, most := sum(c.wants), r.pool.Minus(r.reserved).Len()
	count := func(name string, n int) model.Operand {
		return model.Operand{Name: name, Value: int64(n), Unit: model.UnitCPUs}
	}
	switch {
	case r.unknown:
		return nil, model.Reason{
			Code: model.CPUsUnknown,
			Fix: "the kubelet's configuration, or under its static policy its pool of CPUs, could not be read; " +
				"see the agent's log",
		}, missed
	case number > most:
		return nil, model.Reason{
			Code:     model.CPUsTooMany,
			Operands: []model.Operand{count("requested", number), count("node", most)},
			Fix:      r.fixTooMany(),
		}, missed
	}
	if given, missed = r.hinted(c); given == nil {
		if given, why = r.choose(c); why.Code != "" {
			return nil, why, missed
		}
	}
	if c.mode != model.CPUExclusive {
		return given, why, missed
	}
	var alone model.CPUSet
	for _, h := range given {
		alone = alone.Or(h.CPUs)
	}
	// Exclusive CPUs replace exactly the request of their pod, so the other pods have as much CPU per request as
	// before. That is too little only if requests exceed the available CPUs: because of static pods, or because CPUs
	// went offline.
	if r.rest < 0 || r.pool.Minus(r.exclusive).Minus(alone).Empty() {
		return nil, model.Reason{Code: model.CPUsPromised, Operands: []model.Operand{
			count("requested", number), {Name: "short", Value: max(-r.rest, 0), Unit: model.UnitMilli},
		}, Fix: "the requests of the other pods must fit the remaining CPUs, and one CPU must remain; " +
			"retried when pods leave"}, missed
	}
	return given, why, missed
}

// fixTooMany says what to do about a pod that requests more CPUs than the node has.
func (r *round) fixTooMany() string {
	const fix = "request fewer CPUs, or choose a larger node"
	if r.isolated.Empty() {
		return fix
	}
	return fix + ", or let pods have the isolated CPUs " + shortList(r.isolated) + " with isolatedCPUs: Used in the policy"
}

// choose chooses the best of the free CPUs for a pod, or returns why there are too few. It changes nothing.
func (r *round) choose(c *claim) ([]Allocation, model.Reason) {
	given, lack := r.fill(c, r.free)
	if lack == "" {
		return given, model.Reason{}
	}
	fix := "retried when CPUs become free"
	if lack == model.CPUsSplitCores {
		fix = "request whole cores, or wait until some are free"
	}
	return nil, model.Reason{Code: lack, Fix: fix, Operands: []model.Operand{
		{Name: "requested", Value: int64(sum(c.wants)), Unit: model.UnitCPUs},
		{Name: "free", Value: int64(r.free.Len()), Unit: model.UnitCPUs},
	}}
}

// fill chooses CPUs for each container of a pod from free, beyond those that it keeps. It returns what is lacking:
// CPUs, whole cores, or nothing (""). It changes nothing.
func (r *round) fill(c *claim, free model.CPUSet) (given []Allocation, lack model.Code) {
	given = slices.Clone(c.base)
	for i, w := range c.wants {
		h := &given[i]
		more, ok := r.m.take(free, h.CPUs, w.cpus-h.CPUs.Len(), c.how)
		switch {
		case !ok && free.Len() >= w.cpus-h.CPUs.Len():
			return nil, model.CPUsSplitCores
		case !ok:
			return nil, model.CPUsTaken
		}
		h.CPUs = h.CPUs.Or(more)
		free = free.Minus(more)
	}
	return given, ""
}
