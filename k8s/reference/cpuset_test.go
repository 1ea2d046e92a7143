package reference

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
)

// TestCPUs compares which CPUs Waterline gives for a request with those that the kubelet's static policy gives of the
// same free ones: never on more NUMA nodes; and never on more cores, unless that saves NUMA nodes or sockets, which it
// never takes on a machine of which nothing is given yet.
func TestCPUs(t *testing.T) {
	references := []struct {
		name    string
		aligned bool
		options map[string]string
	}{
		{"alone", false, nil},
		{"with its topology manager", true, nil},
		{"preferring whole caches", false, map[string]string{"prefer-align-cpus-by-uncorecache": "true"}},
	}
	all := machines(t)
	for _, ref := range references {
		t.Run(ref.name, func(t *testing.T) {
			var sum summary
			t.Cleanup(func() { t.Log(&sum) })
			for name, machine := range all {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c := comparison{
						t: t, machine: machine, kubelet: newKubelet(t, machine, ref.aligned, ref.options), even: even(machine),
					}
					for n := range len(machine.CPUs) {
						c.ask(machine.Online(), n+1)
					}
					if c.sum.dearer > 0 {
						t.Errorf("%d times more cores on an empty machine", c.sum.dearer)
					}
					steps := min(300, 12000/len(machine.CPUs))
					if os.Getenv("WATERLINE_SOAK") != "" {
						steps *= 20
					}
					c.sequence(rand.New(rand.NewPCG(1, uint64(len(machine.CPUs)))), steps)
					sum.add(&c.sum)
				})
			}
		})
	}
}

// comparison compares on one machine.
type comparison struct {
	t       *testing.T
	machine *model.Topology
	kubelet *kubelet
	even    bool // all cores have as many threads
	sum     summary
}

// sequence gives containers CPUs and takes them back, in any order, and asks both each time. What they say is done in
// turn, so that either has to do with what the other left.
func (c *comparison) sequence(r *rand.Rand, steps int) {
	free := c.machine.Online()
	var given []model.CPUSet
	for step := range steps {
		if room := free.Len(); room > 0 && (len(given) == 0 || r.IntN(100) < 55) {
			most := room
			if r.IntN(4) > 0 { // mostly small ones
				most = min(room, 8)
			}
			chosen := c.ask(free, 1+r.IntN(most))
			set := chosen[step%2]
			given = append(given, set)
			free = free.Minus(set)
			continue
		}
		i := r.IntN(len(given))
		free = free.Or(given[i])
		given = slices.Delete(given, i, i+1)
	}
}

// ask asks both for n of the free CPUs, checks, and returns what each chose: ours, the kubelet's.
func (c *comparison) ask(free model.CPUSet, n int) [2]model.CPUSet {
	theirs := c.kubelet.take(free, n)
	ours, ok := cpuset.Take(c.machine, free, n, model.PlacePacked)
	if !ok || ours.Len() != n || !ours.Within(free) {
		c.t.Fatalf("%d of %s: ours are %s (%v)", n, free, ours, ok)
	}
	if !theirs.Within(free) && !c.even {
		// It takes a core for free of which as many CPUs are as cores have on average, and then gives all of them:
		// cpuAccumulator.isCoreFree and takeFullCores in 1.36.
		c.sum.wrong++
		return [2]model.CPUSet{ours, ours}
	}
	if theirs.Len() != n || !theirs.Within(free) {
		c.t.Fatalf("%d of %s: the kubelet's are %s", n, free, theirs)
	}
	a, b := touched(c.machine, ours), touched(c.machine, theirs)
	c.sum.count(a, b)
	switch {
	case a.nodes > b.nodes:
		c.t.Errorf("%d of %s: ours, %s, touch %d NUMA nodes, the kubelet's, %s, %d", n, free, ours, a.nodes, theirs, b.nodes)
	case a.cores > b.cores && a.nodes == b.nodes:
		c.t.Errorf("%d of %s: ours, %s, touch %d cores, the kubelet's, %s, %d", n, free, ours, a.cores, theirs, b.cores)
	}
	return [2]model.CPUSet{ours, theirs}
}

// even reports whether all cores of a machine have as many threads.
func even(machine *model.Topology) bool {
	threads := map[int]int{}
	for _, c := range machine.CPUs {
		threads[c.Core]++
	}
	for _, n := range threads {
		if n*len(threads) != len(machine.CPUs) {
			return false
		}
	}
	return true
}

// spent is what a set of CPUs touches.
type spent struct{ nodes, sockets, cores, caches int }

func touched(machine *model.Topology, set model.CPUSet) spent {
	var nodes, sockets, cores, caches model.CPUSet
	for _, c := range machine.CPUs {
		if set.Has(c.ID) {
			nodes.Add(c.Node)
			sockets.Add(c.Socket)
			cores.Add(c.Core)
			caches.Add(c.L3)
		}
	}
	return spent{nodes.Len(), sockets.Len(), cores.Len(), caches.Len()}
}

// summary counts requests by how our choice differs from the kubelet's.
type summary struct {
	mu                            sync.Mutex
	requests                      int
	nodes, cores, sockets, caches int // fewer of these, the ones before being equal
	moreSockets, moreCaches       int // the same with more
	dearer                        int // more cores, for fewer nodes
	wrong                         int // the kubelet gave CPUs that were not free
}

func (s *summary) count(a, b spent) {
	s.requests++
	switch {
	case a.nodes < b.nodes:
		s.nodes++
	case a.cores < b.cores:
		s.cores++
	case a.sockets < b.sockets:
		s.sockets++
	case a.sockets > b.sockets:
		s.moreSockets++
	case a.caches < b.caches:
		s.caches++
	case a.caches > b.caches:
		s.moreCaches++
	}
	if a.cores > b.cores {
		s.dearer++
	}
}

func (s *summary) add(o *summary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests += o.requests
	s.nodes += o.nodes
	s.sockets += o.sockets
	s.cores += o.cores
	s.caches += o.caches
	s.moreSockets += o.moreSockets
	s.moreCaches += o.moreCaches
	s.dearer += o.dearer
	s.wrong += o.wrong
}

func (s *summary) String() string {
	percent := func(n int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(max(s.requests, 1))) }
	return fmt.Sprintf("of %d requests: fewer NUMA nodes in %s, else fewer cores in %s, else fewer sockets in %s (more "+
		"in %s), else fewer caches in %s (more in %s); more cores, for fewer NUMA nodes, in %s; and %d to which the "+
		"kubelet gave CPUs that were not free",
		s.requests, percent(s.nodes), percent(s.cores), percent(s.sockets), percent(s.moreSockets), percent(s.caches),
		percent(s.moreCaches), percent(s.dearer), s.wrong)
}
