package suppress

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// TestWholeCores checks random harm on described machines. While batch is limited by CPUs, their number is a multiple
// of the threads of a core, and the set that rule cpuset makes of it consists of whole cores: no thread of an online
// pod runs beside one of batch on the cores that batch leaves.
func TestWholeCores(t *testing.T) {
	machines, err := fixture.Topologies("../../../observe/host/testdata/topology")
	if err != nil {
		t.Fatal(err)
	}
	limited := 0
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		top := machines[name]
		for seed := range fixture.Times(uint64(20)) {
			r := rand.New(rand.NewPCG(seed, 11))
			w := bears(len(top.CPUs), 0)
			w.n.Topology = top
			capacity := w.left.CPU.Capacity
			exclusive := randomCores(r, top)
			for range 100 {
				if r.IntN(8) == 0 { // another policy, which counts single CPUs
					w.p.Suppress.By = model.SuppressByCpuset
					w.tick(r.Int64N(capacity))
					w.p.Suppress.By = model.SuppressOnHarm
				}
				lacks := max(r.Int64N(capacity)-capacity/2, 0)
				s := w.harmed(r.Int64N(capacity), lacks)
				if r.IntN(4) == 0 { // nothing is known of harm for a moment, and arithmetic sets the limit
					w.harm = &model.Harm{Blind: "web"}
					s = w.tick(r.Int64N(capacity))
				}
				if s.CPUs == 0 || s.Milli >= capacity {
					continue
				}
				limited++
				checkCores(t, name, top, exclusive, s)
			}
		}
	}
	if limited < fixture.Times(1000) {
		t.Errorf("batch was limited by CPUs in %d rounds only", limited)
	}
}

// checkCores checks one limit, on a machine without exclusive CPUs and on one with some whole cores of them.
func checkCores(t *testing.T, name string, top *model.Topology, exclusive model.CPUSet, s *model.Suppression) {
	t.Helper()
	core := threads(top)
	if s.CPUs%core != 0 && s.CPUs < len(top.CPUs) {
		t.Fatalf("%s: batch has %d CPUs of %d, with %d threads a core", name, s.CPUs, len(top.CPUs), core)
	}
	if s.Milli < int64(core)*1000 && !s.Quotas {
		t.Fatalf("%s: batch may use %d milli-cores, and has %d CPUs without quotas", name, s.Milli, s.CPUs)
	}
	online := top.Online()
	for _, alone := range []model.CPUSet{{}, exclusive} {
		if s.Cores != (core > 1) {
			t.Fatalf("%s: of cores with %d threads, batch has whole ones: %v", name, core, s.Cores)
		}
		set := cpuset.BatchCores(top, online.Minus(alone), alone, model.CPUSet{}, s.CPUs)
		for _, a := range top.CPUs {
			for _, b := range top.CPUs {
				if a.Core == b.Core && set.Has(a.ID) != set.Has(b.ID) {
					t.Fatalf("%s: batch has CPUs %s, which has CPU %d and %d of one core only in part; exclusive are %s", name,
						set, a.ID, b.ID, alone)
				}
			}
		}
	}
}

// randomCores returns the CPUs of some cores, at most half of them.
func randomCores(r *rand.Rand, top *model.Topology) model.CPUSet {
	var set model.CPUSet
	for _, c := range top.CPUs {
		if r.IntN(4) == 0 && set.Len() < len(top.CPUs)/2 {
			for _, other := range top.CPUs {
				if other.Core == c.Core {
					set.Add(other.ID)
				}
			}
		}
	}
	return set
}
