// Package slack decides how much CPU and memory of a node batch may use now, the allowance, and how much may be sold,
// the offer. The offer has two tiers: mid resources are expected to stay available for a day, batch resources for an
// hour.
//
// Each resource has one account, in which everything counts once:
//
//	System + Prod + Mid + Batch <= Ceiling
//
// System is the higher of the usage and the reservation of the system. Prod is the amount counted for online pods.
// Mid and Batch are the offers. In doubt, usage counts as online: cgroups without a known pod, pods without a
// measurement, old measurements.
package slack

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Measurements up to maxFullAge count fully. From there to maxAge, their worth falls to zero.
const (
	maxFullAge = 5 * time.Second
	maxAge     = time.Minute
	pace       = time.Second // between two rounds with old measurements
)

// Peaks are the predicted peaks of online pods.
type Peaks struct {
	CPU    [model.Horizons]model.Peak // in milli-cores
	Memory [model.Horizons]model.Peak // in bytes
}

// resource is the input for one account.
type resource struct {
	unit           model.Unit
	sell           model.SellPolicy
	machine        int64 // measured capacity
	node           int64 // capacity of the Node object
	allocatable    int64
	reserved       int64 // by the kubelet's settings
	settings       bool  // the kubelet's settings are known
	watermark      int64
	use            model.Use
	peaks          [model.Horizons]model.Peak
	bound          model.TierAmounts
	step           int64 // smallest step of an offer
	incompressible bool  // more than is available can never be sold
}

// Decide returns the slack of a measured node: nil before the first measurement. s is the state from the previous
// round. If next is not zero, the decision gives less from then on even if nothing changes but the time. Only a new
// measurement can give more.
func Decide(
	n *model.Node, p *model.Policy, cpu, memory model.Use, peaks Peaks, s State,
) (result *model.Slack, state State, next time.Time) {
	if n.Load == nil {
		return nil, s, time.Time{}
	}
	now := round{clock: n.Load.Clock}
	if now.clock < s.Clock {
		s = State{} // from another boot
	}
	now.gapless = now.clock-s.Clock <= maxFullAge
	s.Clock = now.clock

	boundCPU, boundMemory := bound(n.Pods)
	reservedMilli := n.Kubelet.ReservedMilli
	if !n.Kubelet.ReservedCPUs.Empty() {
		reservedMilli = int64(n.Kubelet.ReservedCPUs.Len()) * 1000
	}
	r := resource{
		unit: model.UnitMilli, sell: p.CPU,
		machine: n.Load.CPUMilli, node: n.Capacity.CPU, allocatable: n.Allocatable.CPU,
		reserved: reservedMilli, settings: n.Kubelet.Known, use: cpu, peaks: peaks.CPU, bound: boundCPU, step: 100,
	}
	m := resource{
		unit: model.UnitBytes, sell: p.Memory,
		machine: n.Load.Memory, node: n.Capacity.Memory, allocatable: n.Allocatable.Memory,
		reserved: n.Kubelet.ReservedMemory, settings: n.Kubelet.Known, watermark: n.Load.Watermark, use: memory,
		peaks: peaks.Memory, bound: boundMemory, step: 1, incompressible: true,
	}
	if p.Mode == model.ModeDisabled {
		r.sell.Method, m.sell.Method = "", ""
		s = State{Clock: s.Clock, CPU: Ledger{Measured: s.CPU.Measured}, Memory: Ledger{Measured: s.Memory.Measured}}
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

// bound returns the requests of bound pods for mid and batch resources.
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

// decide computes the account and the offers of one resource.
func (r *resource) decide(l Ledger, now round) (model.Account, Ledger) {
	a := r.account()
	if a.Use.Measured {
		l.Measured = now.clock - a.Use.Age
	}
	if r.sell.Method == "" {
		a.Reason = r.reason(&a, l, now)
		return a, Ledger{Measured: l.Measured, Mid: l.Mid.ended(), Batch: l.Batch.ended()}
	}
	steps := r.steps(a.Capacity)
	steps.round, steps.fresh = now, a.Use.Age <= maxFullAge
	steps.whole = !r.incompressible || now.clock >= filled
	room := a.Room
	if !a.Use.Measured && now.clock-l.Measured < maxAge {
		// The agent has just started and has no measurement yet. The offer of its predecessor is still on the Node.
		// Withdrawing it now would mean that it must grow again for minutes.
		room = model.TierAmounts{Mid: amount(l.Mid.Offer), Batch: amount(l.Batch.Offer)}
	}
	l.Mid, l.Batch = l.Mid.follow(room.Mid, steps), l.Batch.follow(room.Batch, steps)
	a.Offer = model.TierAmounts{Mid: l.Mid.Offer, Batch: l.Batch.Offer}
	a.Reason = r.reason(&a, l, now)
	return a, l
}

// account computes everything but the offers.
func (r *resource) account() model.Account {
	a := model.Account{Watermark: amount(r.watermark), Use: r.use, Peaks: r.peaks}
	a.Bound = model.TierAmounts{Mid: amount(r.bound.Mid), Batch: amount(r.bound.Batch)}
	u := &a.Use
	u.Age = max(u.Age, 0)
	for _, v := range []*int64{
		&u.System, &u.Daemons, &u.Stolen, &u.Online, &u.Unmeasured, &u.IdleExclusive, &u.Protected, &u.Batch, &u.Unsold,
	} {
		*v = amount(*v)
	}
	a.Capacity = amount(r.machine)
	if r.node > 0 {
		// The Node may have been edited, or amplified for the scheduler. That adds no CPU to the machine.
		a.Capacity = min(a.Capacity, amount(r.node))
	}
	a.Reserved = r.reservation()
	a.Ceiling = part(a.Capacity, min(r.sell.Waterline, 1000), 1000)

	online := plus(u.Online, u.Unmeasured)
	for h := range a.Prod {
		a.Peaks[h].Value = amount(a.Peaks[h].Value)
		a.Prod[h] = plus(max(online, a.Peaks[h].Value), u.IdleExclusive, u.Protected)
	}
	if !u.Measured {
		return a
	}
	// What is reserved for the system is not meant for daemons in pods, which request CPU and memory like other pods.
	free := less(a.Ceiling, max(u.System, a.Reserved), u.Daemons, a.Watermark)
	now := less(free, online, u.IdleExclusive, u.Protected)
	a.Allow = trusted(now, u.Age)

	// all is what could be sold in both tiers together; lasting is the part that stays available for a day. A part of
	// what batch may use is promised to batch pods already that did not buy it.
	free, now = less(free, u.Unsold), less(now, u.Unsold)
	all := less(free, a.Prod[model.Hour])
	switch r.sell.Method {
	case model.SellRealtime:
		all = now
	case model.SellStatic:
		all = part(a.Capacity, r.sell.Ratio, 1000)
		if r.incompressible {
			all = min(all, now)
		}
	}
	var lasting int64
	if a.Peaks[model.Day].Known || r.sell.Method == model.SellPredicted || r.sell.Method == "" {
		lasting = min(less(free, a.Prod[model.Day]), all)
	}

	// The requests of batch pods are not sold again as mid. Batch in turn leaves the part meant for mid alone, so
	// that this part becomes free for mid as batch pods end.
	meant := part(a.Ceiling, min(r.sell.Mid, 1000), 1000)
	mid := min(meant, lasting)
	if !r.static() {
		meant = mid // with a fixed offer, the unavailable part of mid does not become batch
	}
	a.Room.Mid = trusted(min(mid, less(all, a.Bound.Batch)), u.Age)
	a.Room.Batch = trusted(less(all, max(meant, a.Bound.Mid)), u.Age)
	return a
}

// reservation returns the amount reserved for the system: the higher of the kubelet's settings and the difference of
// capacity and allocatable, which includes the kubelet's eviction thresholds. An amplified allocatable hides that
// difference; then the settings count. An edited capacity makes the difference too small; if the settings are not
// known either, the measured capacity counts.
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

// trusted returns the part of an amount that counts with a measurement of this age.
func trusted(v int64, age time.Duration) int64 {
	switch {
	case age <= maxFullAge:
		return v
	case age >= maxAge:
		return 0
	}
	return part(v, int64(maxAge-age), int64(maxAge-maxFullAge))
}

// wait returns the time after which the account gives less if nothing but the time changes; 0: never.
func (r *resource) wait(a *model.Account, l Ledger, now round) time.Duration {
	switch given := plus(a.Allow, a.Room.Mid, a.Room.Batch, a.Offer.Mid, a.Offer.Batch); {
	case given == 0:
		return 0
	case !a.Use.Measured:
		return max(l.Measured+maxAge-now.clock, pace)
	}
	return max(maxFullAge-a.Use.Age, 0) + pace
}
