package slack_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// The cases of this file are defects of another co-location system, each as a machine on which it shows.

// hundred returns a machine of 100 CPUs and 400 GiB on which prod pods use 40 CPUs and 160 GiB, in the middle of its life.
func hundred(method model.SellMethod) *input {
	in := newInput(model.Amount{CPU: 100_000, Memory: 400 * gib}, method, 1000)
	in.add(model.Pod{UID: "web", RequestMilli: 40_000, MemoryRequest: 160 * gib}, model.Amount{CPU: 40_000, Memory: 160 * gib})
	for h := range model.Horizons {
		in.peaks.CPU[h] = model.Peak{Value: 50_000, Known: true}
		in.peaks.Memory[h] = model.Peak{Value: 200 * gib, Known: true}
	}
	return in
}

// A2.2-1 (G11-3): the policy that is called conservative forgot pods without measurements: a pending pod of 40 CPUs made 60 of 20.
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

// A2.2-3 (G11-5): an amplified allocatable hid what is reserved.
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

// A2.2-4: a measurement without numbers in it ended the process.
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
			if a.Allow != 0 || a.Room != (model.TierAmounts{}) || a.Offer != (model.TierAmounts{}) || a.Reason.Code != model.SlackUnknown || !next.IsZero() {
				t.Errorf("%+v, next %v", a, next)
			}
		}
	}
}

// D8: mid and batch were sold the same slack.
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

// G8: what YARN used counted as the system's, so batch shrank by what batch used, until nothing was left.
func TestNoFeedback(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.add(model.Pod{UID: "yarn", Class: model.ClassBE}, model.Amount{})
	want := in.run(20 * time.Minute).CPU.Offer.Batch
	l := in.node.Load
	for range 1200 { // it uses all that is offered, always
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

// G9: a spike of 30 CPUs was published after five to six minutes.
func TestSpike(t *testing.T) {
	for _, method := range methods[2:] {
		in := hundred(method)
		before := in.run(20 * time.Minute).CPU
		l := in.node.Load
		in.use(&l.Node, model.Amount{CPU: 30_000})
		in.use(&l.Classes[model.Guaranteed], model.Amount{CPU: 30_000})
		after := in.tick().CPU
		if after.Allow != before.Allow-30_000 || after.Offer.Batch != 30_000 {
			t.Errorf("%s: allowance %d, offer %d, before %d and %d", method, after.Allow, after.Offer.Batch, before.Allow, before.Offer.Batch)
		}
	}
}

// D6 (G11-8): data was trusted for 15 minutes and then not at all, and nothing but an event from outside looked at its age.
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
		case age == 33*time.Second && (s.CPU.Allow < 29_000 || s.CPU.Allow > 30_000 || s.CPU.Reason.Code != model.SlackDoubted):
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
		t.Errorf("old data is still sold: %+v", last)
	}
}

// A2.4: a percentage above 100 sold more than the machine.
func TestWaterlineAboveCapacity(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.policy.CPU.Waterline = 1500
	if a := in.slack().CPU; a.Ceiling != 100_000 || a.Allow != 60_000 {
		t.Errorf("ceiling %d, allowance %d", a.Ceiling, a.Allow)
	}
}

// TestFixed: three and four times the CPUs can be sold, and the reason says what that risks. Memory is sold only as far as it
// is there.
func TestFixed(t *testing.T) {
	for _, times := range []int64{3, 4} {
		in := hundred(model.SellStatic)
		in.policy.CPU.Ratio, in.policy.Memory.Ratio = 1000*times, 1000*times
		s := in.run(12 * time.Minute)
		if s.CPU.Offer.Batch != 100_000*times || s.Memory.Offer.Batch != 240*gib {
			t.Errorf("%d times: offers %d and %d", times, s.CPU.Offer.Batch, s.Memory.Offer.Batch)
		}
		want := fmt.Sprintf("SoldFixed offer=%dmCPU allowance=60000mCPU missing=%dmCPU", 100_000*times, 100_000*times-60_000)
		if got := s.CPU.Reason.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWhole: CPUs that a pod has alone are not there for anybody, used or not, and none is counted twice.
func TestWhole(t *testing.T) {
	limit := func(name string, milli int64) model.Container {
		return model.Container{Name: name, RequestMilli: milli, LimitMilli: milli}
	}
	exclusive := func(container string, ids ...int) []model.OwnCPUs {
		return []model.OwnCPUs{{UID: "db", Container: container, Mode: model.CPUExclusive, CPUs: model.CPUs(ids...)}}
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
		{name: "a home that others use", own: []model.OwnCPUs{{UID: "db", Mode: model.CPUShare, CPUs: model.CPUs(0, 1)}}, want: 0},
		{name: "of a container", own: exclusive("db", 0, 1, 2, 3), containers: []model.Container{limit("db", 4000)}, want: 3000},
		{name: "beside a small sidecar", own: exclusive("db", 0, 1, 2, 3), containers: []model.Container{limit("db", 4000), limit("log", 300)}, want: 3300},
		{name: "beside one without a limit", own: exclusive("db", 0, 1, 2, 3), containers: []model.Container{limit("db", 4000), {Name: "log"}}, want: 4000},
		{name: "beside one that has ended", own: exclusive("db", 0, 1), containers: []model.Container{limit("db", 2000), {Name: "init", Init: true}}, want: 1000},
		{name: "of a pod that is gone", own: []model.OwnCPUs{{UID: "gone", Mode: model.CPUExclusive, CPUs: model.CPUs(4, 5)}}, want: 2000},
		{name: "the kubelet's", taken: model.CPUs(0, 1), containers: []model.Container{limit("db", 2000)}, want: 1000},
		{name: "the kubelet's, of nobody known", taken: model.CPUs(0, 1), containers: []model.Container{limit("db", 500)}, want: 2000},
		{name: "the kubelet's and ours are the same", own: exclusive("", 0, 1), taken: model.CPUs(0, 1), want: 1000},
		{name: "the kubelet's and ours", own: exclusive("", 0, 1), taken: model.CPUs(1, 2), want: 2000},
	} {
		in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
		in.own, in.node.Kubelet.TakenCPUs = c.own, c.taken
		in.add(model.Pod{UID: "db", QoS: model.Guaranteed, Containers: c.containers}, model.Amount{CPU: 1000, Memory: gib})
		cpu, memory := slack.Tally(&in.node, in.own)
		if cpu.Whole != c.want || memory.Whole != 0 || cpu.Online != 1000 {
			t.Errorf("%s: whole %d, online %d, want %d and 1000", c.name, cpu.Whole, cpu.Online, c.want)
		}
		if got := in.slack().CPU.Allow; got != 15_000-c.want {
			t.Errorf("%s: allowance %d, want %d", c.name, got, 15_000-c.want)
		}
	}
}

// TestSumIsTheRoom: whoever reads the reason can compute what is sold.
func TestSumIsTheRoom(t *testing.T) {
	for _, method := range methods[2:] {
		in := hundred(method)
		in.policy.CPU.Mid, in.pools = 200, model.Amount{CPU: 3000, Memory: gib}
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
