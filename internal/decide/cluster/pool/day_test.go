package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/fixture"
)

// TestDay has days of a pool on virtual time: a window, jobs, and every few minutes something that goes wrong or
// changes. The slack is away for less than containers have, a ResourceManager is silent or another one becomes active,
// somebody edits the spec or deletes a pod, the controller is killed, and what waits is not known. Containers take less
// than a drain does. So none of them is killed, not even at a deadline.
func TestDay(t *testing.T) {
	for seed := range fixture.Times(uint64(16)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			d := newDay(t, seed)
			for hour := range 24 {
				d.window(hour)
				for end := d.now.Add(time.Hour); d.now.Before(end); {
					d.event()
				}
			}
			for i, p := range d.workers {
				if p.lost > 0 {
					t.Logf("worker %d: Hadoop lost %d containers with a ResourceManager", i, p.lost)
				}
			}
			t.Logf("%d events: %v; %d containers ended by themselves", d.events, d.kinds, d.ended)
			if d.kills+d.early > 0 || d.ended < 1000 {
				t.Errorf("%d containers ended by themselves; %d were killed at their time, %d before\n%s", d.ended, d.kills,
					d.early, d.out.String())
			}
		})
	}
}

// day is a world with a day's events.
type day struct {
	*world
	r      *rand.Rand
	events int
	kinds  map[string]int
	slack  Size // of each node at quiet times
}

func newDay(t *testing.T, seed uint64) *day {
	r := rand.New(rand.NewPCG(seed, 24))
	d := &day{world: newWorld(t), r: r, kinds: map[string]int{}, slack: Size{20000, 9}}
	d.set.Graceful, d.set.Drain, d.sized = r.IntN(2) == 0, 30*time.Minute, true
	d.set.Window = time.Duration(20+r.IntN(300)) * time.Second
	for i := range 5 {
		d.workers = append(d.workers, &place{
			Worker: Worker{Name: fmt.Sprintf("w%d", i), Wanted: true, Room: true, Allowance: d.slack}, read: true, more: 1,
			each: Size{1024, 1}, demand: 2 + r.IntN(6), takes: time.Duration(30+r.IntN(400)) * time.Second,
		})
	}
	d.crash = func() bool { return r.IntN(400) == 0 }
	return d
}

// window closes the pool from 18:00 to 20:00. Workers drain in the 45 minutes before.
func (d *day) window(hour int) {
	for _, p := range d.workers {
		switch hour {
		case 17:
			p.Wanted, p.End = false, d.now.Add(45*time.Minute)
		case 20:
			p.Wanted, p.End = true, time.Time{}
		}
	}
}

// event lets something happen, and time pass.
func (d *day) event() {
	r, p := d.r, d.workers[d.r.IntN(len(d.workers))]
	d.events++
	kinds := []string{"dip", "dip of all", "silence", "dip in a silence", "failover", "size", "step", "drain", "deletion",
		"cordon", "demand", "unknown demand", "jobs"}
	kind := kinds[r.IntN(len(kinds))]
	d.kinds[kind]++
	d.say("%s %s", kind, p.Name)
	switch kind {
	case "dip":
		d.dip(p)
	case "dip of all":
		d.dip(d.workers...)
	case "silence", "dip in a silence":
		d.silent = true
		if d.run(2 + r.IntN(200)); kind != "silence" {
			d.dip(p)
		}
		d.silent = false
		d.answered()
	case "failover":
		for _, p := range d.workers { // what it kills is Hadoop's: those of a graceful decommission
			if m := p.manager(); m != nil && m.State == decommissioning {
				p.lost += len(p.jobs)
			}
		}
		d.failover()
	case "size":
		d.set.Floor = Size{1024 << r.IntN(3), int64(1 + r.IntN(2))}
		d.set.Ceiling = d.set.Floor.Or(Size{4096 * int64(1+r.IntN(4)), int64(2 + r.IntN(7))})
		for _, p := range d.workers {
			if p.Pod != nil {
				p.Pod.Outdated = true
			}
		}
	case "step":
		d.set.Step = Size{1024 << r.IntN(3), int64(1 + r.IntN(3))}
		d.set.Pause = time.Duration(10+r.IntN(60)) * time.Second
	case "drain":
		d.set.Grace = time.Duration(60+r.IntN(60)) * time.Second
	case "deletion", "cordon":
		if p.Pod != nil {
			p.Pod.Deleting, p.Cordoned = true, kind == "cordon"
		}
		if kind == "cordon" {
			d.run(r.IntN(600))
			p.Cordoned = false
		}
	case "demand":
		d.follow = !d.follow
	case "unknown demand":
		d.secret = true
		d.run(r.IntN(200))
		d.secret = false
	case "jobs":
		p.demand = r.IntN(8)
	}
	d.run(10 + r.IntN(240))
}

// dip takes the slack of nodes away for less than containers have, and gives it back.
func (d *day) dip(which ...*place) {
	for _, p := range which {
		p.Allowance, p.more = Size{int64(d.r.IntN(20000)), int64(d.r.IntN(10))}, int64(d.r.IntN(2))
	}
	d.run(1 + d.r.IntN(50))
	for _, p := range which {
		p.Allowance, p.more = d.slack, 1
	}
	d.run(8)
}
