package cpuset

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// maxChoices limits the number of NUMA node sets that are tried. A machine of eight nodes has 70 sets of four.
const maxChoices = 128

// choice is a possible set of CPUs and its cost together with the CPUs that the pod has already. Less is better.
type choice struct {
	cpus model.CPUSet
	// Cores, sockets, cache domains; then free CPUs of the sockets and of the nodes (fuller is better).
	cost [5]int
}

// request is the input of [machine.take], counted per core and cell.
type request struct {
	m       *machine
	free    model.CPUSet
	n       int
	how     model.CPUPlacement
	size    []int  // free CPUs, by core
	touched []bool // by core: it contains CPUs that the pod has already
	cells   []bool // by cell: it contains CPUs that the pod has already
	room    []int  // free CPUs, by node
}

// Take chooses n of the free CPUs of a machine for a pod without CPUs. They touch as few NUMA nodes as possible, then
// as few cores, sockets and cache domains; with [model.PlaceSpread], as many cores as possible. It returns false if
// there are too few CPUs or, with [model.PlaceCores], too few whole cores.
func Take(t *model.Topology, free model.CPUSet, n int, how model.CPUPlacement) (model.CPUSet, bool) {
	return newMachine(t).take(free, model.CPUSet{}, n, how)
}

// take chooses n of the free CPUs. Together with near, the CPUs that the pod has already, they touch as few NUMA
// nodes as possible, then as few cores, sockets and cache domains; with PlaceSpread, as many cores as possible. Among
// equal choices it prefers the one that leaves whole sockets, nodes, caches and cores to others, then the lowest
// numbers. It returns false if there are too few CPUs or, with PlaceCores, too few whole cores.
//
// The numbers of nodes and cores are minimal, as long as the machine has so few nodes that all sets of them can be
// tried. Cache domains are chosen one by one, which can miss the minimum.
func (m *machine) take(free, near model.CPUSet, n int, how model.CPUPlacement) (model.CPUSet, bool) {
	if how == model.PlaceCores {
		free = m.whole(free)
	}
	if n <= 0 || free.Len() < n {
		return model.CPUSet{}, n <= 0
	}
	r := request{
		m: m, free: free, n: n, how: how,
		size: make([]int, len(m.cores)), touched: make([]bool, len(m.cores)),
		cells: make([]bool, len(m.cells)), room: make([]int, len(m.nodes)),
	}
	var nearby, others []int // nodes of near; other nodes with free CPUs, those with the most first
	have := 0
	for node := range m.nodes {
		touched := r.count(node, &near)
		have += r.room[node]
		if touched {
			nearby = append(nearby, node)
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
		nodes = append(slices.Clone(nearby), nodes...)
		slices.Sort(nodes)
		for _, sockets := range socketChoices {
			c, ok := r.choose(nodes, sockets)
			if ok && (best == nil || slices.Compare(c.cost[:], best.cost[:]) < 0) {
				best = &c
			}
		}
	}
	for more := fewest(others, r.room, n-have); more <= len(others) && best == nil; more++ {
		if choices(len(others), more) <= maxChoices {
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

// count counts the free CPUs of a node, and reports whether the node contains CPUs of near.
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

// socketChoices returns the sets of sockets to try in a set of NUMA nodes. Usually the nodes determine the sockets.
// Only where a node spans sockets, using fewer of them is worth a try. nil means all sockets.
func (m *machine) socketChoices() [][]int {
	if !m.wide || choices(len(m.sockets), len(m.sockets)/2) > maxChoices {
		return [][]int{nil}
	}
	all := [][]int{nil}
	for k := 1; k < len(m.sockets); k++ {
		subsets(m.sockets, k, func(sockets []int) { all = append(all, slices.Clone(sockets)) })
	}
	return all
}

// shed chooses n of the CPUs of a pod to keep.
func (m *machine) shed(had model.CPUSet, n int, how model.CPUPlacement) model.CPUSet {
	kept, ok := m.take(had, model.CPUSet{}, n, how)
	if !ok { // not in whole cores
		kept, _ = m.take(had, model.CPUSet{}, n, model.PlacePacked)
	}
	return kept
}

// fewest returns how many of the nodes, ordered by free CPUs, are needed for n CPUs.
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

// choices returns the number of subsets of k of n things, or a number above maxChoices.
func choices(n, k int) int {
	c := 1
	for i := range min(k, n-k) {
		if c = c * (n - i) / (i + 1); c > maxChoices {
			break
		}
	}
	return c
}

// subsets yields the subsets with k elements, in lexicographic order.
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

// pick is a choice of CPUs in some nodes under construction.
type pick struct {
	*request
	nodes   []int
	sockets []int // sockets to use; nil: all
	taken   model.CPUSet
	left    int    // CPUs still to take
	size    []int  // as in the request, minus taken CPUs
	touched []bool // as in the request, plus taken CPUs
	cells   []bool
}

// choose takes the CPUs in these nodes and sockets. It returns false if there are too few, or too few whole cores.
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

// eachCell calls f for each cell of the nodes and sockets.
func (p *pick) eachCell(f func(cell int)) {
	for _, node := range p.nodes {
		for cell := p.m.nodes[node].from; cell < p.m.nodes[node].to; cell++ {
			if p.sockets == nil || slices.Contains(p.sockets, p.m.first(p.m.cells[cell].from).Socket) {
				f(cell)
			}
		}
	}
}

// each calls f for each core of the nodes and sockets, with its cell.
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

// pack takes CPUs on as few additional cores as possible: first the free CPUs of touched cores, then the cores with
// the most free CPUs, and for the last few CPUs the core that fits them best.
func (p *pick) pack() {
	for p.left > 0 {
		if cell, core, ok := p.best(true); ok {
			p.use(cell, core, min(p.left, p.size[core]))
			continue
		}
		most := p.maxFree()
		if most >= p.left {
			cell, core, _ := p.best(false)
			p.use(cell, core, p.left)
			return
		}
		p.useCores(most, p.left/most)
	}
}

// best returns the core, among the touched or among the untouched ones, that fits the remaining CPUs best. It prefers
// touched cells, and within them the core with the fewest free CPUs that are enough. If no touched core has enough,
// it returns the one with the most.
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

// maxFree returns the maximum number of free CPUs on an untouched core.
func (p *pick) maxFree() int {
	most := 0
	p.each(func(_, core int) {
		if !p.touched[core] {
			most = max(most, p.size[core])
		}
	})
	return most
}

// useCores takes up to n whole untouched cores with this many free CPUs, in few cells: touched cells first, then the
// smallest cell with enough cores, else the largest.
func (p *pick) useCores(size, n int) {
	may := func(core int) bool { return !p.touched[core] && p.size[core] == size }
	p.takeCores(n, may, func(cell, core int) { p.use(cell, core, size) })
}

// takeCores takes up to n of the cores for which may returns true.
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

// fits reports whether a cell with count cores is better for the n remaining cores than another cell with has.
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

// wholeCores takes whole cores, and reports whether their sizes can add up. On machines whose cores have different
// numbers of threads, using fewer of the large cores may be necessary.
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

// spread takes one CPU of each core in turn, beginning with the cores with the most free CPUs.
func (p *pick) spread() {
	for round := 0; p.left > 0; round++ {
		for size := p.threadsMost(); size > 0 && p.left > 0; size-- {
			may := func(core int) bool { return p.size[core] == size && p.used(core) <= round }
			p.takeCores(p.left, may, func(cell, core int) { p.use(cell, core, 1) })
		}
	}
}

// used returns the number of taken CPUs of a core; CPUs of near count as one.
func (p *pick) used(core int) int {
	used := p.m.count(core, &p.taken)
	if p.request.touched[core] {
		used++
	}
	return used
}

// threadsMost returns the maximum number of free CPUs on any core.
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
