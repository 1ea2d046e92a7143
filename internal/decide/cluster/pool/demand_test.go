package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/fixture"
)

// TestFollowDemandAtRandom lets containers wait at random, while the ResourceManager falls silent, does not say what
// waits or is replaced, and the controller is killed. No worker with containers leaves, no container ends before its
// time, all of them run in the end, and then no worker is left.
func TestFollowDemandAtRandom(t *testing.T) {
	for seed := range fixture.Times(uint64(200)) {
		r := rand.New(rand.NewPCG(seed, 35))
		w := newWorld(t)
		w.follow, w.unit, w.set.Graceful = true, Size{512 + int64(r.IntN(3))*512, 1}, r.IntN(2) == 0
		w.waits = job{w.now, w.now.Add(time.Duration(1+r.IntN(90)) * time.Second)}
		for i := range 4 {
			w.workers = append(w.workers, &place{
				Worker: Worker{Name: fmt.Sprintf("w%d", i), Wanted: true, Room: true, Allowance: Size{9000, 5}}, read: true,
			})
		}
		w.crash = func() bool { return r.IntN(40) == 0 }
		asked, busy := 0, map[*place]int{} // seconds for which a worker drains with containers
		for range 40 {
			switch r.IntN(6) {
			case 0, 1:
				n := 1 + r.IntN(6)
				w.waiting, asked = w.waiting+n, asked+n
			case 2:
				w.silent = !w.silent
			case 3:
				w.secret = !w.secret
			case 4:
				if r.IntN(3) == 0 {
					if killed := w.failover(); killed > 0 {
						t.Fatalf("seed %d: a worker with %d containers was decommissioned\n%s", seed, killed, w.out.String())
					}
				}
			}
			for range r.IntN(70) {
				w.run(1)
				for _, p := range w.workers {
					if busy[p]++; p.Pod == nil || p.Pod.Marks.Leaving.IsZero() || len(p.jobs) == 0 {
						busy[p] = 0
					}
					if busy[p] > 6 { // what landed just before the drain ends it
						t.Fatalf("seed %d: %s drains, and has %d containers\n%s", seed, p.Name, len(p.jobs), w.out.String())
					}
				}
			}
		}
		w.silent, w.secret, w.crash = false, false, nil
		w.run(1500)
		if w.ended != asked || w.kills+w.early > 0 {
			t.Fatalf("seed %d: %d of %d containers ended, %d wait; %d were killed at their time and %d before\n%s", seed,
				w.ended, asked, w.waiting, w.kills, w.early, w.out.String())
		}
		for _, p := range w.workers {
			if p.Pod != nil || p.excluded {
				t.Fatalf("seed %d: nothing waits, and %s is there\n%s", seed, p.Name, w.out.String())
			}
		}
	}
}

// TestDoubtKeepsWorkers checks that an idle worker is called off only while the demand is known to be nothing.
func TestDoubtKeepsWorkers(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		change func(in *Input, w *Worker)
		stays  bool
	}{
		{"nothing waits", func(*Input, *Worker) {}, false},
		{"the pool does not follow the demand", func(in *Input, _ *Worker) { in.Demand.Follow = false }, true},
		{"something waits", func(in *Input, _ *Worker) { in.Demand.Pending.VCores = 1 }, true},
		{"never read", func(in *Input, _ *Worker) { in.Demand.Read = time.Time{} }, true},
		{"read a minute ago", func(in *Input, _ *Worker) { in.Demand.Read = now.Add(-time.Minute) }, true},
		{"silent", func(in *Input, _ *Worker) { in.RM.Known = false }, true},
		{"another ResourceManager", func(in *Input, _ *Worker) { in.RM.Since = now.Add(-time.Minute) }, true},
		{"a container", func(_ *Input, w *Worker) { w.Managers[0].Containers = 1 }, true},
		{"a container by its size", func(_ *Input, w *Worker) { w.Managers[0].Used.VCores = 1 }, true},
		{"an opportunistic container", func(_ *Input, w *Worker) { w.Managers[0].Opportunistic = 1 }, true},
		{"not registered yet", func(_ *Input, w *Worker) { w.Managers, w.Pod.Marks.Registered = nil, false }, false},
		{"an invalid spec", func(in *Input, _ *Worker) { in.Settings.Invalid = true }, true},
		{"idle for too short", func(in *Input, _ *Worker) { in.Settings.Window = time.Hour }, true},
	} {
		in := Input{
			Now: now, Settings: Settings{Window: 10 * time.Minute, Floor: Size{1024, 1}}, RM: RM{Known: true},
			Demand: Demand{Follow: true, Read: now.Add(-5 * time.Second)},
			Workers: []Worker{{
				Name: "w0", Wanted: true, Room: true, Pod: &Pod{Marks: Marks{Registered: true}},
				Managers: []Manager{{State: running, Total: Size{1024, 1}}},
			}},
		}
		c.change(&in, &in.Workers[0])
		before := map[string]idle{"w0": {now.Add(-15 * time.Minute), now.Add(-2 * time.Second)}}
		FollowDemand(&in, Following{idle: before})
		if in.Workers[0].Wanted != c.stays {
			t.Errorf("%s: it stays: %v, want %v", c.name, in.Workers[0].Wanted, c.stays)
		}
	}
}

// TestFollowDemandIdleMemory checks that what was not seen for a while does not count as idle time, and that a worker
// that was left out of a round keeps its own.
func TestFollowDemandIdleMemory(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	in := Input{Now: now, RM: RM{Known: true}, Demand: Demand{Follow: true, Read: now}}
	before := map[string]idle{
		"left out": {now.Add(-time.Hour), now.Add(-2 * time.Second)},
		"long ago": {now.Add(-time.Hour), now.Add(-time.Minute)},
	}
	after := FollowDemand(&in, Following{idle: before}).idle
	if len(after) != 1 || after["left out"] != before["left out"] {
		t.Errorf("%v", after)
	}
}
