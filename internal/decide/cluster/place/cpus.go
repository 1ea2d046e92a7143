package place

import (
	"cmp"
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// Want is a request for CPUs of a pod's own. The zero value requests none.
type Want struct {
	CPUs      []int // one number per container, or one for the pod as a whole
	Cores     bool  // whole physical cores only
	Exclusive bool  // CPUs where no other pod runs
}

// Total returns the number of CPUs.
func (w *Want) Total() (n int) {
	for _, c := range w.CPUs {
		n += c
	}
	return n
}

// Zone is a NUMA node with the CPUs that pods can have as their own. The sizes are the free CPUs of each physical core
// that has any.
type Zone struct {
	ID    int
	CPUs  int    // of the NUMA node, free or not
	Cores []Core // in any order
}

// Core is one physical core with free CPUs.
type Core struct {
	Free    int
	Threads int // of the core, free or not
}

// free returns the free CPUs of a zone; with cores, only those in whole cores.
func (z *Zone) free(cores bool) (n int) {
	for _, c := range z.Cores {
		if !cores || c.Free == c.Threads {
			n += c.Free
		}
	}
	return n
}

// CPUFilter refuses a node that cannot give a pod the CPUs that it wants. The report is nil unless it counts, see
// [Node.Current]. zones are those of the report without CPUs that are promised to other pods, and exclusive is how many
// of them can still become exclusive. A node that reports no CPUs is not refused: its agent decides, as without a
// scheduler that knows CPUs. Whole cores are counted, not chosen: the caller tries whether their sizes add up to what
// each container wants, see [Uneven].
func CPUFilter(r *Report, zones []Zone, exclusive int, w *Want) Reason {
	if r == nil || r.Zones == nil || len(w.CPUs) == 0 {
		return Reason{}
	}
	wants := w.Total()
	all := 0
	for i := range zones {
		all += zones[i].free(false)
	}
	switch {
	case all < wants:
		return reason(CPUsTooFew, cpus("free", all), cpus("wants", wants))
	case w.Cores && whole(zones) < wants:
		return Uneven(zones, w)
	case w.Exclusive && exclusive < wants:
		return reason(CPUsKept, cpus("most", max(exclusive, 0)), cpus("wants", wants), cpus("free", all))
	}
	return Reason{}
}

// Uneven returns the reason why a node cannot give a pod the whole cores that it wants: there are too few, or their
// sizes do not add up to the CPUs of each container.
func Uneven(zones []Zone, w *Want) Reason {
	return reason(CoresTooFew, cpus("free", whole(zones)), cpus("wants", w.Total()))
}

// whole returns the free CPUs in whole cores.
func whole(zones []Zone) (n int) {
	for i := range zones {
		n += zones[i].free(true)
	}
	return n
}

// CPUScore scores a node by how little the pod's CPUs would fragment it. What counts most is how many NUMA nodes the
// pod must span, then how much of the last one it leaves in pieces, then whether it breaks a physical core. So a pod
// goes where it fits best, and large holes are kept for large pods.
func CPUScore(zones []Zone, w *Want) int64 {
	left := w.Total()
	if left == 0 {
		return 0
	}
	rest := slices.Clone(zones)
	spans := 0
	last := -1
	for left > 0 {
		if last = fitting(rest, left, w.Cores); last < 0 {
			return 0
		}
		spans++
		room := rest[last].free(w.Cores)
		if room >= left {
			break
		}
		left -= room
		rest[last].Cores = nil
	}
	z := &rest[last]
	score := max(100-30*int64(spans-1), 10)
	score -= 40 * int64(z.free(false)-left) / int64(max(z.CPUs, 1)) * score / 100
	if breaks(z, left) {
		score -= score / 10
	}
	return score
}

// fitting returns the zone with the fewest free CPUs that are enough, else the one with the most; -1: none has any.
func fitting(zones []Zone, n int, cores bool) int {
	best := -1
	for i := range zones {
		free := zones[i].free(cores)
		if free == 0 {
			continue
		}
		if best < 0 || better(free, zones[best].free(cores), n) {
			best = i
		}
	}
	return best
}

func better(free, than, n int) bool {
	if (free >= n) != (than >= n) {
		return free >= n
	}
	if free >= n {
		return free < than
	}
	return free > than
}

// breaks reports whether n CPUs cannot be taken from a zone without a part of a core whose CPUs are all free. CPUs of
// cores that are broken already come first.
func breaks(z *Zone, n int) bool {
	sizes := make([]int, 0, len(z.Cores))
	for _, c := range z.Cores {
		if c.Free < c.Threads {
			n -= c.Free
		} else {
			sizes = append(sizes, c.Free)
		}
	}
	slices.SortFunc(sizes, func(a, b int) int { return cmp.Compare(b, a) })
	for _, size := range sizes {
		if n <= 0 {
			return false
		}
		if size <= n {
			n -= size
		}
	}
	return n > 0
}

// ZonesOf returns the zones of a machine, with the CPUs of a set as the free ones.
func ZonesOf(t *model.Topology, open model.CPUSet) []Zone {
	var zones []Zone
	type place struct{ node, core int }
	index := map[place]int{}
	byNode := map[int]int{}
	for i := range t.CPUs {
		c := &t.CPUs[i]
		z, found := byNode[c.Node]
		if !found {
			z = len(zones)
			byNode[c.Node], zones = z, append(zones, Zone{ID: c.Node})
		}
		zones[z].CPUs++
		k, found := index[place{c.Node, c.Core}]
		if !found {
			k = len(zones[z].Cores)
			index[place{c.Node, c.Core}], zones[z].Cores = k, append(zones[z].Cores, Core{})
		}
		zones[z].Cores[k].Threads++
		if open.Has(c.ID) {
			zones[z].Cores[k].Free++
		}
	}
	for i := range zones {
		zones[i].Cores = slices.DeleteFunc(zones[i].Cores, func(c Core) bool { return c.Free == 0 })
	}
	slices.SortFunc(zones, func(a, b Zone) int { return cmp.Compare(a.ID, b.ID) })
	return zones
}
