package cpuset

import (
	"cmp"
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// machine is a topology in the order of filling: NUMA nodes contain cache domains, those contain cores, those contain
// threads. If several NUMA nodes share a cache (sub-NUMA clustering), or a NUMA node spans sockets, the cache or node
// is divided into cells that belong to one of each.
type machine struct {
	threads []model.CPU // ordered by node, socket, cache, core and number
	cores   []span      // of threads
	cells   []span      // of cores
	nodes   []span      // of cells
	sockets []int       // all socket numbers, ascending
	wide    bool        // a NUMA node spans sockets, for example where the firmware hides the nodes
}

// span is a part of a slice.
type span struct{ from, to int }

func newMachine(t *model.Topology) *machine {
	order := make([]*model.CPU, len(t.CPUs))
	for i := range t.CPUs {
		order[i] = &t.CPUs[i]
	}
	slices.SortFunc(order, func(a, b *model.CPU) int {
		switch { // not cmp.Or, which evaluates everything: this runs some thousand times per round
		case a.Node != b.Node:
			return a.Node - b.Node
		case a.Socket != b.Socket:
			return a.Socket - b.Socket
		case a.L3 != b.L3:
			return a.L3 - b.L3
		case a.Core != b.Core:
			return a.Core - b.Core
		}
		return a.ID - b.ID
	})
	m := &machine{threads: make([]model.CPU, len(order))}
	for i, c := range order {
		m.threads[i] = *c
	}
	for i := range m.threads {
		a := &m.threads[i]
		var node, cell, core bool // a new one begins with this thread
		if i == 0 {
			node, cell, core = true, true, true
		} else {
			b := &m.threads[i-1]
			node = a.Node != b.Node
			cell = node || a.Socket != b.Socket || a.L3 != b.L3
			core = cell || a.Core != b.Core
		}
		if core {
			m.cores = append(m.cores, span{i, i})
		}
		if cell {
			m.cells = append(m.cells, span{len(m.cores) - 1, 0})
		}
		if node {
			m.nodes = append(m.nodes, span{len(m.cells) - 1, 0})
		}
		m.cores[len(m.cores)-1].to = i + 1
		m.cells[len(m.cells)-1].to = len(m.cores)
		m.nodes[len(m.nodes)-1].to = len(m.cells)
		if i > 0 && a.Node == m.threads[i-1].Node && a.Socket != m.threads[i-1].Socket {
			m.wide = true
		}
		if s, found := slices.BinarySearch(m.sockets, a.Socket); !found {
			m.sockets = slices.Insert(m.sockets, s, a.Socket)
		}
	}
	return m
}

// first returns the first thread of a core, which represents the core's place.
func (m *machine) first(core int) *model.CPU { return &m.threads[m.cores[core].from] }

// count returns how many threads of a core are in a set.
func (m *machine) count(core int, set *model.CPUSet) int {
	n := 0
	for i := m.cores[core].from; i < m.cores[core].to; i++ {
		if set.Has(m.threads[i].ID) {
			n++
		}
	}
	return n
}

// whole returns the part of a set that consists of whole cores.
func (m *machine) whole(set model.CPUSet) model.CPUSet {
	for c, s := range m.cores {
		if m.count(c, &set) < s.to-s.from {
			for i := s.from; i < s.to; i++ {
				set.Remove(m.threads[i].ID)
			}
		}
	}
	return set
}

// Batch returns n of the allowed CPUs for batch, packed on few cores and cache domains. It avoids cores with
// exclusive CPUs first, then their caches, then the homes of pods. The sets are nested: the set for n is part of the
// set for n+1, so no batch process must leave a CPU when batch gets more.
func Batch(t *model.Topology, allowed, exclusive, share model.CPUSet, n int) model.CPUSet {
	m := newMachine(t)
	type candidate struct {
		core  int
		avoid [4]bool // exclusive CPUs in its core, in its cache; home CPUs in its core, in its cache
		cell  int
	}
	all := make([]candidate, 0, len(m.cores))
	for cell, s := range m.cells {
		var cacheAlone, cacheHome bool
		for core := s.from; core < s.to; core++ {
			cacheAlone = cacheAlone || m.count(core, &exclusive) > 0
			cacheHome = cacheHome || m.count(core, &share) > 0
		}
		for core := s.from; core < s.to; core++ {
			avoid := [4]bool{m.count(core, &exclusive) > 0, cacheAlone, m.count(core, &share) > 0, cacheHome}
			all = append(all, candidate{core, avoid, cell})
		}
	}
	// Own CPUs are assigned from the first cache on, so batch begins with the last.
	slices.SortFunc(all, func(a, b candidate) int {
		for i := range a.avoid {
			if a.avoid[i] != b.avoid[i] {
				if b.avoid[i] {
					return -1
				}
				return 1
			}
		}
		return cmp.Or(cmp.Compare(b.cell, a.cell), cmp.Compare(b.core, a.core))
	})
	var set model.CPUSet
	for _, c := range all {
		for i := m.cores[c.core].from; i < m.cores[c.core].to; i++ {
			if id := m.threads[i].ID; n > 0 && allowed.Has(id) {
				set.Add(id)
				n--
			}
		}
	}
	return set
}

// BatchCores returns the CPUs of [Batch], and the other allowed threads of their cores. The numbers differ where cores
// have different numbers of threads, as on hybrid processors and where a thread is offline. These sets are nested too.
func BatchCores(t *model.Topology, allowed, exclusive, share model.CPUSet, n int) model.CPUSet {
	set := Batch(t, allowed, exclusive, share, n)
	m := newMachine(t)
	for core, s := range m.cores {
		if m.count(core, &set) == 0 {
			continue
		}
		for _, c := range m.threads[s.from:s.to] {
			if allowed.Has(c.ID) {
				set.Add(c.ID)
			}
		}
	}
	return set
}
