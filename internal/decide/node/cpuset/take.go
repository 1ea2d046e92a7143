package cpuset

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// mostChoices bounds how many sets of NUMA nodes are tried. A machine of eight nodes has 70 sets of four.
const mostChoices = 128

// choice is a way to take CPUs, and what it is worth together with the CPUs that are held already. Less is better.
type choice struct {
	cpus model.CPUSet
	cost [5]int // cores, sockets, cache domains; free CPUs of the sockets, of the nodes: the fuller, the better they fit
}

// request is what [machine.take] is asked for, counted out for each core and cell.
type request struct {
	m       *machine
	free    model.CPUSet
	n       int
	how     model.CPUPlacement
	size    []int  // free CPUs, by core
	touched []bool // by core: it has CPUs that are held already
	cells   []bool // by cell: the same
	room    []int  // free CPUs, by node
}

// Take chooses n of the free CPUs of a machine for somebody who has none yet. They touch as few NUMA nodes, then cores,
// then sockets, then cache domains as can be; with [model.PlaceSpread], as many cores. It is false if there are not so many or,
// with [model.PlaceCores], not as many in whole cores.
func Take(t *model.Topology, free model.CPUSet, n int, how model.CPUPlacement) (model.CPUSet, bool) {
	return newMachine(t).take(free, model.CPUSet{}, n, how)
}

// take chooses n of the free CPUs, such that they and those near, which are held already, touch as few NUMA nodes, then
// cores, then sockets, then cache domains as can be; with PlaceSpread, as many cores. Among equals it takes what leaves
// whole sockets, nodes, caches and cores to others, then the lowest numbers. It is false if there are not so many CPUs or,
// with PlaceCores, not as many in whole cores.
//
// Nodes and cores are the fewest there can be, as long as the machine has so few nodes that all sets of them can be tried.
// Cache domains are chosen one after the other, which can miss the best.
func (m *machine) take(free, near model.CPUSet, n int, how model.CPUPlacement) (model.CPUSet, bool) {
	if how == model.PlaceCores {
		free = m.whole(free)
	}
	if n <= 0 || free.Len() < n {
		return model.CPUSet{}, n <= 0
	}
	r := request{
		m: m, free: free, n: n, how: how,
		size: make([]int, len(m.cores)), touched: make([]bool, len(m.cores)), cells: make([]bool, len(m.cells)), room: make([]int, len(m.nodes)),
	}
	var held, others []int // nodes of near; the others that have room, those with the most first
	have := 0
	for node := range m.nodes {
		touched := r.count(node, &near)
		have += r.room[node]
		if touched {
			held = append(held, node)
		} else if have -= r.room[node]; r.room[node] > 0 {
			others = append(others, node)
		}
	}
	slices.SortStableFunc(others, func(a, b int) int { return r.room[b] - r.room[a] })
	socketChoices := m.socketChoices()
	var best *choice
	try := func(nodes []int) {
		if have+sumOf(r.room, nodes) < n {
			return
		}
		nodes = append(slices.Clone(held), nodes...)
		slices.Sort(nodes)
		for _, sockets := range socketChoices {
			c, ok := r.choose(nodes, sockets)
			if ok && (best == nil || slices.Compare(c.cost[:], best.cost[:]) < 0) {
				best = &c
			}
		}
	}
	for more := fewest(others, r.room, n-have); more <= len(others) && best == nil; more++ {
		if choices(len(others), more) <= mostChoices {
			subsets(others, more, try)
		} else {
			try(others[:more])
		}
	}
	if best == nil {
		return model.CPUSet{}, false
	}
	return best.cpus, true
}

// count counts out a node, and reports whether any CPU of it is held already.
func (r *request) count(node int, near *model.CPUSet) (touched bool) {
	for cell := r.m.nodes[node].from; cell < r.m.nodes[node].to; cell++ {
		for core := r.m.cells[cell].from; core < r.m.cells[cell].to; core++ {
			r.size[core] = r.m.count(core, &r.free)
			r.room[node] += r.size[core]
			if r.m.count(core, near) > 0 {
				r.touched[core], r.cells[cell], touched = true, true, true
			}
		}
	}
	return touched
}

// socketChoices returns the sets of sockets to try in a set of NUMA nodes. Mostly the nodes say which sockets they are;
// only where a node spans sockets it is worth trying to do with some of them. nil stands for all.
func (m *machine) socketChoices() [][]int {
	if !m.wide || choices(len(m.sockets), len(m.sockets)/2) > mostChoices {
		return [][]int{nil}
	}
	all := [][]int{nil}
	for k := 1; k < len(m.sockets); k++ {
		subsets(m.sockets, k, func(sockets []int) { all = append(all, slices.Clone(sockets)) })
	}
	return all
}

// shed chooses which n of the CPUs that are held to keep.
func (m *machine) shed(held model.CPUSet, n int, how model.CPUPlacement) model.CPUSet {
	kept, ok := m.take(held, model.CPUSet{}, n, how)
	if !ok { // not in whole cores
		kept, _ = m.take(held, model.CPUSet{}, n, model.PlacePacked)
	}
	return kept
}

// fewest returns how many of the nodes, which are ordered by room, are needed to have room for n.
func fewest(nodes, room []int, n int) int {
	for i, node := range nodes {
		if n <= 0 {
			return i
		}
		n -= room[node]
	}
	return len(nodes)
}

func sumOf(values, indices []int) int {
	sum := 0
	for _, i := range indices {
		sum += values[i]
	}
	return sum
}

// choices returns how many subsets of k of n things there are, or something above mostChoices.
func choices(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > mostChoices {
			break
		}
	}
	return c
}

// subsets yields the subsets of k of these, in the order of a dictionary over their numbers.
func subsets(of []int, k int, yield func([]int)) {
	sorted := slices.Sorted(slices.Values(of))
	picked := make([]int, 0, k)
	var next func(from int)
	next = func(from int) {
		if len(picked) == k {
			yield(picked)
			return
		}
		for i := from; i <= len(sorted)-(k-len(picked)); i++ {
			picked = append(picked, sorted[i])
			next(i + 1)
			picked = picked[:len(picked)-1]
		}
	}
	next(0)
}

// pick is the choice of CPUs in some nodes, while it is made.
type pick struct {
	*request
	nodes   []int
	sockets []int // to take CPUs of; nil: all
	taken   model.CPUSet
	left    int    // CPUs that are still to be taken
	size    []int  // as in the request, less what is taken
	touched []bool // as in the request, and by what is taken
	cells   []bool
}

// choose takes the CPUs in these nodes and sockets. It is false if they are not to be had there, or not in whole cores.
func (r *request) choose(nodes, sockets []int) (choice, bool) {
	p := &pick{
		request: r, nodes: nodes, sockets: sockets, left: r.n,
		size: slices.Clone(r.size), touched: slices.Clone(r.touched), cells: slices.Clone(r.cells),
	}
	room := 0
	p.each(func(_, core int) { room += p.size[core] })
	if room < r.n {
		return choice{}, false
	}
	ok := true
	switch r.how {
	case model.PlaceSpread:
		p.spread()
	case model.PlaceCores:
		ok = p.wholeCores()
	default:
		p.pack()
	}
	return choice{cpus: p.taken, cost: p.cost()}, ok
}

// eachCell calls f for every cell of the nodes and sockets.
func (p *pick) eachCell(f func(cell int)) {
	for _, node := range p.nodes {
		for cell := p.m.nodes[node].from; cell < p.m.nodes[node].to; cell++ {
			if p.sockets == nil || slices.Contains(p.sockets, p.m.first(p.m.cells[cell].from).Socket) {
				f(cell)
			}
		}
	}
}

// each calls f for every core of the nodes and sockets, with the cell it is in.
func (p *pick) each(f func(cell, core int)) {
	p.eachCell(func(cell int) {
		for core := p.m.cells[cell].from; core < p.m.cells[cell].to; core++ {
			f(cell, core)
		}
	})
}

// use takes up to n CPUs of a core.
func (p *pick) use(cell, core, n int) {
	for i := p.m.cores[core].from; i < p.m.cores[core].to && n > 0; i++ {
		if id := p.m.threads[i].ID; p.free.Has(id) && !p.taken.Has(id) {
			p.taken.Add(id)
			p.size[core]--
			p.left--
			n--
		}
	}
	p.touched[core], p.cells[cell] = true, true
}

// pack takes CPUs on as few further cores as can be: what is free on those that are touched already, then cores with the
// most free CPUs, and for the last few the core that they fit best.
func (p *pick) pack() {
	for p.left > 0 {
		if cell, core, ok := p.best(true); ok {
			p.use(cell, core, min(p.left, p.size[core]))
			continue
		}
		most := p.mostFree()
		if most >= p.left {
			cell, core, _ := p.best(false)
			p.use(cell, core, p.left)
			return
		}
		p.useCores(most, p.left/most)
	}
}

// best returns the core, of those that are touched already or of those that are not, on which what is left fits best: in a
// cell that is touched already if there is one, and there the one with the least free CPUs that are enough. Of touched cores
// it returns, if none has enough, the one with the most.
func (p *pick) best(touched bool) (bestCell, bestCore int, ok bool) {
	fitsBetter := func(size, than int) bool {
		switch enough, was := size >= p.left, than >= p.left; {
		case enough != was:
			return enough
		case enough:
			return size < than
		default:
			return size > than
		}
	}
	p.each(func(cell, core int) {
		size := p.size[core]
		if size == 0 || p.touched[core] != touched || !touched && size < p.left {
			return
		}
		better := fitsBetter(size, p.size[bestCore])
		if p.cells[cell] != p.cells[bestCell] {
			better = p.cells[cell]
		}
		if !ok || better {
			bestCell, bestCore, ok = cell, core, true
		}
	})
	return bestCell, bestCore, ok
}

// mostFree returns the most CPUs that are free on an untouched core.
func (p *pick) mostFree() int {
	most := 0
	p.each(func(_, core int) {
		if !p.touched[core] {
			most = max(most, p.size[core])
		}
	})
	return most
}

// useCores takes up to n untouched cores with this many free CPUs, whole, on few cells: first those that are touched, then
// the smallest that has enough, or else the largest.
func (p *pick) useCores(size, n int) {
	p.takeCores(n, func(core int) bool { return !p.touched[core] && p.size[core] == size }, func(cell, core int) { p.use(cell, core, size) })
}

// takeCores takes up to n of the cores that may be taken.
func (p *pick) takeCores(n int, may func(core int) bool, take func(cell, core int)) {
	counts := make([]int, len(p.m.cells))
	p.each(func(cell, core int) {
		if may(core) {
			counts[cell]++
		}
	})
	for n > 0 {
		best := -1
		p.eachCell(func(cell int) {
			if counts[cell] > 0 && (best < 0 || p.fits(cell, counts[cell], best, counts[best], n)) {
				best = cell
			}
		})
		if best < 0 {
			return
		}
		counts[best] = 0
		for core := p.m.cells[best].from; core < p.m.cells[best].to && n > 0; core++ {
			if may(core) {
				take(best, core)
				n--
			}
		}
	}
}

// fits reports whether a cell with so many cores is better for the n that are left than another.
func (p *pick) fits(cell, count, other, has, n int) bool {
	if p.cells[cell] != p.cells[other] {
		return p.cells[cell]
	}
	switch enough, was := count >= n, has >= n; {
	case enough != was:
		return enough
	case enough:
		return count < has
	default:
		return count > has
	}
}

// wholeCores takes cores whole, and reports whether their sizes add up. Only on machines whose cores have different numbers
// of threads may fewer of the large ones be needed than there are.
func (p *pick) wholeCores() bool {
	largest := p.threadsMost()
	counts, use := make([]int, largest+1), make([]int, largest+1)
	p.each(func(_, core int) { counts[p.size[core]]++ })
	var fill func(size, left int) bool
	fill = func(size, left int) bool {
		if left == 0 || size == 0 {
			return left == 0
		}
		for n := min(counts[size], left/size); n >= 0; n-- {
			if use[size] = n; fill(size-1, left-n*size) {
				return true
			}
		}
		return false
	}
	if !fill(largest, p.left) {
		return false
	}
	for size := largest; size > 0; size-- {
		p.useCores(size, use[size])
	}
	return true
}

// spread takes one CPU of each core in turn, beginning with cores of which the most is free.
func (p *pick) spread() {
	for round := 0; p.left > 0; round++ {
		for size := p.threadsMost(); size > 0 && p.left > 0; size-- {
			p.takeCores(p.left, func(core int) bool { return p.size[core] == size && p.used(core) <= round }, func(cell, core int) { p.use(cell, core, 1) })
		}
	}
}

// used returns how many CPUs of a core are taken, counting those that were held before as one.
func (p *pick) used(core int) int {
	used := p.m.count(core, &p.taken)
	if p.request.touched[core] {
		used++
	}
	return used
}

// threadsMost returns the most CPUs that are free on any core.
func (p *pick) threadsMost() int {
	most := 0
	p.each(func(_, core int) { most = max(most, p.size[core]) })
	return most
}

func (p *pick) cost() [5]int {
	sockets := map[int]bool{}
	var cores, cells, nodeRest, socketRest int
	for _, cell := range p.cells {
		if cell {
			cells++
		}
	}
	for core, touched := range p.touched {
		if touched {
			cores++
			sockets[p.m.first(core).Socket] = true
		}
	}
	if p.how == model.PlaceSpread {
		cores = -cores
	}
	for core, size := range p.size {
		if sockets[p.m.first(core).Socket] {
			socketRest += size
		}
	}
	p.each(func(_, core int) { nodeRest += p.size[core] })
	return [5]int{cores, len(sockets), cells, socketRest, nodeRest}
}
