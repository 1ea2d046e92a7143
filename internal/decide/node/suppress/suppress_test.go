package suppress

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// node is a node with settable inputs of suppression.
type node struct {
	n     model.Node
	p     model.Policy
	left  model.Slack
	harm  *model.Harm
	state State
}

func newNode(cpus int) *node {
	w := &node{
		p: model.Policy{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressByQuota}},
		n: fixture.Node(model.Amount{}),
	}
	w.n.Topology = &model.Topology{}
	w.n.Load = &model.Load{Clock: time.Hour, CPUMilli: int64(cpus) * 1000}
	w.left.CPU = model.Account{Capacity: int64(cpus) * 1000, Use: model.Use{Measured: true}}
	w.left.Memory.Allow = 8 << 30
	return w
}

// batch adds batch pods with these requests in milli-cores.
func (w *node) batch(requests ...int64) {
	for i, milli := range requests {
		uid := fmt.Sprintf("b%02d", i)
		p := fixture.BatchPod(uid, model.Amount{CPU: milli, Memory: 1 << 30})
		p.Grant.RequestMilli = milli
		fixture.Run(&w.n, p)
	}
}

// uses sets the measured usage of each batch pod.
func (w *node) uses(milli ...int64) {
	w.n.Load.Pods = nil
	w.left.CPU.Use.Batch = 0
	for i, m := range milli {
		u := model.Usage{CPU: model.CPUUsage{At: w.n.Load.Clock, Milli: m}}
		w.n.Load.Pods = append(w.n.Load.Pods, model.PodUsage{UID: fmt.Sprintf("b%02d", i), Usage: u})
		w.left.CPU.Use.Batch += m
	}
}

// tick advances the node by one second and decides with this much CPU left.
func (w *node) tick(left int64) *model.Suppression {
	w.n.Load.Clock += time.Second
	for i := range w.n.Load.Classes {
		w.n.Load.Classes[i].CPU.At = w.n.Load.Clock
	}
	w.left.CPU.Allow = left
	var s *model.Suppression
	s, w.state = Decide(&w.n, &w.p, &w.left, w.harm, w.state)
	return s
}

func (w *node) band() int64 { return w.left.CPU.Capacity * noise / 1000 }

// TestProperties checks the limits of random nodes under random loads.
func TestProperties(t *testing.T) {
	methods := []model.SuppressMethod{model.SuppressByCpuset, model.SuppressByQuota, model.SuppressByBoth}
	for seed := range fixture.Times(uint64(300)) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newNode(1 + r.IntN(64))
		w.p.Suppress = model.SuppressPolicy{By: methods[r.IntN(3)], MinBatch: []int64{0, 0, 50, 300}[r.IntN(4)]}
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
			other, _ := Decide(&w.n, &w.p, &w.left, w.harm, before)
			if d := cmp.Diff(other, s); d != "" {
				t.Fatalf("seed %d: two equal decisions differ:\n%s", seed, d)
			}
			due := max(left, minBatch)
			switch {
			case s.Milli > due+w.band():
				t.Fatalf("seed %d: with %d left and a minimum of %d batch may use %d", seed, left, minBatch, s.Milli)
			case s.Milli < minBatch:
				t.Fatalf("seed %d: batch may use %d, below the minimum of %d", seed, s.Milli, minBatch)
			case before.Known && s.Milli > before.Milli+max(w.left.CPU.Capacity*growth/1000, 1000):
				t.Fatalf("seed %d: from %d to %d in one second", seed, before.Milli, s.Milli)
			case before.Known && s.Milli > before.Milli && w.n.Load.Clock-w.state.Shrunk < calm:
				t.Fatalf("seed %d: the limit rose %s after it fell", seed, w.n.Load.Clock-w.state.Shrunk)
			}
			checkCPUs(t, w, s)
			checkParts(t, w, s)
		}
	}
}

func checkCPUs(t *testing.T, w *node, s *model.Suppression) {
	t.Helper()
	most := int(w.left.CPU.Capacity / 1000)
	switch w.p.Suppress.By {
	case model.SuppressByQuota:
		if s.CPUs != 0 || !s.Quotas {
			t.Fatalf("by quota: %+v", s)
		}
	case model.SuppressByCpuset:
		if s.CPUs < 1 || s.CPUs > most || s.CPUs > 1 && int64(s.CPUs)*1000 > s.Milli || s.Quotas != (s.Milli < 1000) {
			t.Fatalf("by CPU set, of %d: %+v", most, s)
		}
	default:
		if s.CPUs < 1 || s.CPUs > most || int64(s.CPUs)*1000 < min(s.Milli-margin, int64(most)*1000) || !s.Quotas {
			t.Fatalf("by both, of %d: %+v", most, s)
		}
	}
}

func checkParts(t *testing.T, w *node, s *model.Suppression) {
	t.Helper()
	var sum, memory int64
	for _, p := range s.Parts {
		if p.Milli < leastPart || p.Memory < 0 {
			t.Fatalf("the kernel rejects this quota: %+v", p)
		}
		sum, memory = sum+p.Milli, memory+p.Memory
	}
	if sum > max(s.Milli, 0)+int64(len(s.Parts))*leastPart || sum < s.Milli-w.band()-int64(len(s.Parts)) {
		t.Fatalf("the parts of %d add up to %d", s.Milli, sum)
	}
	if memory > w.left.Memory.Allow || len(s.Parts) != len(w.n.Pods) {
		t.Fatalf("parts %+v", s.Parts)
	}
}

// TestDivide compares divide with a brute-force division, which gives one milli-core after the other to the pod with
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
		divide(milli, needs)
		for i := range needs {
			if want := max(dumb[i].part, leastPart); needs[i].part < want-5 || needs[i].part > want+5 {
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
	for _, by := range []model.SuppressMethod{model.SuppressByCpuset, model.SuppressByQuota, model.SuppressByBoth} {
		w := newNode(4)
		w.p.Suppress.By = by
		w.batch(1000)
		w.left.CPU.Capacity = 0
		if s := w.tick(0); s.Milli != 0 || len(s.Parts) != 1 {
			t.Errorf("%s: %+v", by, s)
		}
	}
	if s := newNode(4).tick(0); s.Milli != 0 || len(s.Parts) != 0 {
		t.Errorf("without batch: %+v", s)
	}
}

// TestStops checks that batch gets only the kernel's minimum quota when nothing is left. Koordinator always leaves
// batch two CPUs, which is half of a small node.
func TestStops(t *testing.T) {
	w := newNode(4)
	w.p.Suppress.By = model.SuppressByCpuset
	w.batch(4000)
	w.tick(4000)
	if s := w.tick(0); s.Milli != 0 || s.CPUs != 1 || !s.Quotas || s.Parts[0].Milli != leastPart {
		t.Errorf("with nothing left: %+v", s)
	}
}

// TestShrinksWithoutTopology checks that the limit falls even without a CPU topology. Koordinator skips the round if
// any input is missing, so that the last value stays.
func TestShrinksWithoutTopology(t *testing.T) {
	w := newNode(8)
	w.n.Tree.NoCpusets = true
	w.p.Suppress.By = model.SuppressByCpuset
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
		w := newNode(32)
		w.p.Suppress.By = model.SuppressByCpuset
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
	w := newNode(4)
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

// TestRise checks that a glance counts only after the last measurement, and only for usage that is not batch.
func TestRise(t *testing.T) {
	l := &model.Load{CPUMilli: 10000, Clock: time.Hour}
	l.Classes[model.Guaranteed].CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 6000}
	l.Classes[model.BestEffort].CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 4000}
	l.Node.CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 6500}
	glance := func(node, pods, bestEffort int64) model.Glance {
		return model.Glance{At: time.Hour, Node: node, Pods: pods, Batch: bestEffort}
	}
	old := glance(10000, 9500, 4000)
	old.At -= 2 * time.Second
	for _, c := range []struct {
		name   string
		glance model.Glance
		want   int64
	}{
		{"none", model.Glance{}, 0},
		{"older than the measurement", old, 0},
		{"online", glance(9500, 9000, 4000), 3000},
		{"online, which batch makes room for", glance(6500, 6000, 2000), 2000},
		{"batch", glance(9500, 9000, 7000), 0},
		{"outside of pods", glance(8500, 6000, 4000), 2000},
		{"pods seem to use more than the machine, and then less", glance(2000, 3000, 1000), 0},
		{"less than what could be noise", glance(7200, 6700, 4000), 0},
		{"online falls, the system rises as much", glance(6500, 5000, 4000), 1000},
	} {
		mark := markOf(&model.Node{Load: l}, 999)
		if got := mark.Rise(&c.glance); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestNoTopology checks that quotas limit batch where its CPUs cannot be chosen.
func TestNoTopology(t *testing.T) {
	for _, by := range []model.SuppressMethod{model.SuppressByCpuset, model.SuppressByBoth} {
		w := newNode(10)
		w.p.Suppress.By = by
		w.batch(4000)
		w.n.Topology = nil
		w.tick(6000)
		if s, _ := Decide(&w.n, &w.p, &w.left, w.harm, w.state); !s.Quotas || s.CPUs != 0 {
			t.Errorf("%s: %+v", by, s)
		}
	}
}

// TestBatchBesideItsClass checks that a batch pod outside of class BestEffort is no online pod to glances, and that
// only so many are told apart.
func TestBatchBesideItsClass(t *testing.T) {
	w := steady(10, 2000)
	sidecar := fixture.Pod("s", model.Burstable)
	sidecar.Class = model.ClassBE
	fixture.Run(&w.n, sidecar)
	fixture.Run(&w.n, fixture.Pod("web", model.Burstable))
	fixture.Measure(w.n.Load, "s", fixture.Usage(w.n.Load.Clock, 500, 0))
	if dirs := Beside(&w.n); len(dirs) != 1 || dirs[0] != "kubepods/burstable/pods" {
		t.Errorf("beside are %v", dirs)
	}
	mark := markOf(&w.n, 0)
	if want := int64(2000 - 500); mark.Pods != want {
		t.Errorf("the other pods used %d, want %d", mark.Pods, want)
	}
	// It rises by 4000, which batch of its class gives up.
	g := model.Glance{At: mark.At + 100*time.Millisecond, Node: 10_000, Pods: 10_000, Batch: 10_000 - 1500}
	if rise := mark.Rise(&g); rise != 0 {
		t.Errorf("a rise of batch is one of online pods: %d", rise)
	}
	if g.Batch -= 3000; mark.Rise(&g) != 3000 {
		t.Errorf("a rise of online pods is seen as %d", mark.Rise(&g))
	}
	for i := range 3 * mostBeside {
		p := fixture.Pod(fmt.Sprintf("t%02d", i), model.Burstable)
		p.Class = model.ClassBE
		fixture.Run(&w.n, p)
	}
	if dirs := Beside(&w.n); len(dirs) != mostBeside {
		t.Errorf("%d pods are told apart, want %d", len(dirs), mostBeside)
	}
}

// TestDue checks that a glance starts a round exactly if that round lowers the limit.
func TestDue(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newNode(1 + r.IntN(16))
		w.batch(4000)
		w.p.Suppress.MinBatch = []int64{0, 200}[r.IntN(2)]
		w.tick(r.Int64N(w.left.CPU.Capacity))
		w.tick(r.Int64N(w.left.CPU.Capacity))
		w.n.Load.Clock += 100 * time.Millisecond
		w.n.Glance = model.Glance{At: w.n.Load.Clock, Node: r.Int64N(16000), Pods: r.Int64N(16000)}
		due := w.due()
		before := w.state.Milli
		s, _ := Decide(&w.n, &w.p, &w.left, w.harm, w.state)
		if less := s.Milli < before-w.band(); less != due {
			t.Fatalf("seed %d: due %v, but from %d to %d", seed, due, before, s.Milli)
		}
	}
}

// due reports whether the glance starts a round.
func (w *node) due() bool {
	mark := Mark(&w.n, &w.p, &w.left.CPU, &w.state)
	return mark.Exceeded(&w.n.Glance)
}

// TestReaction checks that reductions merge while the effect of the first is not measured.
func TestReaction(t *testing.T) {
	w := newNode(10)
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

// TestOff checks that without suppression the rule decides nothing and keeps no state.
func TestOff(t *testing.T) {
	for _, p := range []model.Policy{
		{Mode: model.ModeDisabled, Suppress: model.SuppressPolicy{By: model.SuppressByQuota}},
		{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressByNone}}, {Mode: model.ModeEnforce},
	} {
		w := newNode(4)
		w.batch(1000)
		w.tick(3000)
		w.p = p
		s := w.tick(3000)
		if d := cmp.Diff(State{}, w.state); s != nil || d != "" {
			t.Errorf("%+v: %+v, state (-want +got):\n%s", p, s, d)
		}
	}
}

// waits sets the fraction of time that an online pod waits for a CPU, in thousandths, and the age of that
// measurement.
func (w *node) waits(some int64, ago time.Duration) {
	const uid = "online"
	if !slices.ContainsFunc(w.n.Pods, func(p *model.Pod) bool { return p.UID == uid }) {
		w.n.Pods = append(w.n.Pods, &model.Pod{UID: uid, Class: model.ClassLS})
	}
	w.n.Load.Pods = slices.DeleteFunc(w.n.Load.Pods, func(u model.PodUsage) bool { return u.UID == uid })
	u := model.PodUsage{UID: uid}
	u.Pressure.At, u.Pressure.CPU.Some = w.n.Load.Clock+time.Second-ago, some // the next tick comes first
	w.n.Load.Pods = append(w.n.Load.Pods, u)
}

// TestPressure checks that the withheld amount grows fast while online pods wait, shrinks half as fast, and ignores
// old measurements.
func TestPressure(t *testing.T) {
	w := newNode(10)
	w.batch(8000)
	w.tick(8000)
	for i, want := range []int64{500, 1000, 1500, 2000, 2500, 2500} {
		w.waits(200, 0)
		if w.tick(8000); w.state.Push != want {
			t.Fatalf("after %d s with a waiting online pod %d mCPU are withheld, want %d", i+1, w.state.Push, want)
		}
	}
	w.n.Glance = model.Glance{At: w.n.Load.Clock + time.Millisecond}
	if w.due() {
		t.Error("an amount that is withheld already starts a round")
	}
	if w.left.CPU.Allow = 7500; !w.due() {
		t.Error("a rise on top of the withheld amount starts no round")
	}
	for i, want := range []int64{2250, 2000} {
		w.waits(0, 0)
		if w.tick(8000); w.state.Push != want {
			t.Fatalf("after %d s without waiting pods %d mCPU are withheld, want %d", i+1, w.state.Push, want)
		}
	}
	w.waits(900, time.Minute)
	if w.tick(8000); w.state.Push != 1750 {
		t.Errorf("for waiting a minute ago %d mCPU are withheld", w.state.Push)
	}
}

// TestLittleLeft checks that a fall within noise counts if it ends near zero or at the minimum of batch.
func TestLittleLeft(t *testing.T) {
	for _, c := range []struct{ minBatch, first, then, want int64 }{
		{0, 300, 200, 200}, // a fortieth of 10 CPUs is 250 mCPU
		{0, 5000, 4900, 5000},
		{100, 1200, 1000, 1000},
		{100, 1300, 1100, 1300},
	} {
		w := newNode(10)
		w.p.Suppress.MinBatch = c.minBatch
		w.batch(8000)
		w.tick(c.first)
		if s := w.tick(c.then); s.Milli != c.want {
			t.Errorf("%+v: batch may use %d", c, s.Milli)
		}
	}
}

// TestOtherBoot checks that a clock behind the recorded times resets them, so that batch does not wait for the old
// clock.
func TestOtherBoot(t *testing.T) {
	w := newNode(10)
	w.batch(8000)
	w.tick(8000)
	w.tick(2000)
	w.n.Load.Clock = 0
	w.n.Load.Pods = nil
	for range 10 {
		w.tick(8000)
	}
	if w.state.Milli <= 2000 {
		t.Errorf("ten seconds after the boot batch may use only %d", w.state.Milli)
	}
}

// TestGrowsToTheLeast checks that the limit rises to the lowest target since the last raise was considered, not to
// the current one.
func TestGrowsToTheLeast(t *testing.T) {
	w := newNode(10)
	w.batch(8000)
	w.tick(8000)
	w.tick(2000)
	for _, left := range []int64{6000, 2500, 6000} {
		w.tick(left)
	}
	if w.state.Milli != 2500 {
		t.Errorf("batch may use %d, want the 2500 that were left a moment ago", w.state.Milli)
	}
}

// TestOneMoreCPU checks that batch gets a further CPU with some margin, and keeps it until less is left.
func TestOneMoreCPU(t *testing.T) {
	w := newNode(10)
	w.p.Suppress.By = model.SuppressByCpuset
	w.batch(8000)
	w.tick(8000)
	grow := func(left int64) int {
		for range 40 {
			w.tick(left)
		}
		return w.state.CPUs
	}
	w.tick(3500)
	for _, c := range []struct {
		left int64
		want int
	}{{4050, 3}, {4400, 4}, {4010, 4}, {3600, 3}} {
		if got := grow(c.left); got != c.want {
			t.Errorf("with %d left batch runs on %d CPUs, want %d", c.left, got, c.want)
		}
	}
}

// TestPartOfLimit checks that a pod with little usage counts with at most its limit, and that a part below the
// kernel's minimum quota is replaced.
func TestPartOfLimit(t *testing.T) {
	w := newNode(10)
	w.batch(4000, 4000)
	w.n.Pods[0].Grant.LimitMilli = 600
	w.tick(8000)
	w.uses(520, 7400) // with the room above its usage it would be 700
	if s := w.tick(9000); s.Parts[0].Milli != 600 || s.Parts[1].Milli != 8400 {
		t.Errorf("a limit of 600 mCPU: %+v", s.Parts)
	}
	w.state.Parts = []model.BatchPart{{UID: "b00", Milli: 5}, {UID: "b01", Milli: 7995}}
	w.uses(0, 100)
	if s := w.tick(8000); s.Parts[0].Milli < leastPart {
		t.Errorf("a quota that the kernel refuses stays: %+v", s.Parts)
	}
}
