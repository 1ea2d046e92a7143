package crew

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
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

// Count counts workers by the steps of [Next] for the same input, as [pool.Count] does.
func Count(in *Input, steps []Step) (t pool.Tally) {
	for i := range steps {
		w := &in.Workers[i]
		t.Add(&w.Worker, &steps[i])
		if steps[i].Phase == Stopped && w.Pod != nil {
			t.Leaving++
		}
	}
	return t
}
