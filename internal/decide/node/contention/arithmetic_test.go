package contention

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// machine is a node with settable inputs of the limit by arithmetic.
type machine struct {
	n     model.Node
	p     model.Policy
	left  model.Slack
	state State
}

func newMachine(cpus int) *machine {
	w := &machine{
		p: model.Policy{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressByArithmetic}},
		n: fixture.Node(model.Amount{}),
	}
	w.n.Topology = &model.Topology{}
	w.n.Load = &model.Load{Clock: time.Hour, CPUMilli: int64(cpus) * 1000}
	w.left.CPU = model.Account{Capacity: int64(cpus) * 1000, Use: model.Use{Measured: true}}
	w.left.Memory.Allow = 8 << 30
	return w
}

// batch adds batch pods with these requests in milli-cores.
func (w *machine) batch(requests ...int64) {
	for i, milli := range requests {
		uid := fmt.Sprintf("b%02d", i)
		p := fixture.BatchPod(uid, model.Amount{CPU: milli, Memory: 1 << 30})
		p.Grant.RequestMilli = milli
		fixture.Run(&w.n, p)
	}
}

// uses sets the measured usage of each batch pod.
func (w *machine) uses(milli ...int64) {
	w.n.Load.Pods = nil
	w.left.CPU.Use.Batch = 0
	for i, m := range milli {
		u := model.Usage{CPU: model.CPUUsage{At: w.n.Load.Clock, Milli: m}}
		w.n.Load.Pods = append(w.n.Load.Pods, model.PodUsage{UID: fmt.Sprintf("b%02d", i), Usage: u})
		w.left.CPU.Use.Batch += m
	}
}

// tick advances the node by one second and decides with this much CPU left.
func (w *machine) tick(left int64) *model.Suppression {
	w.n.Load.Clock += time.Second
	for i := range w.n.Load.Classes {
		w.n.Load.Classes[i].CPU.At = w.n.Load.Clock
	}
	w.left.CPU.Allow = left
	var r Result
	r, w.state = Decide(&w.n, &w.p, &w.left, nil, w.state)
	return r.Limit
}

func (w *machine) band() int64 { return w.left.CPU.Capacity * deadBand / 1000 }

// TestProperties checks the limits of random nodes under random loads.
func TestProperties(t *testing.T) {
	for seed := range fixture.Times(uint64(300)) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newMachine(1 + r.IntN(64))
		w.p.Suppress = model.SuppressPolicy{By: model.SuppressByArithmetic, MinBatch: []int64{0, 0, 50, 300}[r.IntN(4)]}
		requests := make([]int64, 1+r.IntN(8))
		for i := range requests {
			requests[i] = r.Int64N(4000)
		}
		w.batch(requests...)
		minBatch := w.left.CPU.Capacity * w.p.Suppress.MinBatch / 1000
		for range 200 {
			left := r.Int64N(w.left.CPU.Capacity + 1)
			use := make([]int64, len(requests))
			for i := range use {
				use[i] = r.Int64N(3000)
			}
			w.uses(use...)
			before := w.state
			s := w.tick(left)
			other, _ := Decide(&w.n, &w.p, &w.left, nil, before)
			if d := cmp.Diff(other.Limit, s); d != "" {
				t.Fatalf("seed %d: two equal decisions differ:\n%s", seed, d)
			}
			due := max(left, minBatch)
			switch {
			case s.Milli > due+w.band():
				t.Fatalf("seed %d: with %d left and a minimum of %d batch may use %d", seed, left, minBatch, s.Milli)
			case s.Milli < minBatch:
				t.Fatalf("seed %d: batch may use %d, below the minimum of %d", seed, s.Milli, minBatch)
			case before.Arithmetic.Known && s.Milli > before.Arithmetic.Milli+max(w.left.CPU.Capacity*maxRaise/1000, 1000):
				t.Fatalf("seed %d: from %d to %d in one second", seed, before.Arithmetic.Milli, s.Milli)
			case before.Arithmetic.Known && s.Milli > before.Arithmetic.Milli &&
				w.n.Load.Clock-w.state.Arithmetic.Shrunk < minCalm:
				t.Fatalf("seed %d: the limit rose %s after it fell", seed, w.n.Load.Clock-w.state.Arithmetic.Shrunk)
			}
			checkParts(t, w, s)
		}
	}
}

func checkParts(t *testing.T, w *machine, s *model.Suppression) {
	t.Helper()
	var sum, memory int64
	for _, p := range s.Parts {
		if p.Milli < model.MinBatchPart || p.Memory < 0 {
			t.Fatalf("the kernel rejects this quota: %+v", p)
		}
		sum, memory = sum+p.Milli, memory+p.Memory
	}
	if sum > max(s.Milli, 0)+int64(len(s.Parts))*model.MinBatchPart || sum < s.Milli-w.band()-int64(len(s.Parts)) {
		t.Fatalf("the parts of %d add up to %d", s.Milli, sum)
	}
	if memory > w.left.Memory.Allow || len(s.Parts) != len(w.n.Pods) {
		t.Fatalf("parts %+v", s.Parts)
	}
}

// TestDivide compares share with a brute-force division, which gives one milli-core after the other to the pod with
// the least in proportion to its weight.
func TestDivide(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 11))
		needs := make([]need, 1+r.IntN(5))
		for i := range needs {
			needs[i] = need{weight: 1 + r.Int64N(20), most: []int64{0, 20 + r.Int64N(200)}[r.IntN(2)]}
		}
		milli := r.Int64N(600)
		dumb := slices.Clone(needs)
		for range milli {
			best := -1
			for _, full := range []bool{false, true} {
				for i := range dumb {
					d := &dumb[i]
					if !full && d.most > 0 && d.part >= d.most {
						continue
					}
					mine, other := d.part-spare(d, full), int64(0)
					if best >= 0 {
						other = dumb[best].part - spare(&dumb[best], full)
					}
					if best < 0 || mine*dumb[best].weight < other*d.weight {
						best = i
					}
				}
				if best >= 0 {
					break
				}
			}
			dumb[best].part++
		}
		share(milli, needs)
		for i := range needs {
			if want := max(dumb[i].part, model.MinBatchPart); needs[i].part < want-5 || needs[i].part > want+5 {
				t.Fatalf("seed %d: %d divided: %+v, by brute force %+v", seed, milli, needs, dumb)
			}
		}
	}
}

// spare returns the part that does not count when the rest is distributed by weight.
func spare(d *need, full bool) int64 {
	if full {
		return d.most
	}
	return 0
}

// TestNoCPUsLeft checks a node without CPUs for batch. Koordinator divides by the number of CPUs that are not
// exclusive to a pod, and panics if there are none (cpu_suppress.go, adjustByCPUSet).
func TestNoCPUsLeft(t *testing.T) {
	w := newMachine(4)
	w.batch(1000)
	w.left.CPU.Capacity = 0
	if s := w.tick(0); s.Milli != 0 || len(s.Parts) != 1 {
		t.Errorf("%+v", s)
	}
	if s := newMachine(4).tick(0); s.Milli != 0 || len(s.Parts) != 0 {
		t.Errorf("without batch: %+v", s)
	}
}

// TestStops checks that batch gets only the kernel's minimum quota when nothing is left. Koordinator always leaves
// batch two CPUs, which is half of a small node.
func TestStops(t *testing.T) {
	w := newMachine(16)
	w.batch(4000)
	w.tick(4000)
	if s := w.tick(0); s.Milli != 0 || s.CPUs != 1 || !s.Quotas || s.Parts[0].Milli != model.MinBatchPart {
		t.Errorf("with nothing left: %+v", s)
	}
}

// TestShrinksWithoutTopology checks that the limit falls even without a CPU topology. Koordinator skips the round if
// any input is missing, so that the last value stays.
func TestShrinksWithoutTopology(t *testing.T) {
	w := newMachine(8)
	w.n.Tree.NoCpusets = true
	w.batch(4000)
	w.tick(8000)
	if s := w.tick(1500); s.Milli != 1500 || s.CPUs != 0 || !s.Quotas {
		t.Errorf("without cpusets: %+v", s)
	}
}

// TestDoesNotFlap checks that bounded noise moves batch down a bounded number of times and hardly ever back up.
// Koordinator follows the last second up and down, so that each wave of online load moves all batch pods twice.
func TestDoesNotFlap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := newMachine(32)
		w.batch(32000)
		changes, last := 0, 0
		for range 3600 {
			s := w.tick(20000 + r.Int64N(4000)) // an eighth of the node, each second anew
			if s.CPUs != last {
				changes++
			}
			last = s.CPUs
		}
		if changes > 300 {
			t.Errorf("seed %d: %d moves in an hour of noise", seed, changes)
		}
		if last < 19 {
			t.Errorf("seed %d: it ends on %d CPUs, where 20 are always there", seed, last)
		}
	}
}

// TestFrozenMetrics checks that the limit shrinks when measurements stop, and that a saved state counts only until
// the first measurement.
func TestFrozenMetrics(t *testing.T) {
	w := newMachine(4)
	w.batch(4000)
	w.left.CPU.Use.Measured = false
	if s := w.tick(0); s != nil {
		t.Errorf("nothing was measured yet, but batch is limited: %+v", s)
	}
	w.left.CPU.Use.Measured = true
	w.tick(3000)
	w.left.CPU.Use.Measured = false
	if s := w.tick(0); s.Milli != 3000 {
		t.Errorf("before the next measurement: %+v", s)
	}
	w.left.CPU.Use.Measured, w.left.CPU.Use.Age = true, time.Minute
	if s := w.tick(0); s.Milli != 0 || s.Reason.Code != model.SlackStale {
		t.Errorf("with old measurements: %+v", s)
	}
}

// TestReaction checks that reductions merge while the effect of the first is not measured.
func TestReaction(t *testing.T) {
	w := newMachine(10)
	w.batch(8000)
	w.uses(8000)
	w.tick(8000)
	w.tick(5000)
	w.n.Load.Clock -= 900 * time.Millisecond // the next decision is 100 ms later
	s := w.tick(3000)
	r := s.Reaction
	if r.From != 8000 || r.To != 3000 || r.Used != 8000 || r.Expected != 5000 || r.Seen {
		t.Errorf("%+v", r)
	}
	w.uses(2900)
	w.tick(3000)
	if r = w.tick(3000).Reaction; !r.Seen || r.Observed != 5100 {
		t.Errorf("%+v", r)
	}
}

// TestOff checks that without suppression nothing is decided, and nothing of a limit is kept.
func TestOff(t *testing.T) {
	for _, by := range []model.SuppressMethod{model.SuppressByNone, ""} {
		w := newMachine(4)
		w.batch(1000)
		w.tick(3000)
		w.p.Suppress.By = by
		s := w.tick(3000)
		if d := cmp.Diff(State{Clock: w.n.Load.Clock}, w.state, cmp.AllowUnexported(State{})); s != nil || d != "" {
			t.Errorf("%q: %+v, state (-want +got):\n%s", by, s, d)
		}
	}
}

// TestWholeCores checks random limits on described machines. While batch is limited by CPUs, their number is a multiple
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
			w := newMachine(len(top.CPUs))
			w.n.Topology = top
			w.batch(int64(len(top.CPUs)) * 1000)
			exclusive := randomCores(r, top)
			for range 100 {
				s := w.tick(r.Int64N(w.left.CPU.Capacity))
				if s.CPUs == 0 {
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
	core := 1
	of := map[int]int{}
	for _, c := range top.CPUs {
		of[c.Core]++
		core = max(core, of[c.Core])
	}
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
