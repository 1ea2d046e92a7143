package slack_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// TestTally compares with sums that are made the long way round.
func TestTally(t *testing.T) {
	each(t, 10, func(r *rand.Rand, in *input) error {
		l := in.node.Load
		for _, u := range in.usages() {
			if r.IntN(3) == 0 {
				u.CPU.At -= time.Duration(r.IntN(90)) * time.Second
			}
		}
		want := model.Use{Measured: true, Age: max(l.Clock-l.Node.CPU.At, l.Clock-l.Classes[0].CPU.At)}
		used := map[string]*model.PodUsage{}
		for i := range l.Pods {
			used[l.Pods[i].UID] = &l.Pods[i]
		}
		var daemons int64
		for _, p := range in.node.Pods {
			u := used[p.UID]
			young := u == nil || in.node.Now.Before(p.Created.Add(time.Minute))
			counts := p.Class == model.ClassBE || p.Class == model.ClassSystem || young && !p.Ended
			for _, o := range in.own {
				counts = counts || o.UID == p.UID && o.Mode == model.CPUExclusive
			}
			var milli int64
			if u != nil {
				milli = u.CPU.Milli
				if counts {
					want.Age = max(want.Age, l.Clock-u.CPU.At)
				}
			}
			switch p.Class {
			case model.ClassBE:
				want.Batch += milli
			case model.ClassSystem:
				daemons += milli
			}
			if young && !p.Ended && p.Class != model.ClassBE {
				want.Unmeasured += max(p.RequestMilli-milli, 0)
			}
			for _, o := range in.own {
				if o.UID == p.UID && o.Mode == model.CPUExclusive {
					want.Whole += max(int64(o.CPUs.Len())*1000-milli, 0)
				}
			}
		}
		all := l.Classes[0].CPU.Milli
		want.Online = all - want.Batch - daemons
		want.System = l.Node.CPU.Milli - all + daemons
		if got, _ := slack.Tally(&in.node, in.own); got != want {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}

// TestSkewed: measurements that contradict each other make nothing negative.
func TestSkewed(t *testing.T) {
	in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
	in.add(model.Pod{UID: "job", Class: model.ClassBE}, model.Amount{CPU: 4000, Memory: gib})
	in.node.Load.Classes[model.Guaranteed].CPU.Milli = 3900
	in.node.Load.Node.CPU.Milli = 3800
	if cpu, _ := slack.Tally(&in.node, nil); cpu.Online != 0 || cpu.System != 0 || cpu.Batch != 4000 {
		t.Errorf("%+v", cpu)
	}
}

// TestTerms: what each term takes from the allowance and from the room.
func TestTerms(t *testing.T) {
	for _, c := range []struct {
		name                                string
		change                              func(in *input)
		allow, room                         int64 // of CPU, in milli-cores
		allowMemory, roomMemory, midPercent int64 // in GiB; Room.Mid in hundredths of the CPUs
	}{
		{"nothing", func(*input) {}, 60_000, 50_000, 240, 200, 0},
		{"reserved, unused", func(in *input) { in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = 10_000, 40*gib }, 50_000, 40_000, 200, 160, 0},
		{"reserved CPUs instead", func(in *input) {
			in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedCPUs = 90_000, model.CPUs(0, 1, 2, 3, 4)
		}, 55_000, 45_000, 240, 200, 0},
		{"what is allocatable shows more", func(in *input) { in.node.Allocatable = model.Amount{CPU: 90_000, Memory: 360 * gib} }, 50_000, 40_000, 200, 160, 0},
		{"edited down, settings known", func(in *input) {
			in.node.Capacity, in.node.Allocatable = model.Amount{CPU: 92_000, Memory: 400 * gib}, model.Amount{CPU: 90_000, Memory: 400 * gib}
		}, 50_000, 40_000, 240, 200, 0},
		{"edited down, settings unknown", func(in *input) {
			in.node.Kubelet.Known = false
			in.node.Capacity, in.node.Allocatable = model.Amount{CPU: 92_000, Memory: 400 * gib}, model.Amount{CPU: 90_000, Memory: 400 * gib}
		}, 42_000, 32_000, 240, 200, 0},
		{"the kernel's", func(in *input) { in.node.Load.Watermark = 40 * gib }, 60_000, 50_000, 200, 160, 0},
		{"pools", func(in *input) { in.pools = model.Amount{CPU: 5000, Memory: 40 * gib} }, 60_000, 45_000, 240, 160, 0},
		{"mid", func(in *input) { in.policy.CPU.Mid = 300 }, 60_000, 50_000, 240, 200, 30},
		{"mid that lasts less than a day", func(in *input) {
			in.policy.CPU.Mid, in.peaks.CPU[model.Day].Value = 300, 90_000
		}, 60_000, 50_000, 240, 200, 10},
		{"whole", func(in *input) {
			in.own = []model.OwnCPUs{{UID: "gone", Mode: model.CPUExclusive, CPUs: model.CPUs(0, 1)}}
		}, 58_000, 48_000, 240, 200, 0},
		{"waterline", func(in *input) { in.policy.CPU.Waterline = 650 }, 25_000, 15_000, 240, 200, 0},
		{"a pod that has ended", func(in *input) { in.bind(model.Pod{UID: "x", RequestMilli: 9000, MemoryRequest: gib, Ended: true}) }, 60_000, 50_000, 240, 200, 0},
		{"CPUs are offline", func(in *input) { in.node.Load.CPUMilli = 90_000 }, 50_000, 40_000, 240, 200, 0},
	} {
		in := hundred(model.SellPredicted)
		c.change(in)
		s := in.slack()
		cpu, memory := &s.CPU, &s.Memory
		if cpu.Allow != c.allow || cpu.Room.Mid+cpu.Room.Batch != c.room || memory.Allow != c.allowMemory*gib || memory.Room.Batch != c.roomMemory*gib || cpu.Room.Mid != c.midPercent*1000 {
			t.Errorf("%s: allowance %d, %d GiB; room %+v, %d GiB", c.name, cpu.Allow, memory.Allow/gib, cpu.Room, memory.Room.Batch/gib)
		}
	}
}

// TestDayUnknown: by a method that does not predict, nothing is sold for a day that nobody knows.
func TestDayUnknown(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.policy.CPU.Mid = 300
	in.peaks.CPU[model.Day].Known = false
	if got := in.slack().CPU.Room; got != (model.TierAmounts{Batch: 60_000}) {
		t.Errorf("room %+v", got)
	}
	in.policy.CPU.Method = model.SellPredicted // then it is a guess on the high side
	if got := in.slack().CPU.Room; got != (model.TierAmounts{Mid: 30_000, Batch: 20_000}) {
		t.Errorf("room %+v", got)
	}
}

// TestClockSetBack checks that nothing is withdrawn because the wall clock was set back: no pod becomes new by it.
func TestClockSetBack(t *testing.T) {
	for _, method := range methods {
		in := hundred(method)
		in.node.Pods[0].RequestMilli, in.node.Pods[0].MemoryRequest = 100_000, 400*gib
		in.node.Pods[0].Created = in.node.Now.Add(-10 * time.Minute)
		before := in.slack()
		in.node.Now = in.node.Now.Add(-time.Hour)
		if after := in.slack(); !reflect.DeepEqual(after, before) {
			t.Errorf("%s: set back by an hour, an offer of %d and %d becomes %d and %d", method,
				before.CPU.Room.Batch, before.Memory.Room.Batch, after.CPU.Room.Batch, after.Memory.Room.Batch)
		}
	}
}
