package slack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

const gib = 1 << 30

// epoch is the wall clock of every case.
var epoch = fixture.Epoch()

// input is the input of a decision.
type input struct {
	node   model.Node
	policy model.Policy
	own    []model.OwnCPUs
	peaks  slack.Peaks
	state  slack.State
}

// decide runs a round.
func (in *input) decide() (*model.Slack, slack.State, time.Time) {
	cpu, memory := slack.Tally(&in.node, in.own, nil)
	return slack.Decide(&in.node, &in.policy, cpu, memory, in.peaks, in.state)
}

// slack runs a round and returns its result.
func (in *input) slack() *model.Slack {
	s, _, _ := in.decide()
	return s
}

// tick runs a round, advances the clock by one second and repeats the same measurement.
func (in *input) tick() *model.Slack {
	var s *model.Slack
	s, in.state, _ = in.decide()
	in.node.Now = in.node.Now.Add(time.Second)
	in.at(in.node.Load.Clock + time.Second)
	return s
}

// at sets the time of all measurements.
func (in *input) at(clock time.Duration) {
	l := in.node.Load
	l.Clock = clock
	for _, u := range in.usages() {
		u.CPU.At, u.Memory.At = clock, clock
	}
}

// usages returns all measurements.
func (in *input) usages() []*model.Usage {
	l := in.node.Load
	all := []*model.Usage{&l.Node, &l.Classes[model.Guaranteed]}
	for i := range l.Pods {
		all = append(all, &l.Pods[i].Usage)
	}
	return all
}

// copy returns an input that shares nothing that a test changes.
func (in *input) copy() *input {
	c := *in
	l := *in.node.Load
	l.Pods = slices.Clone(l.Pods)
	c.node.Load = &l
	c.node.Pods = slices.Clone(in.node.Pods)
	return &c
}

// newInput returns an idle machine.
func newInput(capacity model.Amount, method model.SellMethod, waterline int64) *input {
	in := &input{node: fixture.Node(capacity), policy: fixture.Policy()}
	in.policy.CPU = model.SellPolicy{Method: method, Waterline: waterline}
	in.policy.Memory = in.policy.CPU
	in.node.Load = &model.Load{CPUMilli: capacity.CPU, Memory: capacity.Memory}
	in.at(time.Hour)
	return in
}

// add adds a pod and its usage, also to the usage of all pods and of the machine.
func (in *input) add(pod model.Pod, used model.Amount) {
	l := in.node.Load
	fixture.Measure(l, pod.UID, fixture.Usage(l.Clock, used.CPU, used.Memory))
	in.bind(pod)
	in.use(&l.Classes[model.Guaranteed], used)
	in.use(&l.Node, used)
}

// bind adds a pod without a measurement.
func (in *input) bind(pod model.Pod) { fixture.Bind(&in.node, &pod) }

// use increases a usage.
func (in *input) use(u *model.Usage, more model.Amount) {
	u.CPU.Milli += more.CPU
	u.Memory.WorkingSet += more.Memory
}

// run repeats the same measurement for a while.
func (in *input) run(d time.Duration) *model.Slack {
	var s *model.Slack
	for range d / time.Second {
		s = in.tick()
	}
	return s
}

var methods = []model.SellMethod{"", model.SellStatic, model.SellRealtime, model.SellPredicted}

// random returns a possible machine. Memory is in whole thousands of KiB, so that its fractions are exact.
func random(r *rand.Rand) *input {
	capacity := model.Amount{CPU: int64(1+r.IntN(256)) * 1000, Memory: int64(1+r.IntN(512)) * 1000 * 1024 * 1024}
	in := newInput(capacity, methods[r.IntN(4)], int64(r.IntN(1001)))
	in.policy.CPU.Mid, in.policy.CPU.Ratio = int64(r.IntN(1001)), int64(r.IntN(4001))
	in.policy.Memory = model.SellPolicy{
		Method: methods[r.IntN(4)], Waterline: int64(r.IntN(1001)),
		Mid: int64(r.IntN(1001)), Ratio: int64(r.IntN(2001)),
	}
	upTo := func(tenths int64) model.Amount {
		return model.Amount{
			CPU:    r.Int64N(capacity.CPU*tenths/10 + 1),
			Memory: r.Int64N(capacity.Memory/1024*tenths/10+1) * 1024,
		}
	}
	in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = upTo(1).CPU, upTo(1).Memory
	in.node.Allocatable = model.Amount{
		CPU:    capacity.CPU - in.node.Kubelet.ReservedMilli,
		Memory: capacity.Memory - in.node.Kubelet.ReservedMemory,
	}
	in.node.Load.Watermark = upTo(1).Memory
	in.use(&in.node.Load.Node, upTo(1))
	free := 0
	for i := range r.IntN(12) {
		pod := model.Pod{UID: fmt.Sprintf("p%02d", i), Class: model.ClassLS}
		pod.RequestMilli, pod.MemoryRequest = upTo(2).CPU, upTo(2).Memory
		pod.Created = epoch.Add(-time.Duration(r.IntN(300)) * time.Second)
		switch r.IntN(6) {
		case 0, 1:
			pod.Class, pod.RequestMilli, pod.MemoryRequest = model.ClassBE, 0, 0
			if r.IntN(2) == 0 {
				pod.Batch = upTo(3)
			} else {
				pod.Mid = upTo(3)
			}
		case 2:
			pod.Class = model.ClassSystem
		case 3:
			n := 1 + r.IntN(4)
			var set model.CPUSet
			for range n {
				set.Add(free)
				free++
			}
			mode := []model.CPUMode{model.CPUExclusive, model.CPUShare}[r.IntN(2)]
			in.own = append(in.own, model.OwnCPUs{UID: pod.UID, Mode: mode, CPUs: set})
		}
		pod.Ended = r.IntN(10) == 0
		switch r.IntN(5) {
		case 0:
			in.bind(pod)
		default:
			in.add(pod, upTo(1))
		}
	}
	// Two lists by UID, one after the other, as of pods with CPUs of their own and of pinned pods.
	second := r.IntN(len(in.own) + 1)
	in.own = slices.Concat(in.own[second:], in.own[:second])
	if r.IntN(3) == 0 { // a cgroup without a known pod
		more := upTo(1)
		in.use(&in.node.Load.Classes[model.Guaranteed], more)
		in.use(&in.node.Load.Node, more)
	}
	for h := range model.Horizons {
		a := upTo(8)
		known := r.IntN(2) == 0
		in.peaks.CPU[h] = model.Peak{Value: a.CPU, Known: known}
		in.peaks.Memory[h] = model.Peak{Value: a.Memory, Known: known}
	}
	in.state.Clock = in.node.Load.Clock - time.Duration(r.IntN(8))*time.Second
	in.state.CPU, in.state.Memory = randomLedger(r, capacity.CPU), randomLedger(r, capacity.Memory)
	return in
}

func randomLedger(r *rand.Rand, capacity int64) slack.Ledger {
	line := func() slack.Line {
		l := slack.Line{Offer: r.Int64N(capacity + 1)}
		if r.IntN(2) == 0 {
			l.ClearSince, l.Lowest = time.Hour-time.Duration(r.IntN(90))*time.Second, l.Offer+r.Int64N(capacity+1)
		}
		if r.IntN(2) == 0 {
			l.Grown = time.Hour - time.Duration(r.IntN(90))*time.Second
		}
		if r.IntN(2) == 0 {
			l.Fell = time.Hour - time.Duration(r.IntN(3600))*time.Second
			l.Settling = time.Duration(r.IntN(1801)) * time.Second
		}
		return l
	}
	return slack.Ledger{Measured: time.Hour - time.Duration(r.IntN(90))*time.Second, Mid: line(), Batch: line()}
}

// absurd returns an impossible machine.
func absurd(r *rand.Rand) *input {
	in := random(r)
	spoil := func(v *int64) {
		if r.IntN(4) == 0 {
			extremes := []int64{
				math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 999, 1 << 50, 1 << 62, math.MaxInt64 - 1, math.MaxInt64,
				r.Int64(), -r.Int64(),
			}
			*v = extremes[r.IntN(len(extremes))]
		}
	}
	both := func(a *model.Amount) { spoil(&a.CPU); spoil(&a.Memory) }
	n, l := &in.node, in.node.Load
	both(&n.Capacity)
	both(&n.Allocatable)
	spoil(&n.Kubelet.ReservedMilli)
	spoil(&n.Kubelet.ReservedMemory)
	spoil(&l.CPUMilli)
	spoil(&l.Memory)
	spoil(&l.Watermark)
	for _, u := range in.usages() {
		spoil(&u.CPU.Milli)
		spoil(&u.Memory.WorkingSet)
		spoil((*int64)(&u.CPU.At))
		spoil((*int64)(&u.Memory.At))
	}
	for i, p := range n.Pods {
		pod := *p
		spoil(&pod.RequestMilli)
		spoil(&pod.MemoryRequest)
		both(&pod.Mid)
		both(&pod.Batch)
		n.Pods[i] = &pod
	}
	for _, s := range []*model.SellPolicy{&in.policy.CPU, &in.policy.Memory} {
		spoil(&s.Waterline)
		spoil(&s.Ratio)
		spoil(&s.Mid)
	}
	for h := range model.Horizons {
		spoil(&in.peaks.CPU[h].Value)
		spoil(&in.peaks.Memory[h].Value)
	}
	spoil((*int64)(&l.Clock))
	spoil((*int64)(&in.state.Clock))
	for _, ledger := range []*slack.Ledger{&in.state.CPU, &in.state.Memory} {
		spoil((*int64)(&ledger.Measured))
		for _, line := range []*slack.Line{&ledger.Mid, &ledger.Batch} {
			spoil(&line.Offer)
			spoil(&line.Lowest)
			spoil((*int64)(&line.ClearSince))
			spoil((*int64)(&line.Grown))
			spoil((*int64)(&line.Fell))
			spoil((*int64)(&line.Settling))
		}
	}
	return in
}
