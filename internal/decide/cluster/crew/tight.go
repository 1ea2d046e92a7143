package crew

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Seat is a worker's pod on a node.
type Seat struct {
	Worker  string
	Born    time.Time    // when its pod was started; zero: it was not, so it is the youngest
	Request model.Amount // of its pod
	Leaves  bool         // it drains already
}

// Tight returns the workers that must stop because their node offers less than its bound pods request: the youngest
// ones, as few as necessary, without those that already drain. It never selects pods of others.
func Tight(offer, bound model.Amount, seats []Seat) map[string]bool {
	cpu, memory := bound.CPU-offer.CPU, bound.Memory-offer.Memory
	var stay []Seat
	for _, s := range seats {
		if s.Leaves {
			cpu, memory = cpu-s.Request.CPU, memory-s.Request.Memory
		} else {
			stay = append(stay, s)
		}
	}
	slices.SortFunc(stay, func(a, b Seat) int {
		switch {
		case a.Born.Equal(b.Born):
			return cmp.Compare(b.Worker, a.Worker)
		case a.Born.IsZero():
			return -1
		case b.Born.IsZero():
			return 1
		}
		return b.Born.Compare(a.Born)
	})
	all := map[string]bool{}
	for _, s := range stay {
		if cpu <= 0 && memory <= 0 {
			break
		}
		all[s.Worker] = true
		cpu, memory = cpu-s.Request.CPU, memory-s.Request.Memory
	}
	return all
}

// Tally counts workers for the status of their pool.
type Tally struct {
	Wanted  int // that are to run now, and that their nodes have room for
	Active  int // that get work
	Leaving int // that drain or stop
}

// Count counts workers by the steps of [Next] for the same input. A worker whose node has no room does not count as
// wanted: otherwise a pool on all nodes would never be complete.
func Count(in *Input, steps []Step) (t Tally) {
	for i, s := range steps {
		w := &in.Workers[i]
		switch {
		case s.Phase == Active:
			t.Active++
		case s.Phase == Draining, s.Phase == Stopped && w.Pod != nil:
			t.Leaving++
		}
		if w.Wanted && s.Why != NoRoom && s.Why != NodeCordoned {
			t.Wanted++
		}
	}
	return t
}
