package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/fixture"
)

// dipped returns a world with a worker that has grown and is full of containers that run for long. margin lets the
// controller watch the node for long enough to know the margin of memory.
func dipped(t *testing.T, graceful, margin bool) (*world, *place) {
	w := newWorld(t)
	w.set.Graceful = graceful
	p := &place{
		Worker: Worker{Name: "w0", Wanted: true, Room: true, Allowance: Size{20000, 9}}, read: true, more: 1,
		each: Size{1024, 1}, demand: 16, takes: 24 * time.Hour,
	}
	w.workers = append(w.workers, p)
	if w.run(150); margin {
		w.run(4000)
	}
	if len(p.jobs) != 8 {
		t.Fatalf("%d containers run\n%s", len(p.jobs), w.out.String())
	}
	return w, p
}

// TestDipKillsNothing takes the slack away for less than the time that containers have, and gives it back. Whether the
// worker stays or drains, all its containers run on: the deadline goes with its cause.
func TestDipKillsNothing(t *testing.T) {
	for _, drains := range []string{"", "before", "meanwhile", "after"} {
		for _, to := range []Size{{1024, 1}, {20000, 2}, {3000, 9}} {
			for _, seconds := range []int{1, 4, 50} {
				for _, kind := range []string{"graceful", "plain", "graceful, margin", "plain, margin"} {
					w, p := dipped(t, kind[0] == 'g', len(kind) > len("graceful"))
					about := fmt.Sprintf("%s: %d s at %s, drains %q", kind, seconds, to, drains)
					drain := func(when string) {
						if drains == when {
							p.Pod.Deleting = true
							w.run(7)
						}
					}
					drain("before")
					was := p.Allowance
					p.Allowance, p.more = to, 0
					w.run(seconds)
					if drain("meanwhile"); drains == "meanwhile" && seconds+7 >= 60 {
						continue
					}
					p.Allowance, p.more = was, 1
					w.run(7)
					drain("after")
					w.run(150)
					if len(p.jobs) != 8 || w.kills+w.early > 0 {
						t.Errorf("%s: %d of 8 containers run, %d were killed at their time and %d before\n%s", about,
							len(p.jobs), w.kills, w.early, w.out.String())
						return
					}
				}
			}
		}
	}
}

// TestDipsAtRandom lets the slack come and go, never away for as long as containers have, while the controller is
// killed now and then. Nothing is killed.
func TestDipsAtRandom(t *testing.T) {
	for seed := range fixture.Times(uint64(30)) {
		r := rand.New(rand.NewPCG(seed, 11))
		w, p := dipped(t, r.IntN(2) == 0, r.IntN(3) == 0)
		was := p.Allowance
		w.crash = func() bool { return r.IntN(30) == 0 }
		for range 30 {
			p.Allowance, p.more = Size{int64(r.IntN(20000)), int64(r.IntN(10))}, int64(r.IntN(3))
			w.run(1 + r.IntN(50))
			p.Allowance, p.more = was, 1
			w.run(8 + r.IntN(100))
			if r.IntN(10) == 0 && !p.Pod.Deleting {
				p.Pod.Deleting, w.set.Drain = true, 10*time.Hour
			}
		}
		if len(p.jobs) != 8 || w.kills+w.early > 0 {
			t.Fatalf("seed %d: %d of 8 containers run, %d were killed at their time and %d before\n%s", seed, len(p.jobs),
				w.kills, w.early, w.out.String())
		}
	}
}

// TestLastingFallKills checks that a fall that lasts ends what does not fit, and no more than that: the part that came
// back before the deadline is kept.
func TestLastingFallKills(t *testing.T) {
	for _, c := range []struct {
		back Size // after 20 s
		left int
	}{
		{Size{1024, 1}, 1}, // the floor
		{Size{6000, 9}, 5},
		{Size{20000, 4}, 3}, // whole steps above the floor
		{Size{20000, 9}, 8},
	} {
		w, p := dipped(t, true, false)
		p.Allowance, p.more = Size{1024, 1}, 0
		w.run(20)
		p.Allowance = c.back
		w.run(100)
		if len(p.jobs) != c.left || w.early > 0 {
			t.Errorf("back to %s: %d containers are left, want %d; %d were killed early\n%s", c.back, len(p.jobs), c.left,
				w.early, w.out.String())
		}
	}
}
