package shed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// ends reports whether a decision ends a container.
func (d Decision) ends() bool { return d.Signal == Terminate || d.Signal == Kill }

// TestHistories runs random workers, and checks what must hold at every signal.
func TestHistories(t *testing.T) {
	signals := map[Signal]int{}
	masters, hards := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		w.allowance = Allowance{MemoryMiB: int64(r.IntN(4000)), VCores: int64(r.IntN(8)), Until: w.now.Add(20 * time.Second)}
		var budget []time.Time // ends that were not at the hard mark
		var lastEnd Input
		for range 120 {
			w.shake(r)
			before := w.state
			d := w.second()
			if d.Signal == None {
				continue
			}
			in := w.look()
			in.Outcome = Outcome{}
			signals[d.Signal]++
			hard := in.Memory.reaches(w.settings.HardPercent) && in.Now.Sub(in.Memory.At) <= maxSampleAge
			fail := func(format string, args ...any) {
				t.Fatalf("seed %d at %s: %s %s (%s): %s\nstate %+v\ninput %+v", seed, w.at(), d.Signal, d.Container, d.Reason,
					fmt.Sprintf(format, args...), before, in)
			}
			i := slices.IndexFunc(in.Container, func(c Container) bool { return c.ID == d.Container })
			c := in.Container[i]
			rest := round{in: &in}
			switch {
			case !d.ends() && (c.Master || !c.Known || !c.Decommissions || !in.Now.Before(in.Allowance.Until)):
				fail("the decommission signal is for executors, before the deadline")
			case !d.ends():
				continue
			case !hard && !rest.over().any():
				fail("everything fits")
			case !hard && in.Now.Sub(in.Allowance.Until) < managerTime:
				fail("the ResourceManager has the first turn")
			case in.Now.Sub(in.Scanned) > maxSampleAge:
				fail("the processes were seen %s ago", in.Now.Sub(in.Scanned))
			case !lastEnd.Now.IsZero() && !in.Scanned.After(lastEnd.Now):
				fail("nothing was measured since the last one")
			}
			if c.Master && !c.Ended || !c.Known {
				masters++
				for _, other := range in.Container {
					if !other.Master && other.Known && other.Processes > 0 && !other.Ended &&
						other.Refused.IsZero() && !killed(before, other.ID) {
						fail("a master before %s", other.ID)
					}
				}
			}
			if hard {
				hards++
			} else if d.Signal == Terminate {
				budget = slices.DeleteFunc(budget, func(at time.Time) bool { return in.Now.Sub(at) >= time.Minute })
				if c.Refused.IsZero() || !c.Refused.Equal(w.now) {
					budget = append(budget, in.Now)
				}
				if len(budget) > w.settings.KillsPerMinute {
					fail("%d in a minute", len(budget))
				}
			}
			lastEnd = in
		}
	}
	t.Logf("%v, %d of masters, %d at the hard mark", signals, masters, hards)
	if signals[Decommission] < 100 || signals[Terminate] < 1000 || signals[Kill] < 100 || masters < 50 || hards < 100 {
		t.Errorf("the histories show too little: %v, %d of masters, %d at the hard mark", signals, masters, hards)
	}
}

func killed(s State, id string) bool {
	return slices.ContainsFunc(s.Tried, func(t Tried) bool { return t.Container == id && !t.Killed.IsZero() })
}

// TestAgainstDumb compares the choice of the first container with one that is made by looking at all pairs.
func TestAgainstDumb(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(r)
		w.settings.KillsPerMinute = 1
		w.limit = 0
		w.allowance = Allowance{MemoryMiB: 1, VCores: 1, Until: w.now.Add(-time.Hour)}
		in := w.look()
		d, _ := Decide(&in, State{})
		want := dumb(in.Container)
		if d.Container != want || (want != "") != (d.Signal == Terminate) {
			t.Fatalf("seed %d: %s %q, want %q, of %+v", seed, d.Signal, d.Container, want, in.Container)
		}
	}
}

// dumb returns the container that must leave first after the deadline: the one that no other must leave before.
func dumb(all []Container) string {
	othersLeft := false
	for _, c := range all {
		othersLeft = othersLeft || !c.Master && !c.Ended
	}
	for _, c := range all {
		if c.Processes == 0 || c.Ended || c.Master && othersLeft {
			continue
		}
		first := true
		for _, o := range all {
			if o.Processes == 0 || o.Ended || o.ID == c.ID || c.Master != o.Master && o.Master {
				continue
			}
			switch {
			case c.Master != o.Master:
				first = false
			case c.Opportunistic != o.Opportunistic && !c.Master:
				first = first && c.Opportunistic
			case !c.Started.Equal(o.Started):
				first = first && c.Started.After(o.Started)
			default:
				first = first && c.ID > o.ID
			}
		}
		if first {
			return c.ID
		}
	}
	return ""
}

// TestMonotone checks that with less allowed, or more memory in use, the rule does no less: it never goes from a signal
// to a milder one, nor from an action to waiting.
func TestMonotone(t *testing.T) {
	level := map[Signal]int{None: 0, Decommission: 1, Terminate: 2, Kill: 3}
	compared := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := randomWorld(r)
		w.allowance = Allowance{MemoryMiB: int64(r.IntN(6000)), VCores: int64(r.IntN(12)), Until: w.now.Add(15 * time.Second)}
		for range 60 {
			w.shake(r)
			state := w.state
			d := w.second()
			in := w.look()
			if in.Outcome = (Outcome{}); state.Until.IsZero() {
				continue
			}
			more := in
			switch r.IntN(3) {
			case 0:
				more.Allowance.MemoryMiB /= 2
			case 1:
				more.Allowance.VCores /= 2
			default:
				more.Memory.Used = more.Memory.Limit + more.Memory.Reclaimable
			}
			a, _ := Decide(&in, state)
			b, _ := Decide(&more, state)
			if compared++; level[b.Signal] < level[a.Signal] {
				t.Fatalf("seed %d at %s: %q with %+v, but %q with %+v; it was %q", seed, w.at(), a.Signal, in, b.Signal, more,
					d.Signal)
			}
		}
	}
	if compared < 10000 {
		t.Errorf("compared %d", compared)
	}
}

// TestPure checks that a round changes nothing that it was given.
func TestPure(t *testing.T) {
	w := newWorld()
	w.allowance = Allowance{MemoryMiB: 1024, VCores: 1, Until: start.Add(-time.Minute)}
	for _, id := range []string{"a", "b", "c"} {
		w.bodies = append(w.bodies, &body{obeys: -1, Container: Container{
			ID: id, MemoryMiB: 1024, VCores: 1, Holds: true, Started: start, Processes: 1,
		}})
	}
	for range 40 {
		w.now = w.now.Add(time.Second)
		in := w.look()
		in.Outcome = w.outcome
		state := w.state
		tried, ended := slices.Clone(state.Tried), slices.Clone(state.Ended)
		first, next := Decide(&in, state)
		again, _ := Decide(&in, state)
		if first.Signal != again.Signal || first.Container != again.Container ||
			!slices.Equal(tried, state.Tried) || !slices.Equal(ended, state.Ended) {
			t.Fatalf("at %s: %+v, then %+v", w.at(), first, again)
		}
		w.state, w.outcome = next, Outcome{}
		if first.Signal != None {
			w.signal(first)
		}
	}
	if len(w.log) < 4 {
		t.Errorf("little happened: %q", w.log)
	}
}

// TestLateAllowance checks that containers which were allocated after a deadline was met are left alone, although the
// allowance still says the deadline: a larger allowance is on its way.
func TestLateAllowance(t *testing.T) {
	w := newWorld()
	w.allowance = Allowance{MemoryMiB: 1024, VCores: 1, Until: start.Add(5 * time.Second)}
	add := func(id string) {
		w.bodies = append(w.bodies, &body{Container: Container{
			ID: id, MemoryMiB: 1024, VCores: 1, Holds: true, Started: w.now, Processes: 1,
		}})
	}
	add("a")
	add("b")
	for range 3 {
		w.second()
	}
	w.bodies = w.bodies[:1] // "b" ended in time
	for range 3 {
		w.second()
	}
	add("c")
	for range 60 {
		if d := w.second(); d.Signal != None {
			t.Fatalf("at %s: %s %s", w.at(), d.Signal, d.Container)
		}
	}
	w.allowance.Until = w.now.Add(time.Second) // another one
	for range 20 {
		w.second()
	}
	if len(w.bodies) != 1 || w.bodies[0].ID != "a" {
		t.Errorf("left are %+v; log %q", w.bodies, w.log)
	}
}
