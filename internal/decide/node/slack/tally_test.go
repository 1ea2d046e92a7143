package slack_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// TestTally compares Tally with sums computed in a simpler way.
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
				if !p.Ended {
					want.Unsold += p.RequestMilli
				}
			case model.ClassSystem:
				want.Daemons += milli
			}
			if young && !p.Ended && p.Class != model.ClassBE {
				want.Unmeasured += max(p.RequestMilli-milli, 0)
			}
			for _, o := range in.own {
				if o.UID == p.UID && o.Mode == model.CPUExclusive {
					want.IdleExclusive += max(int64(o.CPUs.Len())*1000-milli, 0)
				}
			}
		}
		all := l.Classes[0].CPU.Milli
		want.Online = all - want.Batch - want.Daemons
		want.System = l.Node.CPU.Milli - all
		if got, _ := slack.Tally(&in.node, in.own, nil); got != want {
			return fmt.Errorf("%+v, want %+v", got, want)
		}
		return nil
	})
}

// TestSkewed checks that contradictory measurements produce no negative numbers.
func TestSkewed(t *testing.T) {
	in := newInput(model.Amount{CPU: 16_000, Memory: 64 * gib}, model.SellRealtime, 1000)
	in.add(model.Pod{UID: "job", Class: model.ClassBE}, model.Amount{CPU: 4000, Memory: gib})
	in.node.Load.Classes[model.Guaranteed].CPU.Milli = 3900
	in.node.Load.Node.CPU.Milli = 3800
	if cpu, _ := slack.Tally(&in.node, nil, nil); cpu.Online != 0 || cpu.System != 0 || cpu.Batch != 4000 {
		t.Errorf("%+v", cpu)
	}
}

// TestTerms checks the effect of each term on the allowance and on the room.
func TestTerms(t *testing.T) {
	for _, c := range []struct {
		name                                string
		change                              func(in *input)
		allow, room                         int64 // of CPU, in milli-cores
		allowMemory, roomMemory, midPercent int64 // in GiB; Room.Mid in hundredths of the CPUs
	}{
		{"nothing", func(*input) {}, 60_000, 50_000, 240, 200, 0},
		{"reserved, unused", func(in *input) {
			in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedMemory = 10_000, 40*gib
		}, 50_000, 40_000, 200, 160, 0},
		{"reserved CPUs instead", func(in *input) {
			in.node.Kubelet.ReservedMilli, in.node.Kubelet.ReservedCPUs = 90_000, model.CPUs(0, 1, 2, 3, 4)
		}, 55_000, 45_000, 240, 200, 0},
		{"allocatable shows a higher reservation", func(in *input) {
			in.node.Allocatable = model.Amount{CPU: 90_000, Memory: 360 * gib}
		}, 50_000, 40_000, 200, 160, 0},
		{"edited down, settings known", func(in *input) {
			in.node.Capacity = model.Amount{CPU: 92_000, Memory: 400 * gib}
			in.node.Allocatable = model.Amount{CPU: 90_000, Memory: 400 * gib}
		}, 50_000, 40_000, 240, 200, 0},
		{"edited down, settings unknown", func(in *input) {
			in.node.Kubelet.Known = false
			in.node.Capacity = model.Amount{CPU: 92_000, Memory: 400 * gib}
			in.node.Allocatable = model.Amount{CPU: 90_000, Memory: 400 * gib}
		}, 42_000, 32_000, 240, 200, 0},
		{"the kernel's watermark", func(in *input) { in.node.Load.Watermark = 40 * gib }, 60_000, 50_000, 200, 160, 0},
		{"mid", func(in *input) { in.policy.CPU.Mid = 300 }, 60_000, 50_000, 240, 200, 30},
		{"mid that lasts less than a day", func(in *input) {
			in.policy.CPU.Mid, in.peaks.CPU[model.Day].Value = 300, 90_000
		}, 60_000, 50_000, 240, 200, 10},
		{"idle exclusive CPUs", func(in *input) {
			in.own = []model.OwnCPUs{{UID: "gone", Mode: model.CPUExclusive, CPUs: model.CPUs(0, 1)}}
		}, 58_000, 48_000, 240, 200, 0},
		{"waterline", func(in *input) { in.policy.CPU.Waterline = 650 }, 25_000, 15_000, 240, 200, 0},
		{"a pod that has ended", func(in *input) {
			in.bind(model.Pod{UID: "x", RequestMilli: 9000, MemoryRequest: gib, Ended: true})
		}, 60_000, 50_000, 240, 200, 0},
		{"CPUs are offline", func(in *input) { in.node.Load.CPUMilli = 90_000 }, 50_000, 40_000, 240, 200, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := hundred(model.SellPredicted)
			c.change(in)
			s := in.slack()
			cpu, memory := &s.CPU, &s.Memory
			if cpu.Allow != c.allow || cpu.Room.Mid+cpu.Room.Batch != c.room || cpu.Room.Mid != c.midPercent*1000 {
				t.Errorf("CPU: allowance %d, room %+v", cpu.Allow, cpu.Room)
			}
			if memory.Allow != c.allowMemory*gib || memory.Room.Batch != c.roomMemory*gib {
				t.Errorf("memory: allowance %d GiB, room %d GiB", memory.Allow/gib, memory.Room.Batch/gib)
			}
		})
	}
}

// TestDayUnknown checks that, without prediction, nothing is sold as mid while the peak of the day is unknown.
func TestDayUnknown(t *testing.T) {
	in := hundred(model.SellRealtime)
	in.policy.CPU.Mid = 300
	in.peaks.CPU[model.Day].Known = false
	if got := in.slack().CPU.Room; got != (model.TierAmounts{Batch: 60_000}) {
		t.Errorf("room %+v", got)
	}
	in.policy.CPU.Method = model.SellPredicted // then the peak is a high estimate
	if got := in.slack().CPU.Room; got != (model.TierAmounts{Mid: 30_000, Batch: 20_000}) {
		t.Errorf("room %+v", got)
	}
}

// TestClockSetBack checks that setting the wall clock back withdraws nothing, because it makes no pod new.
func TestClockSetBack(t *testing.T) {
	for _, method := range methods {
		in := hundred(method)
		in.node.Pods[0].RequestMilli, in.node.Pods[0].MemoryRequest = 100_000, 400*gib
		in.node.Pods[0].Created = in.node.Now.Add(-10 * time.Minute)
		before := in.slack()
		in.node.Now = in.node.Now.Add(-time.Hour)
		if d := cmp.Diff(before, in.slack()); d != "" {
			t.Errorf("%s: set back by an hour (-before +after):\n%s", method, d)
		}
	}
}
