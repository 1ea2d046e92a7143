package crew

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the steps with their times.
// The last line counts tasks that were ended at the deadline and before it, and workers as the status of the pool does.
//
//	reversible | refuses         the engine can take drains back, or takes none
//	worker NAME
//	rest | want NAME             whether it is to run
//	end | open NAME SECONDS      from now on; it must have stopped then; it is unwanted or wanted until then
//	room NAME yes|no             whether its node has room for its pod
//	cordon NAME                  its node takes no new pods, so whatever drains it deletes its pod
//	evicted | deleted NAME       its node, or somebody, asks for that
//	tight NAME yes|no            its node offers less than what is bound there
//	work NAME COUNT SECONDS      tasks that it has while it gets work, each for this time
//	slow | never | mute NAME     its pod does not start; it does not register; it does not answer
//	late NAME                    there is no time to ask it
//	well NAME
//	dies NAME                    its process ends, and its container is started again
//	coordinator away|back
//	run SECONDS
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld(t)
		do := func(command string) error { return w.command(strings.Fields(command)) }
		return golden.Blocks(t, content, do, func() string {
			fmt.Fprintf(&w.out, "killed=%d early=%d wanted=%d active=%d leaving=%d\n", w.kills, w.early, w.tally.Wanted,
				w.tally.Active, w.tally.Leaving)
			came := w.out.String()
			w = newWorld(t)
			return came
		})
	}, "testdata/*.case")
}

func (w *world) command(words []string) error {
	switch words[0] {
	case "reversible":
		w.set.Reversible = true
		return nil
	case "refuses":
		w.refuses = true
		return nil
	case "coordinator":
		w.silent = words[1] == "away"
		return nil
	case "invalid", "valid":
		w.set.Invalid = words[0] == "invalid"
		return nil
	case "run":
		seconds, err := strconv.Atoi(words[1])
		w.run(seconds)
		return err
	case "worker":
		w.workers = append(w.workers, &place{Worker: Worker{Worker: pool.Worker{Name: words[1], Wanted: true, Room: true}}})
		return nil
	}
	i := slices.IndexFunc(w.workers, func(p *place) bool { return len(words) > 1 && p.Name == words[1] })
	if i < 0 {
		return fmt.Errorf("no worker in %q", words)
	}
	p := w.workers[i]
	n := func(i int) int {
		v, _ := strconv.Atoi(words[i])
		return v
	}
	in := func(i int) time.Time { return w.now.Add(time.Duration(n(i)) * time.Second) }
	switch words[0] {
	case "rest", "want":
		p.Wanted, p.End = words[0] == "want", time.Time{}
	case "end", "open":
		p.Wanted, p.End = words[0] == "open", in(2)
	case "room":
		p.Room = words[2] == "yes"
	case "sold":
		p.Unsold = words[2] == "no"
	case "cordon":
		p.Cordoned, p.Pod.Deleting = true, true
	case "evicted":
		p.Pod.Evicted = true
	case "deleted":
		p.Pod.Deleting = true
	case "tight":
		p.Tight = words[2] == "yes"
	case "work":
		p.demand, p.takes = n(2), time.Duration(n(3))*time.Second
	case "slow":
		p.slow = true
	case "never":
		p.never = true
	case "mute":
		p.mute = true
	case "late":
		p.late = true
	case "well":
		p.slow, p.never, p.mute, p.late = false, false, false, false
	case "dies":
		w.early += len(p.jobs)
		w.gone(p)
		p.Pod.Started, p.boots, p.up = w.now, w.now.Add(boots), true
	default:
		return fmt.Errorf("unknown command %q", words)
	}
	return nil
}

// TestHistories lets random things happen to random workers, with a controller that is killed at any point. No task is
// ended before its worker's time is over, no drain is taken back where that is not possible, a worker whose time is
// over has no pod, and once nothing happens any more, every wanted worker is active and no other has a pod.
func TestHistories(t *testing.T) {
	for seed := range fixture.Times(uint64(400)) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		w.set.Reversible = seed%3 == 0
		w.crash = func() bool { return random.IntN(40) == 0 }
		for i := range 1 + random.IntN(4) {
			w.workers = append(w.workers, &place{Worker: Worker{
				Worker: pool.Worker{Name: "w" + strconv.Itoa(i), Wanted: true, Room: true},
			}})
		}
		died := 0
		for range 60 {
			died += happen(w, w.workers[random.IntN(len(w.workers))], random)
			w.run(1 + random.IntN(60))
			for _, p := range w.workers {
				late := 6 * time.Second // rounds of a controller that was killed come later
				if p.Pod != nil && !p.Pod.Marks.End.IsZero() && w.now.Sub(p.Pod.Marks.End) > late {
					t.Errorf("seed %d, %s: %s still has a pod, whose time was over at %s", seed, w.now.Sub(w.start), p.Name,
						p.Pod.Marks.End.Sub(w.start))
				}
			}
		}
		w.crash, w.silent, w.refuses = nil, false, false
		for _, p := range w.workers {
			p.never, p.slow, p.mute, p.late, p.Tight, p.Room, p.Cordoned = false, false, false, false, false, true, false
			p.End, p.Attempts = time.Time{}, 0
			p.takes = min(p.takes, time.Minute)
			if p.Pod != nil {
				p.Pod.Deleting, p.Pod.Evicted = false, false
			}
		}
		w.run(1800)
		for _, p := range w.workers {
			if active := w.state(p) == Serving && p.Pod != nil; active != p.Wanted || !p.Wanted && (p.Pod != nil || p.Over) {
				t.Errorf("seed %d: in the end %s is wanted=%v and active=%v: %+v", seed, p.Name, p.Wanted, active, p.Worker)
			}
		}
		if w.early > died || w.wasted > 0 {
			t.Errorf("seed %d: %d tasks ended early, of which %d died; %d drains were taken back in vain", seed, w.early, died,
				w.wasted)
		}
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, &w.out)
		}
	}
}

// happen lets something happen to a worker. It returns the tasks that die of it without anybody's decision.
func happen(w *world, p *place, random *rand.Rand) (died int) {
	switch random.IntN(16) {
	case 0:
		p.Wanted, p.End = false, time.Time{}
	case 1:
		p.Wanted, p.End = true, time.Time{}
	case 2:
		p.Wanted, p.End = false, w.now.Add(time.Duration(random.IntN(600))*time.Second)
	case 3:
		p.Wanted, p.End = true, w.now.Add(time.Duration(random.IntN(900))*time.Second)
	case 4:
		p.demand, p.takes = random.IntN(4), time.Duration(1+random.IntN(400))*time.Second
	case 5:
		p.Room = random.IntN(2) == 0
	case 6:
		p.Tight = random.IntN(2) == 0
	case 7, 8:
		if p.Pod != nil {
			p.Pod.Deleting = true
		}
	case 9:
		if p.Pod != nil {
			p.Pod.Evicted = true
		}
	case 10:
		if p.Pod != nil && p.up {
			died = len(p.jobs)
			w.early += died
			w.gone(p)
			p.Pod.Started, p.boots, p.up = w.now, w.now.Add(boots), true
		}
	case 11:
		w.silent = !w.silent
	case 12:
		p.slow = !p.slow
	case 13:
		w.refuses = !w.refuses
	case 14:
		p.demand = 0
	case 15:
		p.late = !p.late
	}
	return died
}

// TestCount counts a worker that is stopped as leaving while its pod is there, and one without room as not wanted.
func TestCount(t *testing.T) {
	in := Input{Workers: []Worker{
		{Worker: pool.Worker{Wanted: true, Pod: &pool.Pod{}}},
		{Worker: pool.Worker{Pod: &pool.Pod{}}},
		{Worker: pool.Worker{Pod: &pool.Pod{}}},
		{},
		{Worker: pool.Worker{Wanted: true}},
	}}
	steps := []Step{{Phase: Active}, {Phase: Draining}, {Phase: Stopped}, {Phase: Stopped}, {Phase: Stopped, Why: NoRoom}}
	if have, want := Count(&in, steps), (pool.Tally{Wanted: 1, Active: 1, Leaving: 2}); have != want {
		t.Errorf("%+v, want %+v", have, want)
	}
}

// TestTight compares [Tight] with the rule said plainly: without those that drain, the youngest go one by one until the
// rest fits.
func TestTight(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		offer := model.Amount{CPU: random.Int64N(8) * 1000, Memory: random.Int64N(8) << 30}
		others := model.Amount{CPU: random.Int64N(3) * 1000, Memory: random.Int64N(3) << 30}
		bound := others
		var seats []Seat
		for i := range random.IntN(5) {
			s := Seat{
				Worker: "w" + strconv.Itoa(i), Born: time.Unix(random.Int64N(1000), 0), Leaves: random.IntN(4) == 0,
				Request: model.Amount{CPU: 1000 * (1 + random.Int64N(2)), Memory: 1 << 30},
			}
			seats, bound = append(seats, s), bound.Plus(s.Request)
		}
		left := slices.DeleteFunc(slices.Clone(seats), func(s Seat) bool { return s.Leaves })
		slices.SortFunc(left, func(a, b Seat) int { return a.Born.Compare(b.Born) })
		fits := func() bool {
			sum := others
			for _, s := range left {
				sum = sum.Plus(s.Request)
			}
			return sum.CPU <= offer.CPU && sum.Memory <= offer.Memory
		}
		want := map[string]bool{}
		for !fits() && len(left) > 0 {
			want[left[len(left)-1].Worker] = true
			left = left[:len(left)-1]
		}
		if got := Tight(offer, bound, seats); !maps.Equal(got, want) {
			t.Fatalf("offer %+v, bound %+v, seats %+v: %v give way, want %v", offer, bound, seats, got, want)
		}
	}
}
