package slack_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// The cases of this file are defects of Koordinator, each as a machine on which it shows.

// hundred returns a machine of 100 CPUs and 400 GiB with online usage of 40 CPUs and 160 GiB and known peaks.
func hundred(method model.SellMethod) *input {
	in := newInput(model.Amount{CPU: 100_000, Memory: 400 * gib}, method, 1000)
	web := model.Pod{UID: "web", RequestMilli: 40_000, MemoryRequest: 160 * gib}
	in.add(web, model.Amount{CPU: 40_000, Memory: 160 * gib})
	for h := range model.Horizons {
		in.peaks.CPU[h] = model.Peak{Value: 50_000, Known: true}
		in.peaks.Memory[h] = model.Peak{Value: 200 * gib, Known: true}
	}
	return in
}

// TestPodWithoutMeasurement checks that a pod without measurements counts. In Koordinator, the conservative policy
// ignores such pods: a pending pod of 40 CPUs turned an offer of 20 CPUs into 60.
func TestPodWithoutMeasurement(t *testing.T) {
	for _, method := range methods[2:] {
		in := hundred(method)
		before := in.run(20 * time.Minute)
		in.bind(model.Pod{UID: "new", RequestMilli: 40_000, MemoryRequest: 160 * gib, Created: in.node.Now})
		after := in.slack()
		if err := never(after, before); err != nil {
			t.Error(err)
		}
		if a := after.CPU; a.Allow != 20_000 || a.Offer.Batch != 20_000 || a.Use.Unmeasured != 40_000 {
			t.Errorf("%s: allowance %d, offer %d, want 20000: %+v", method, a.Allow, a.Offer.Batch, a)
		}
		if a := after.Memory; a.Allow != 80*gib || a.Offer.Batch != 80*gib {
			t.Errorf("%s: allowance %d, offer %d, want 80 GiB", method, a.Allow, a.Offer.Batch)
		}
	}
}

// TestAmplifiedAllocatable checks that an amplified allocatable does not hide the reservation, as it does in
// Koordinator.
func TestAmplifiedAllocatable(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = 10_000, 40*gib
	in.node.Allocatable = model.Amount{CPU: 90_000, Memory: 360 * gib}
	truth := in.slack()
	for _, capacity := range []int64{1, 2} {
		in.node.Capacity = model.Amount{CPU: 100_000 * capacity, Memory: 400 * gib * capacity}
		in.node.Allocatable = model.Amount{CPU: 180_000, Memory: 720 * gib}
		got := in.slack()
		if err := never(got, truth); err != nil {
			t.Error(err)
		}
		if capacity == 1 && (got.CPU.Reserved != 10_000 || got.Memory.Reserved != 40*gib) {
			t.Errorf("reserved %d and %d", got.CPU.Reserved, got.Memory.Reserved)
		}
	}
}

// TestNothingMeasured checks rounds without measurements. In Koordinator, a measurement without numbers crashed the
// process.
func TestNothingMeasured(t *testing.T) {
	for _, load := range []*model.Load{nil, {}, {Clock: time.Hour, CPUMilli: 64_000, Memory: 256 * gib}} {
		in := hundred(model.SellRealtime)
		in.node.Load = load
		s, _, next := in.decide()
		if load == nil {
			if s != nil {
				t.Errorf("%+v without a measurement", s)
			}
			continue
		}
		for _, a := range []*model.Account{&s.CPU, &s.Memory} {
			empty := a.Allow == 0 && a.Room == model.TierAmounts{} && a.Offer == model.TierAmounts{}
			if !empty || a.Reason.Code != model.SlackUnknown || !next.IsZero() {
				t.Errorf("%+v, next %v", a, next)
			}
		}
	}
}

// TestMidAndBatchOnce checks that mid and batch together sell the slack once. Koordinator sells it twice.
func TestMidAndBatchOnce(t *testing.T) {
	in := hundred(model.SellPredicted)
	in.policy.CPU.Mid = 1000
	a := in.run(20 * time.Minute).CPU
	if a.Offer != (model.TierAmounts{Mid: 50_000}) {
		t.Errorf("offers %+v, want 50000 in all", a.Offer)
	}
	in.policy.CPU.Mid = 200
	if a = in.run(20 * time.Minute).CPU; a.Offer != (model.TierAmounts{Mid: 20_000, Batch: 30_000}) {
		t.Errorf("offers %+v, want 50000 in all", a.Offer)
	}
}

// TestNoFeedback checks that the usage of batch does not reduce the offer. In Koordinator, usage of YARN counted as
// system usage, so the offer shrank with it to nothing.
func TestNoFeedback(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.add(model.Pod{UID: "yarn", Class: model.ClassBE}, model.Amount{})
	want := in.run(20 * time.Minute).CPU.Offer.Batch
	l := in.node.Load
	for range 1200 { // batch always uses the whole offer
		used := want - l.Pod("yarn").CPU.Milli
		for _, u := range []*model.Usage{&l.Node, &l.Classes[model.Guaranteed], &l.Pod("yarn").Usage} {
			u.CPU.Milli += used
		}
		if got := in.tick().CPU.Offer.Batch; got != want {
			t.Fatalf("offer %d, want %d", got, want)
		}
	}
	if want != 60_000 {
		t.Errorf("offer %d, want 60000", want)
	}
}

// TestSpike checks that a rise of 30 CPUs reduces the offer at once. Koordinator publishes it after five to six
// minutes.
func TestSpike(t *testing.T) {
	for _, method := range methods[2:] {
		in := hundred(method)
		before := in.run(20 * time.Minute).CPU
		l := in.node.Load
		in.use(&l.Node, model.Amount{CPU: 30_000})
		in.use(&l.Classes[model.Guaranteed], model.Amount{CPU: 30_000})
		after := in.tick().CPU
		if after.Allow != before.Allow-30_000 || after.Offer.Batch != 30_000 {
			t.Errorf("%s: allowance %d, offer %d, before %d and %d",
				method, after.Allow, after.Offer.Batch, before.Allow, before.Offer.Batch)
		}
	}
}

// TestStale checks that the worth of measurements falls with their age, without any event. Koordinator trusts data
// for 15 minutes and then not at all, and checks the age only on outside events.
func TestStale(t *testing.T) {
	in := hundred(model.SellRealtime)
	last := in.run(20 * time.Minute)
	in.at(in.node.Load.Clock)
	rounds := 0
	for start := in.node.Now; ; rounds++ {
		var s *model.Slack
		var next time.Time
		s, in.state, next = in.decide()
		if err := never(s, last); err != nil {
			t.Fatalf("after %v: %v", in.node.Now.Sub(start), err)
		}
		last = s
		switch age := in.node.Now.Sub(start); {
		case age <= 5*time.Second && (s.CPU.Allow != 60_000 || s.CPU.Offer.Batch != 60_000):
			t.Errorf("%d of 60000 after %v", s.CPU.Allow, age)
		case age == 33*time.Second &&
			(s.CPU.Allow < 29_000 || s.CPU.Allow > 30_000 || s.CPU.Reason.Code != model.SlackStale):
			t.Errorf("%d of 60000 after %v: %v", s.CPU.Allow, age, s.CPU.Reason)
		}
		if next.IsZero() {
			break
		}
		in.node.Load.Clock += next.Sub(in.node.Now)
		in.node.Now = next
	}
	if rounds < 40 || rounds > 60 {
		t.Errorf("%d rounds", rounds)
	}
	if last.CPU.Allow+last.CPU.Offer.Batch+last.Memory.Allow+last.Memory.Offer.Batch != 0 {
		t.Errorf("old measurements still sell: %+v", last)
	}
}

// TestWaterlineAboveCapacity checks that a waterline above 100 % does not sell more than the machine, as it does in
// Koordinator.
func TestWaterlineAboveCapacity(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.policy.CPU.Waterline = 1500
	if a := in.slack().CPU; a.Ceiling != 100_000 || a.Allow != 60_000 {
		t.Errorf("ceiling %d, allowance %d", a.Ceiling, a.Allow)
	}
}

// TestFixed checks that three and four times the CPUs can be sold and that the reason shows the risk. Memory is sold
// only as far as it is available.
func TestFixed(t *testing.T) {
	for _, times := range []int64{3, 4} {
		in := hundred(model.SellStatic)
		in.policy.CPU.Ratio, in.policy.Memory.Ratio = 1000*times, 1000*times
		s := in.run(12 * time.Minute)
		if s.CPU.Offer.Batch != 100_000*times || s.Memory.Offer.Batch != 240*gib {
			t.Errorf("%d times: offers %d and %d", times, s.CPU.Offer.Batch, s.Memory.Offer.Batch)
		}
		want := fmt.Sprintf("SoldStatic offer=%dmCPU allowance=60000mCPU missing=%dmCPU",
			100_000*times, 100_000*times-60_000)
		if got := s.CPU.Reason.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWhole checks that idle exclusive CPUs are not available to batch, and that none counts twice.
func TestWhole(t *testing.T) {
	limit := func(name string, milli int64) model.Container {
		return model.Container{Name: name, RequestMilli: milli, LimitMilli: milli}
	}
	ours := func(uid, container string, mode model.CPUMode, ids ...int) []model.OwnCPUs {
		return []model.OwnCPUs{{UID: uid, Container: container, Mode: mode, CPUs: model.CPUs(ids...)}}
	}
	exclusive := func(container string, ids ...int) []model.OwnCPUs {
		return ours("db", container, model.CPUExclusive, ids...)
	}
	for _, c := range []struct {
		name       string
		own        []model.OwnCPUs
		taken      model.CPUSet
		containers []model.Container
		want       int64
	}{
		{name: "none", want: 0},
		{name: "of a pod", own: exclusive("", 0, 1, 2, 3), want: 3000},
		{name: "home CPUs, which others use", own: ours("db", "", model.CPUShare, 0, 1), want: 0},
		{name: "of a container", own: exclusive("db", 0, 1, 2, 3),
			containers: []model.Container{limit("db", 4000)}, want: 3000},
		{name: "beside a small sidecar", own: exclusive("db", 0, 1, 2, 3),
			containers: []model.Container{limit("db", 4000), limit("log", 300)}, want: 3300},
		{name: "beside one without a limit", own: exclusive("db", 0, 1, 2, 3),
			containers: []model.Container{limit("db", 4000), {Name: "log"}}, want: 4000},
		{name: "beside one that has ended", own: exclusive("db", 0, 1),
			containers: []model.Container{limit("db", 2000), {Name: "init", Init: true}}, want: 1000},
		{name: "of a pod that is gone", own: ours("gone", "", model.CPUExclusive, 4, 5), want: 2000},
		{name: "the kubelet's", taken: model.CPUs(0, 1),
			containers: []model.Container{limit("db", 2000)}, want: 1000},
		{name: "the kubelet's, of an unknown pod", taken: model.CPUs(0, 1),
			containers: []model.Container{limit("db", 500)}, want: 2000},
		{name: "the kubelet's and ours are the same", own: exclusive("", 0, 1), taken: model.CPUs(0, 1), want: 1000},
		{name: "the kubelet's and ours", own: exclusive("", 0, 1), taken: model.CPUs(1, 2), want: 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
			in.own, in.node.Kubelet.TakenCPUs = c.own, c.taken
			db := model.Pod{UID: "db", QoS: model.Guaranteed, Containers: c.containers}
			in.add(db, model.Amount{CPU: 1000, Memory: gib})
			cpu, memory := slack.Tally(&in.node, in.own, nil)
			if cpu.IdleExclusive != c.want || memory.IdleExclusive != 0 || cpu.Online != 1000 {
				t.Errorf("idle exclusive %d, online %d, want %d and 1000", cpu.IdleExclusive, cpu.Online, c.want)
			}
			if got := in.slack().CPU.Allow; got != 15_000-c.want {
				t.Errorf("allowance %d, want %d", got, 15_000-c.want)
			}
		})
	}
}

// TestSumIsTheRoom checks that the operands of the reason add up to the room.
func TestSumIsTheRoom(t *testing.T) {
	for _, method := range methods[2:] {
		in := hundred(method)
		in.policy.CPU.Mid = 200
		s := in.run(20 * time.Minute)
		for _, a := range []*model.Account{&s.CPU, &s.Memory} {
			left := a.Reason.Operands[0].Value
			for _, o := range a.Reason.Operands[1:] {
				left -= o.Value
			}
			if left != a.Room.Mid+a.Room.Batch || !strings.HasPrefix(string(a.Reason.Code), "Sold") {
				t.Errorf("%v: %d is left, the room is %+v", a.Reason, left, a.Room)
			}
		}
	}
}
