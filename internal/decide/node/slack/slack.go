// Package slack decides how much CPU and memory of a node batch may use now, the allowance, and how much may be sold, the
// offer, in two tiers: mid, which is expected to be there for a day, and batch, for an hour.
//
// There is one account for each resource, and everything stands in it once:
//
//	System + Prod + Mid + Batch + Pools <= Ceiling
//
// System is the highest of what is used and what is reserved, Prod what online pods are counted with, Mid and Batch what is
// offered, Pools what worker pools hold beyond their pods' requests. Whatever is in doubt counts as online: a cgroup that no
// pod is known for, a pod that was not measured yet, a measurement that is old.
package slack

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Data this old is as good as new; at the end of distrust it is worth nothing, and what it shows is worth less and less in
// between.
const (
	fresh    = 5 * time.Second
	distrust = time.Minute
	pace     = time.Second // between two rounds of doubt
)

// Peaks are the most that online pods are expected to use within each horizon, by the predictor.
type Peaks struct {
	CPU    [model.Horizons]model.Peak // in milli-cores
	Memory [model.Horizons]model.Peak // in bytes
}

// resource is what one account is made from.
type resource struct {
	unit        model.Unit
	sell        model.SellPolicy
	machine     int64 // capacity, as measured
	node        int64 // capacity, by the Node object
	allocatable int64
	reserved    int64 // by the kubelet's settings
	settings    bool  // these are known
	kept        int64
	use         model.Use
	peaks       [model.Horizons]model.Peak
	bound       model.TierAmounts
	pools       int64
	step        int64 // the least step of an offer
	firm        bool  // what is not there cannot be used: more than that is never sold
}

// Decide decides about a node that was measured: nil if it was not. Pools is what worker pools hold beyond what their pods
// requested; s is what the round before returned. At next, if it is not zero, deciding again gives less though nothing
// changed but the time; to give more takes a new measurement.
func Decide(n *model.Node, p *model.Policy, cpu, memory model.Use, peaks Peaks, pools model.Amount, s State) (result *model.Slack, state State, next time.Time) {
	if n.Load == nil {
		return nil, s, time.Time{}
	}
	now := round{clock: n.Load.Clock}
	if now.clock < s.Clock {
		s = State{} // of another boot
	}
	now.watched = now.clock-s.Clock <= fresh
	s.Clock = now.clock

	boundCPU, boundMemory := bound(n.Pods)
	reservedMilli := n.Kubelet.ReservedMilli
	if !n.Kubelet.ReservedCPUs.Empty() {
		reservedMilli = int64(n.Kubelet.ReservedCPUs.Len()) * 1000
	}
	r := resource{
		unit: model.UnitMilli, sell: p.CPU, machine: n.Load.CPUMilli, node: n.Capacity.CPU, allocatable: n.Allocatable.CPU,
		reserved: reservedMilli, settings: n.Kubelet.Known, use: cpu, peaks: peaks.CPU, bound: boundCPU, pools: pools.CPU, step: 100,
	}
	m := resource{
		unit: model.UnitBytes, sell: p.Memory, machine: n.Load.Memory, node: n.Capacity.Memory, allocatable: n.Allocatable.Memory,
		reserved: n.Kubelet.ReservedMemory, settings: n.Kubelet.Known, kept: n.Load.Watermark, use: memory, peaks: peaks.Memory,
		bound: boundMemory, pools: pools.Memory, step: 1, firm: true,
	}
	if p.Mode == model.ModeDisabled {
		r.sell.Method, m.sell.Method = "", ""
	}
	result = &model.Slack{}
	result.CPU, s.CPU = r.decide(s.CPU, now)
	result.Memory, s.Memory = m.decide(s.Memory, now)

	wait := r.wait(&result.CPU, s.CPU, now)
	if w := m.wait(&result.Memory, s.Memory, now); wait == 0 || w > 0 && w < wait {
		wait = w
	}
	if wait > 0 {
		next = n.Now.Add(wait)
	}
	return result, s, next
}

// bound returns what pods that are bound to the node requested of what is sold.
func bound(pods []*model.Pod) (cpu, memory model.TierAmounts) {
	for _, pod := range pods {
		if pod.Ended {
			continue
		}
		cpu.Mid, cpu.Batch = plus(cpu.Mid, pod.Mid.CPU), plus(cpu.Batch, pod.Batch.CPU)
		memory.Mid, memory.Batch = plus(memory.Mid, pod.Mid.Memory), plus(memory.Batch, pod.Batch.Memory)
	}
	return cpu, memory
}

// decide makes the account of one resource.
func (r *resource) decide(l Ledger, now round) (model.Account, Ledger) {
	a := r.account()
	if a.Use.Measured {
		l.Measured = now.clock - a.Use.Age
	}
	if r.sell.Method == "" {
		a.Reason = r.reason(&a, l, now)
		return a, Ledger{Measured: l.Measured}
	}
	steps := r.steps(a.Capacity)
	steps.round, steps.fresh = now, a.Use.Age <= fresh
	room := a.Room
	if !a.Use.Measured && now.clock-l.Measured < distrust {
		// The agent has just started, and measures in a moment. What it offered before it stopped is still on the Node;
		// to withdraw it for that moment would have it grow again for minutes.
		room = model.TierAmounts{Mid: amount(l.Mid.Offer), Batch: amount(l.Batch.Offer)}
	}
	l.Mid, l.Batch = l.Mid.follow(room.Mid, steps), l.Batch.follow(room.Batch, steps)
	a.Offer = model.TierAmounts{Mid: l.Mid.Offer, Batch: l.Batch.Offer}
	a.Reason = r.reason(&a, l, now)
	return a, l
}

// account fills in everything but the offer.
func (r *resource) account() model.Account {
	a := model.Account{Kept: amount(r.kept), Use: r.use, Peaks: r.peaks, Pools: amount(r.pools)}
	a.Bound = model.TierAmounts{Mid: amount(r.bound.Mid), Batch: amount(r.bound.Batch)}
	u := &a.Use
	u.Age = max(u.Age, 0)
	for _, v := range []*int64{&u.System, &u.Stolen, &u.Online, &u.Unmeasured, &u.Whole, &u.Batch} {
		*v = amount(*v)
	}
	a.Capacity = amount(r.machine)
	if r.node > 0 {
		// Somebody may have edited the Node, or have it amplified for the scheduler's sake. That adds no CPU to the machine.
		a.Capacity = min(a.Capacity, amount(r.node))
	}
	a.Reserved = r.reservation()
	a.Ceiling = part(a.Capacity, min(r.sell.Waterline, 1000), 1000)

	online := plus(u.Online, u.Unmeasured)
	for h := range a.Prod {
		a.Peaks[h].Value = amount(a.Peaks[h].Value)
		a.Prod[h] = plus(max(online, a.Peaks[h].Value), u.Whole)
	}
	if !u.Measured {
		return a
	}
	free := less(a.Ceiling, max(u.System, a.Reserved), a.Kept)
	now := less(free, online, u.Whole)
	a.Allow = trusted(now, u.Age)

	// All that could be sold, in both tiers; and what of it is there for a day.
	all := less(free, a.Prod[model.Hour], a.Pools)
	switch r.sell.Method {
	case model.SellRealtime:
		all = less(now, a.Pools)
	case model.SellStatic:
		all = less(part(a.Capacity, r.sell.Ratio, 1000), a.Pools)
		if r.firm {
			all = min(all, less(now, a.Pools))
		}
	}
	var lasting int64
	if a.Peaks[model.Day].Known || r.sell.Method == model.SellPredicted || r.sell.Method == "" {
		lasting = min(less(free, a.Prod[model.Day], a.Pools), all)
	}

	// What batch pods were promised already is not sold again as mid; but batch keeps off what is meant for mid, so that
	// as they end it becomes free for it.
	meant := part(a.Ceiling, min(r.sell.Mid, 1000), 1000)
	mid := min(meant, lasting)
	if !r.static() {
		meant = mid // of a fixed part, what is not there for mid does not become batch
	}
	a.Room.Mid = trusted(min(mid, less(all, a.Bound.Batch)), u.Age)
	a.Room.Batch = trusted(less(all, max(meant, a.Bound.Mid)), u.Age)
	return a
}

// reservation returns what is reserved for the system: by the kubelet's settings, and as what is allocatable shows, which has
// in it what the kubelet keeps for evictions. If somebody amplifies what is allocatable, that shows nothing any more, and
// the settings remain. If somebody edits the capacity down, it shows too little; where the settings are not known either,
// the machine's own capacity counts.
func (r *resource) reservation() int64 {
	reserved := amount(r.reserved)
	if r.allocatable <= 0 {
		return reserved
	}
	reserved = max(reserved, less(r.node, r.allocatable))
	if !r.settings {
		reserved = max(reserved, less(r.machine, r.allocatable))
	}
	return reserved
}

// trusted returns what is left of an amount that data of this age shows.
func trusted(v int64, age time.Duration) int64 {
	switch {
	case age <= fresh:
		return v
	case age >= distrust:
		return 0
	}
	return part(v, int64(distrust-age), int64(distrust-fresh))
}

// wait returns after how long the account would give less if nothing but the time changed; 0: never.
func (r *resource) wait(a *model.Account, l Ledger, now round) time.Duration {
	switch given := plus(a.Allow, a.Room.Mid, a.Room.Batch, a.Offer.Mid, a.Offer.Batch); {
	case given == 0:
		return 0
	case !a.Use.Measured:
		return max(l.Measured+distrust-now.clock, pace)
	}
	return max(fresh-a.Use.Age, 0) + pace
}
