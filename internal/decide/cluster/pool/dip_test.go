package pool

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/fixture"
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

// TestSecondFall lets the slack fall again while containers have until a deadline. In time, they share it. Just before
// its end and after it, what fitted until then has the whole grace, from the end of the first deadline on.
func TestSecondFall(t *testing.T) {
	for _, c := range []struct {
		after int // seconds from the first fall to the second
		left  [3]int
	}{
		{10, [3]int{1, 1, 1}},
		{50, [3]int{1, 1, 1}},
		{58, [3]int{5, 5, 1}},
		{62, [3]int{5, 5, 1}},
	} {
		w, p := dipped(t, true, false)
		p.Allowance, p.more = Size{6000, 9}, 0
		w.run(c.after)
		p.Allowance = Size{1024, 1}
		left, at := [3]int{}, c.after
		for i, next := range []int{72, 110, 144} {
			w.run(next - at)
			left[i], at = len(p.jobs), next
		}
		if left != c.left || w.early+w.short > 0 {
			t.Errorf("after %d s: %d containers are left, want %d; %d were killed early\n%s", c.after, left, c.left,
				w.early+w.short, w.out.String())
		}
	}
}

// TestDrainInFall drains a worker while some of its containers have until a deadline, or lets the slack fall while it
// drains. Those that fit go on after the deadline, until the drain ends, unless it is decommissioned already.
func TestDrainInFall(t *testing.T) {
	for _, graceful := range []bool{false, true} {
		for _, after := range []int{-20, 0, 2, 20, 58} { // seconds from the fall to the drain
			if graceful && after < 0 {
				continue
			}
			w, p := dipped(t, graceful, false)
			if after < 0 {
				p.Pod.Deleting = true
				w.run(-after)
			}
			p.Allowance, p.more = Size{6000, 9}, 0
			if after >= 0 {
				w.run(after)
				p.Pod.Deleting = true
			}
			w.run(200)
			if len(p.jobs) != 5 || w.early+w.short > 0 || p.Pod == nil {
				t.Errorf("graceful %t, drained after %d s: %d containers are left, %d were killed early\n%s", graceful, after,
					len(p.jobs), w.early+w.short, w.out.String())
			}
			w.run(700)
			if p.Pod != nil && p.Pod.Deleting {
				t.Errorf("graceful %t, drained after %d s: it never ends\n%s", graceful, after, w.out.String())
			}
		}
	}
}

// TestLateFall has the ResourceManager hear of a second fall when it has ended what the first one left no room for, or
// not at all, as when it is busy or the controller is killed. What fitted until then has the whole grace. If it never
// hears of any, the pod ends.
func TestLateFall(t *testing.T) {
	for _, deaf := range []int{10, 40, 58, 70, 1000} { // seconds after the second fall
		w, p := dipped(t, true, false)
		p.Allowance, p.more = Size{6000, 9}, 0
		w.run(10)
		p.Allowance = Size{1024, 1}
		fell := w.now
		hears := fell.Add(time.Duration(deaf) * time.Second)
		w.lose = func() fate {
			if w.now.Before(hears) {
				return unheard
			}
			return arrives
		}
		w.run(300)
		ended := p.Pod == nil || p.Pod.Created.After(fell)
		if w.short+w.early > 0 || ended != (deaf == 1000) || !ended && len(p.jobs) != 1 {
			t.Errorf("deaf for %d s: %d were killed early, its pod ended: %t, %d containers are left\n%s", deaf,
				w.short+w.early, ended, len(p.jobs), w.out.String())
		}
	}
}

// TestFallAfterEnd has the ResourceManager hear of a second fall late. In between, containers end by themselves until
// the others fit into the first size. These have the whole grace, although the mark has the second size already.
func TestFallAfterEnd(t *testing.T) {
	w, p := dipped(t, true, false)
	p.Allowance, p.more = Size{6000, 9}, 0
	w.run(10)
	deaf := true
	w.lose = func() fate {
		if deaf {
			return unheard
		}
		return arrives
	}
	p.Allowance = Size{1024, 1}
	w.run(10)
	p.jobs, p.demand = p.jobs[:5], 5
	deaf = false
	w.run(55) // beyond the first deadline
	if len(p.jobs) != 5 {
		t.Errorf("%d of 5 containers run\n%s", len(p.jobs), w.out.String())
	}
	w.run(20)
	if len(p.jobs) != 1 || w.early > 0 {
		t.Errorf("in the end, %d containers run\n%s", len(p.jobs), w.out.String())
	}
}

// TestFallsAtRandom lets the slack of full workers go up and down, while resizes or their answers are lost and the
// controller is killed now and then. No container ends before it had the grace since it did not fit.
func TestFallsAtRandom(t *testing.T) {
	kills := 0
	for seed := range fixture.Times(uint64(60)) {
		r := rand.New(rand.NewPCG(seed, 12))
		w, p := dipped(t, r.IntN(2) == 0, r.IntN(3) == 0)
		p.takes = time.Duration(20+r.IntN(100)) * time.Second
		bad := r.IntN(4)
		w.crash = func() bool { return r.IntN(30) < bad }
		w.lose = func() fate { return []fate{arrives, unheard, unknown}[max(r.IntN(20)-17, 0)*min(bad, 1)] }
		for range 100 {
			p.Allowance, p.more = Size{int64(r.IntN(20000)), int64(r.IntN(10))}, int64(r.IntN(3))
			w.run(1 + r.IntN(50))
		}
		if kills += w.kills; w.short+w.early > 0 {
			t.Fatalf("seed %d: %d were killed without the grace, %d before their time\n%s", seed, w.short, w.early,
				w.out.String())
		}
	}
	if kills == 0 {
		t.Error("nothing was killed, so this shows nothing")
	}
}
