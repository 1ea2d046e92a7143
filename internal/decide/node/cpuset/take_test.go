package cpuset

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// randomTopology returns a machine with at most this many CPUs, with cores of one to three threads, caches that may
// span nodes, and unordered numbers.
func randomTopology(r *rand.Rand, most int) *model.Topology {
	t := &model.Topology{}
	ids := r.Perm(most + 4)
	sockets, nodes, caches := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(2)
	for core := 0; len(t.CPUs) < most; core++ {
		socket, node := r.IntN(sockets), r.IntN(nodes)
		if r.IntN(2) == 0 { // mostly a node is in one socket
			socket = node % sockets
		}
		cache := 10*socket + r.IntN(caches)
		for range min(1+r.IntN(3), most-len(t.CPUs)) {
			cpu := model.CPU{ID: ids[len(t.CPUs)], Socket: socket, Node: node, L3: cache, Core: 100 + core}
			t.CPUs = append(t.CPUs, cpu)
		}
		if r.IntN(most) == 0 {
			break
		}
	}
	slices.SortFunc(t.CPUs, func(a, b model.CPU) int { return a.ID - b.ID })
	return t
}

// touched counts the NUMA nodes, cores and sockets of a set.
func touched(t *model.Topology, set model.CPUSet) [3]int {
	var nodes, sockets, cores model.CPUSet
	for _, c := range t.CPUs {
		if set.Has(c.ID) {
			nodes.Add(c.Node)
			sockets.Add(c.Socket)
			cores.Add(c.Core)
		}
	}
	return [3]int{nodes.Len(), cores.Len(), sockets.Len()}
}

// split returns the CPUs of a set on cores that the set contains only partly.
func split(t *model.Topology, set model.CPUSet) model.CPUSet {
	var broken model.CPUSet
	for _, c := range t.CPUs {
		for _, other := range t.CPUs {
			if c.Core == other.Core && set.Has(c.ID) && !set.Has(other.ID) {
				broken.Add(c.ID)
			}
		}
	}
	return broken
}

// TestTakeAgainstBruteForce compares the choice with the best of all possible ones, on machines with at most eight
// CPUs.
func TestTakeAgainstBruteForce(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 1))
		topology := randomTopology(r, 1+r.IntN(8))
		var free, near model.CPUSet
		for _, c := range topology.CPUs {
			switch r.IntN(6) {
			case 0:
				near.Add(c.ID)
			case 1:
			default:
				free.Add(c.ID)
			}
		}
		if r.IntN(2) == 0 {
			near = model.CPUSet{}
		}
		n := r.IntN(free.Len() + 2)
		how := []model.CPUPlacement{model.PlacePacked, model.PlaceSpread, model.PlaceCores}[r.IntN(3)]
		got, ok := newMachine(topology).take(free, near, n, how)
		worth := func(set model.CPUSet) [3]int {
			w := touched(topology, set.Or(near))
			if how == model.PlaceSpread {
				w[1] = -w[1]
			}
			return w
		}
		var best *[3]int
		ids := slices.Collect(free.All())
		for mask := range 1 << len(ids) {
			if bits.OnesCount(uint(mask)) != n {
				continue
			}
			var set model.CPUSet
			for i, id := range ids {
				if mask&(1<<i) != 0 {
					set.Add(id)
				}
			}
			if how == model.PlaceCores && !split(topology, set).Empty() {
				continue
			}
			if w := worth(set); best == nil || slices.Compare(w[:], best[:]) < 0 {
				best = &w
			}
		}
		switch {
		case ok != (best != nil):
			t.Fatalf("seed %d: %d of %s on %+v, %s: found %v, best %v", seed, n, free, topology.CPUs, how, ok, best)
		case !ok:
		case got.Len() != n || !got.Within(free):
			t.Fatalf("seed %d: took %s for %d of %s", seed, got, n, free)
		case worth(got) != *best:
			t.Fatalf("seed %d: %d of %s near %s on %+v, %s: "+
				"took %s, which touches %v nodes, cores and sockets; best %v", seed, n, free, near, topology.CPUs, how, got,
				worth(got), *best)
		case how == model.PlaceCores && !split(topology, got).Empty():
			t.Fatalf("seed %d: took %s, which is not whole cores", seed, got)
		}
	}
}

// TestTake shows the preferences on one machine: two sockets of two NUMA nodes of two caches of two cores of two
// threads.
func TestTake(t *testing.T) {
	topology := &model.Topology{}
	for id := range 32 {
		cpu := model.CPU{ID: id, Socket: id / 16, Node: id / 8, L3: id / 4, Core: id / 2}
		topology.CPUs = append(topology.CPUs, cpu)
	}
	m := newMachine(topology)
	for _, c := range []struct {
		why        string
		free, near string
		n          int
		how        model.CPUPlacement
		want       string
	}{
		{"the lowest numbers of an empty machine", "0-31", "", 2, "", "0-1"},
		{"one thread leaves whole cores whole", "0-6", "", 1, "", "6"},
		{"a whole cache rather than two halves", "2-31", "", 4, "", "4-7"},
		{"the rest of a partly used cache", "2-31", "", 2, "", "2-3"},
		{"the node that it fits, not the one with the most room", "0-7,10-15", "", 6, "", "10-15"},
		{"the partly used socket", "0-15,24-31", "", 8, "", "24-31"},
		{"one node, though its cores are partly used", "0,2,4,6,8-9,16-17", "", 4, "", "0,2,4,6"},
		{"two nodes of one socket", "0-7,16-31", "", 12, "", "16-27"},
		{"the last one in the same cache, though that splits a core", "2,4-7", "", 3, "", "4-6"},
		{"the sibling of an assigned CPU", "0-7,9-31", "8", 1, "", "9"},
		{"the cache of assigned CPUs", "0-9,12-15", "10-11", 2, "", "8-9"},
		{"as many cores as there are in one node", "0-31", "", 4, model.PlaceSpread, "0,2,4,6"},
		{"more than cores: second threads", "0-31", "", 6, model.PlaceSpread, "0-4,6"},
		{"whole cores only", "1-6", "", 2, model.PlaceCores, "2-3"},
	} {
		t.Run(c.why, func(t *testing.T) {
			free, err1 := model.ParseCPUs(c.free)
			near, err2 := model.ParseCPUs(c.near)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if got, ok := m.take(free, near, c.n, c.how); !ok || got.String() != c.want {
				t.Errorf("%d of %s near %q: %s, want %s", c.n, c.free, c.near, got, c.want)
			}
		})
	}
	for _, c := range []struct {
		free string
		n    int
		how  model.CPUPlacement
	}{{"0-3", 5, ""}, {"1,3,5", 2, model.PlaceCores}, {"0-7", 3, model.PlaceCores}} {
		free, _ := model.ParseCPUs(c.free)
		if got, ok := m.take(free, model.CPUSet{}, c.n, c.how); ok {
			t.Errorf("%d of %s, %s: %s", c.n, c.free, c.how, got)
		}
	}
	wide := &model.Topology{} // two cores of sixteen threads, as a virtual machine may report them
	for id := range 32 {
		wide.CPUs = append(wide.CPUs, model.CPU{ID: id, Core: id / 16})
	}
	for n, want := range map[int]string{8: "", 16: "0-15", 32: "0-31"} {
		if got, ok := Take(wide, wide.Online(), n, model.PlaceCores); ok != (want != "") || got.String() != want {
			t.Errorf("%d in whole cores of sixteen: %s, %v; want %q", n, got, ok, want)
		}
	}
	had, _ := model.ParseCPUs("0-5,16")
	if kept := m.shed(had, 4, ""); kept.String() != "0-3" {
		t.Errorf("of %s it keeps %s", had, kept)
	}
}

// TestBatch checks that batch is packed away from other pods' CPUs, and that its sets are nested.
func TestBatch(t *testing.T) {
	topology := &model.Topology{}
	for id := range 16 {
		topology.CPUs = append(topology.CPUs, model.CPU{ID: id, Node: id / 8, L3: id / 4, Core: id / 2})
	}
	alone, home := model.CPUs(0, 1, 2), model.CPUs(4, 5)
	allowed := topology.Online().Minus(alone)
	for n, want := range map[int]string{
		0: "", 2: "14-15", 4: "12-15", 8: "8-15", 10: "6-15", 12: "4-15", 13: "3-15", 99: "3-15",
	} {
		if got := Batch(topology, allowed, alone, home, n); got.String() != want {
			t.Errorf("%d CPUs: %s, want %s", n, got, want)
		}
	}
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		topology := randomTopology(r, 1+r.IntN(40))
		var allowed, alone, home model.CPUSet
		for _, c := range topology.CPUs {
			switch r.IntN(4) {
			case 0:
				alone.Add(c.ID)
			case 1:
				home.Add(c.ID)
				allowed.Add(c.ID)
			default:
				allowed.Add(c.ID)
			}
		}
		var last, lastCores model.CPUSet
		for n := range allowed.Len() + 2 {
			set := Batch(topology, allowed, alone, home, n)
			cores := BatchCores(topology, allowed, alone, home, n)
			if beside := split(topology, cores.Or(topology.Online().Minus(allowed))).And(cores); !beside.Empty() ||
				!set.Within(cores) || !cores.Within(allowed) || !lastCores.Within(cores) {
				t.Fatalf("seed %d: %d of %s in cores: %s, after %s; %s are parts of cores", seed, n, allowed, cores, lastCores,
					beside)
			}
			lastCores = cores
			if set.Len() != min(n, allowed.Len()) || !set.Within(allowed) || !last.Within(set) {
				t.Fatalf("seed %d: %d of %s: %s, after %s", seed, n, allowed, set, last)
			}
			last = set
		}
	}
}

// BenchmarkTake512 assigns CPUs to one pod on a machine of 512 CPUs with 200 other pods.
func BenchmarkTake512(b *testing.B) {
	topology := &model.Topology{}
	for id := range 512 {
		core := id % 256 // siblings are n and n+256
		cpu := model.CPU{ID: id, Socket: core / 128, Node: core / 32, L3: core / 8, Core: core}
		topology.CPUs = append(topology.CPUs, cpu)
	}
	m := newMachine(topology)
	free := topology.Online()
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		set, _ := m.take(free, model.CPUSet{}, 1+r.IntN(3), model.PlacePacked)
		free = free.Minus(set)
	}
	for id := range 512 {
		if r.IntN(4) == 0 { // some pods have ended
			free.Add(id)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := newMachine(topology).take(free, model.CPUSet{}, 16, model.PlacePacked); !ok {
			b.Fatal("none")
		}
	}
}
