package node_test

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/contention"
	"github.com/waterline-io/waterline/internal/decide/node/evict"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// tape is a source of numbers that returns a fuzzer's bytes, and random numbers after their end.
type tape struct {
	bytes []byte
	rest  *rand.PCG
}

func newTape(bytes []byte) *rand.Rand {
	return rand.New(&tape{bytes, rand.NewPCG(uint64(len(bytes)), 1)})
}

// Uint64 implements [rand.Source]. Two bytes make a number, of which the generators below use the high part.
func (t *tape) Uint64() uint64 {
	if len(t.bytes) < 2 {
		return t.rest.Uint64()
	}
	n := binary.LittleEndian.Uint16(t.bytes)
	t.bytes = t.bytes[2:]
	return uint64(n)<<48 | t.rest.Uint64()>>16
}

// one returns one of the values.
func one[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// amountUpTo returns an amount of each resource, up to a part of a machine.
func amountUpTo(r *rand.Rand, whole model.Amount, percent int64) model.Amount {
	return model.Amount{CPU: r.Int64N(whole.CPU*percent/100 + 1), Memory: r.Int64N(whole.Memory*percent/100 + 1)}
}

// randomMachine is a [randomWorld] with measurements and offers, and with pods of all classes. Some pods request CPUs
// of their own.
func randomMachine(r *rand.Rand) *world {
	w := randomWorld(r)
	n := &w.node
	n.Capacity = model.Amount{CPU: n.Allocatable.CPU + int64(r.IntN(3))*1000, Memory: int64(1+r.IntN(512)) << 30}
	n.Allocatable.Memory = n.Capacity.Memory - r.Int64N(n.Capacity.Memory/8)
	if r.IntN(3) == 0 {
		n.Topology = topology(one(r, "1x1x1x4x1", "1x2x1x4x2", "2x1x2x3x2"))
		n.Capacity.CPU = int64(len(n.Topology.CPUs)) * 1000
		n.Allocatable.CPU = min(n.Allocatable.CPU, n.Capacity.CPU)
		n.Tree.CPUs = n.Topology.Online()
	}
	n.Kubelet.ReservedMilli, n.Kubelet.ReservedMemory = r.Int64N(2000), r.Int64N(n.Capacity.Memory/16)
	n.Kubelet.StaticCPUs, n.Kubelet.PoolKnown = r.IntN(6) == 0, r.IntN(2) == 0
	n.PodsKnown, n.Withdrawn, n.Tree.ReadOnly, n.Tree.V2 = r.IntN(12) > 0, r.IntN(8) == 0, r.IntN(12) == 0, r.IntN(2) == 0

	p := &w.policy
	p.Mode, n.Koordinator = one(r, model.ModeEnforce, model.ModeEnforce, model.ModeEnforce, model.ModeObserve,
		model.ModeDisabled, ""), r.IntN(3) == 0
	for _, s := range []*model.SellPolicy{&p.CPU, &p.Memory} {
		s.Method = one(r, model.SellPredicted, model.SellRealtime, model.SellStatic, "")
		s.Waterline, s.Mid = one(r, 1000, 10+r.Int64N(991)), r.Int64N(1001)*int64(r.IntN(2))
		if s.Method == model.SellStatic {
			s.Ratio = r.Int64N(4001)
		}
	}
	p.Weight.Batch = one(r, model.BatchByWeight, model.BatchByIdle, model.BatchByIdentity)
	n.Tree.NoIdle, n.Tree.NoIdentity = r.IntN(6) == 0, one(r, "", "", "missing")
	for i := range n.Pods {
		randomBatch(r, n, n.Pods[i])
	}
	n.Load = randomLoad(r, n)
	randomBursts(r, w)
	p.Protect.Memory, n.Tree.NoProtection, n.Kubelet.MemoryQoS = r.IntN(3) > 0, one(r, "", "", "", "missing"),
		r.IntN(8) == 0
	if r.IntN(2) == 0 {
		p.Protect.EvictPerHour = 1 + r.Int64N(6)
		for _, pod := range n.Pods {
			pod.Annotations.Evict, pod.Leaving = one(r, "", "", model.EvictFirst, model.EvictNever), r.IntN(8) == 0
		}
		if now := n.Load.Clock; r.IntN(2) == 0 { // memory is gone for a while
			w.state.Evict = evict.State{Clock: now - time.Second, Exhausted: max(now-time.Minute, 1)}
			w.state.Memory.Short = true
		}
	}
	p.Suppress = model.SuppressPolicy{
		By:       one(r, model.SuppressOnHarm, model.SuppressOnHarm, model.SuppressByArithmetic, model.SuppressByNone, ""),
		MinBatch: one[int64](r, 0, 0, 100),
	}
	randomWaits(r, w)
	randomFigures(r, w)
	return w
}

// randomFigures gives most of the pods a figure, some of them a failed or an old one.
func randomFigures(r *rand.Rand, w *world) {
	if r.IntN(3) == 0 {
		return
	}
	rule := model.ServiceRule{Max: 1 + r.Int64N(1_000_000), Source: model.ServiceSource{Port: one[int64](r, 0, 8080)}}
	w.policy.Services = append(w.policy.Services, rule)
	for _, p := range w.node.Pods {
		f := model.ServiceFigure{UID: p.UID, Max: rule.Max, Value: r.Int64N(2_000_000)}
		f.At = one(r, w.node.Load.Clock, w.node.Load.Clock, w.node.Load.Clock-time.Duration(r.IntN(30))*time.Second, 0)
		f.Failed = one(r, "", "", "timeout")
		w.node.Figures = append(w.node.Figures, f)
		since := w.node.Load.Clock - time.Duration(r.IntN(90))*time.Second
		s := contention.Service{UID: p.UID, Since: since, Over: r.IntN(2) == 0}
		w.state.Contention.Services = append(w.state.Contention.Services, s)
	}
}

// randomWaits samples most of the pods, twice.
func randomWaits(r *rand.Rand, w *world) {
	now := w.node.Load.Clock
	for _, p := range w.node.Pods {
		if r.IntN(6) == 0 {
			continue
		}
		s := model.PodWait{UID: p.UID, At: now - time.Second}
		w.state.Contention.Pods = append(w.state.Contention.Pods, contention.Pod{PodWait: s, Tasks: true, Due: now})
		s.At, s.Ran, s.Waited = now, time.Duration(r.IntN(2000))*time.Millisecond, time.Duration(r.IntN(900))*time.Millisecond
		w.node.Waits = append(w.node.Waits, s)
	}
}

// randomBursts gives containers limits, throttles some of them, and may make the machine cool for a long time.
func randomBursts(r *rand.Rand, w *world) {
	if w.policy.Protect.Burst = r.IntN(2) == 0; r.IntN(2) == 0 {
		w.state.Quota = quota.State{Cool: true, Since: 1, Seen: w.node.Load.Clock}
	}
	for _, p := range w.node.Pods {
		group := w.node.Tree.Pods[p.UID]
		for i := range p.Containers {
			c := &p.Containers[i]
			c.LeastMilli = c.LimitMilli - r.Int64N(c.LimitMilli+1)*int64(r.IntN(2))
			p.LeastMilli += c.LeastMilli
			if slices.Contains(group.Containers, c.ID) && r.IntN(2) == 0 {
				u := model.CPUUsage{At: w.node.Load.Clock, Milli: r.Int64N(300), Periods: 10, Throttled: r.Int64N(3)}
				w.node.Load.Inside = append(w.node.Load.Inside, model.InsideUsage{UID: p.UID, Name: c.ID, CPUUsage: u})
			}
		}
	}
	slices.SortFunc(w.node.Load.Inside, func(a, b model.InsideUsage) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Name, b.Name))
	})
}

// randomBatch gives a pod a class, and what goes with it.
func randomBatch(r *rand.Rand, n *model.Node, p *model.Pod) {
	p.Class = one(r, model.ClassLS, model.ClassLS, model.ClassLSE, model.ClassLSR, model.ClassBE, model.ClassSystem)
	p.Created = n.Now.Add(-time.Duration(r.IntN(300)) * time.Second)
	p.MemoryRequest = r.Int64N(n.Capacity.Memory / 16)
	p.Annotations.CPUs = one(r, "", "", "", model.CPUShare, model.CPUExclusive, model.CPUNone)
	p.Annotations.Placement = one(r, "", model.PlaceSpread, model.PlaceCores)
	if p.Class != model.ClassBE {
		return
	}
	p.RequestMilli, p.LimitMilli, p.MemoryRequest, p.QoS, p.Koordinator = 0, 0, 0, model.BestEffort, r.IntN(3) == 0
	if p.Batch, p.Tier = amountUpTo(r, n.Capacity, 20), model.TierBatch; r.IntN(3) == 0 {
		p.Mid, p.Batch, p.Tier = p.Batch, model.Amount{}, model.TierMid
	}
}

// randomLoad measures a machine, some of it a while ago.
func randomLoad(r *rand.Rand, n *model.Node) *model.Load {
	l := &model.Load{Clock: time.Hour, CPUMilli: n.Capacity.CPU, Memory: n.Capacity.Memory,
		Watermark: r.Int64N(n.Capacity.Memory / 16)}
	if r.IntN(12) == 0 {
		return l
	}
	doubted := r.IntN(4) == 0
	usage := func(a model.Amount) model.Usage {
		at := l.Clock
		if doubted && r.IntN(10) == 0 {
			at -= time.Duration(r.IntN(70)) * time.Second
		}
		return fixture.Usage(at, a.CPU, a.Memory)
	}
	var all model.Amount
	for _, p := range n.Pods {
		if r.IntN(8) == 0 {
			continue
		}
		a := amountUpTo(r, n.Capacity, 4)
		all = model.Amount{CPU: all.CPU + a.CPU, Memory: all.Memory + a.Memory}
		l.Pods = append(l.Pods, model.PodUsage{UID: p.UID, Usage: usage(a)})
	}
	more := amountUpTo(r, n.Capacity, 10)
	l.Classes[model.Guaranteed] = usage(all)
	l.Node = usage(model.Amount{CPU: all.CPU + more.CPU, Memory: all.Memory + more.Memory})
	l.Stolen = r.Int64N(n.Capacity.CPU) * int64(r.IntN(2))
	return l
}

// randomPeaks says what online pods will use.
func randomPeaks(r *rand.Rand, w *world) {
	for h := range model.Horizons {
		a := amountUpTo(r, w.node.Capacity, 60)
		w.peaks.CPU[h], w.peaks.Memory[h] = model.Peak{Value: a.CPU, Known: r.IntN(4) > 0},
			model.Peak{Value: a.Memory, Known: r.IntN(4) > 0}
	}
}

// randomOffers gives the machine offers that have existed for a while.
func randomOffers(r *rand.Rand, w *world) {
	clock := w.node.Load.Clock
	line := func(capacity int64) slack.Line {
		l := slack.Line{Offer: r.Int64N(capacity + 1)}
		if r.IntN(2) == 0 {
			l.ClearSince, l.Lowest = clock-time.Duration(r.IntN(90))*time.Second, l.Offer+r.Int64N(capacity+1)
		}
		return l
	}
	c := w.node.Capacity
	w.state.Slack = slack.State{
		Clock:  clock - time.Duration(r.IntN(6))*time.Second,
		CPU:    slack.Ledger{Measured: clock, Mid: line(c.CPU), Batch: line(c.CPU)},
		Memory: slack.Ledger{Measured: clock, Mid: line(c.Memory), Batch: line(c.Memory)},
	}
}

// pass advances the machine by one second with unchanged measurements.
func (w *world) pass() {
	w.node.Now = w.node.Now.Add(time.Second)
	l := *w.node.Load
	again := func(u *model.Usage) {
		for _, at := range []*time.Duration{&u.CPU.At, &u.Memory.At} {
			if *at != 0 {
				*at += time.Second
			}
		}
	}
	again(&l.Node)
	again(&l.Classes[model.Guaranteed])
	l.Pods = append([]model.PodUsage{}, l.Pods...)
	for i := range l.Pods {
		again(&l.Pods[i].Usage)
	}
	l.Clock += time.Second
	w.node.Load = &l
}

// spoil changes some numbers of a machine to impossible ones.
func spoil(r *rand.Rand, w *world) {
	number := func(v *int64) {
		if r.IntN(8) == 0 {
			*v = one(r, math.MinInt64, math.MinInt64+1, -1, 0, 1, 999, 1<<50, 1<<62, math.MaxInt64-1, math.MaxInt64, r.Int64())
		}
	}
	n, p := &w.node, &w.policy
	lines := &w.state.Slack
	all := []*int64{
		&lines.CPU.Batch.Offer, &lines.CPU.Mid.Offer, &lines.Memory.Batch.Offer, &lines.Memory.Mid.Lowest,
		(*int64)(&lines.Clock), (*int64)(&lines.CPU.Measured),
		&n.Capacity.CPU, &n.Capacity.Memory, &n.Allocatable.CPU, &n.Allocatable.Memory, &n.Kubelet.ReservedMilli,
		&n.Kubelet.ReservedMemory,
		&n.Kubelet.QuotaPeriod, &n.Load.CPUMilli, &n.Load.Memory, &n.Load.Watermark, (*int64)(&n.Load.Clock),
		&p.CPU.Waterline, &p.CPU.Mid, &p.CPU.Ratio, &p.Memory.Waterline, &p.Memory.Mid, &p.Memory.Ratio, &p.Weight.Max,
	}
	usage := func(u *model.Usage) {
		all = append(all, &u.CPU.Milli, (*int64)(&u.CPU.At), &u.Memory.WorkingSet, (*int64)(&u.Memory.At))
	}
	usage(&n.Load.Node)
	usage(&n.Load.Classes[model.Guaranteed])
	for i := range n.Load.Pods {
		usage(&n.Load.Pods[i].Usage)
	}
	for i := range n.Waits {
		all = append(all, (*int64)(&n.Waits[i].Ran), (*int64)(&n.Waits[i].Waited), (*int64)(&n.Waits[i].At))
	}
	for i := range n.Figures {
		all = append(all, (*int64)(&n.Figures[i].At), &n.Figures[i].Value, &n.Figures[i].Max)
	}
	for _, pod := range n.Pods {
		all = append(all, &pod.RequestMilli, &pod.LimitMilli, &pod.MemoryRequest, &pod.MemoryLimit, &pod.Batch.CPU,
			&pod.Batch.Memory, &pod.Mid.CPU, &pod.Mid.Memory,
			&pod.Annotations.Shares, &pod.Grant.RequestMilli, &pod.Grant.LimitMilli, &pod.Grant.Memory)
		for i := range pod.Containers {
			c := &pod.Containers[i]
			all = append(all, &c.RequestMilli, &c.LimitMilli, &c.MemoryLimit, &c.Grant.RequestMilli, &c.Grant.LimitMilli,
				&c.Grant.Memory)
		}
	}
	for _, v := range all {
		number(v)
	}
}
