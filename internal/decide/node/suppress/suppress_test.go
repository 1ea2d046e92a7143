package suppress

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// node is a node of which everything that suppression depends on can be turned.
type node struct {
	n     model.Node
	p     model.Policy
	left  model.Slack
	state State
}

func newNode(cpus int) *node {
	w := &node{
		p: model.Policy{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressByQuota}},
		n: model.Node{Load: &model.Load{Clock: time.Hour, CPUMilli: int64(cpus) * 1000}, Tree: model.Tree{Pods: map[string]model.PodGroup{}}},
	}
	w.left.CPU = model.Account{Capacity: int64(cpus) * 1000, Use: model.Use{Measured: true}}
	w.left.Memory.Allow = 8 << 30
	return w
}

// batch adds batch pods that each ask for a number of milli-cores.
func (w *node) batch(requests ...int64) {
	for i, milli := range requests {
		uid := fmt.Sprintf("b%02d", i)
		w.n.Pods = append(w.n.Pods, &model.Pod{UID: uid, Class: model.ClassBE, Grant: model.Grant{RequestMilli: milli}, Batch: model.Amount{CPU: milli, Memory: 1 << 30}})
		w.n.Tree.Pods[uid] = model.PodGroup{Dir: "besteffort/" + uid}
	}
}

// uses says what each batch pod was measured to use.
func (w *node) uses(milli ...int64) {
	w.n.Load.Pods = nil
	w.left.CPU.Use.Batch = 0
	for i, m := range milli {
		w.n.Load.Pods = append(w.n.Load.Pods, model.PodUsage{UID: fmt.Sprintf("b%02d", i), Usage: model.Usage{CPU: model.CPUUsage{At: w.n.Load.Clock, Milli: m}}})
		w.left.CPU.Use.Batch += m
	}
}

// tick lets a second pass in which so much was left.
func (w *node) tick(left int64) *model.Suppression {
	w.n.Load.Clock += time.Second
	for i := range w.n.Load.Classes {
		w.n.Load.Classes[i].CPU.At = w.n.Load.Clock
	}
	w.left.CPU.Allow = left
	var s *model.Suppression
	s, w.state = Decide(&w.n, &w.p, &w.left, w.state)
	return s
}

func (w *node) band() int64 { return w.left.CPU.Capacity * noise / 1000 }

// TestProperties walks random nodes through random loads.
func TestProperties(t *testing.T) {
	methods := []model.SuppressMethod{model.SuppressByCpuset, model.SuppressByQuota, model.SuppressByBoth}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newNode(1 + r.IntN(64))
		w.p.Suppress = model.SuppressPolicy{By: methods[r.IntN(3)], MinBatch: []int64{0, 0, 50, 300}[r.IntN(4)]}
		requests := make([]int64, 1+r.IntN(8))
		for i := range requests {
			requests[i] = r.Int64N(4000)
		}
		w.batch(requests...)
		floor := w.left.CPU.Capacity * w.p.Suppress.MinBatch / 1000
		for range 200 {
			left := r.Int64N(w.left.CPU.Capacity + 1)
			use := make([]int64, len(requests))
			for i := range use {
				use[i] = r.Int64N(3000)
			}
			w.uses(use...)
			before := w.state
			s := w.tick(left)
			if other, _ := Decide(&w.n, &w.p, &w.left, before); !reflect.DeepEqual(other, s) {
				t.Fatalf("seed %d: the same was decided differently: %+v, %+v", seed, other, s)
			}
			due := max(left, floor)
			switch {
			case s.Milli > due+w.band():
				t.Fatalf("seed %d: of %d left and a floor of %d batch may use %d", seed, left, floor, s.Milli)
			case s.Milli < floor:
				t.Fatalf("seed %d: batch may use %d, below the floor of %d", seed, s.Milli, floor)
			case before.Known && s.Milli > before.Milli+max(w.left.CPU.Capacity*growth/1000, 1000):
				t.Fatalf("seed %d: from %d to %d in one second", seed, before.Milli, s.Milli)
			case before.Known && s.Milli > before.Milli && w.n.Load.Clock-w.state.Shrunk < calm:
				t.Fatalf("seed %d: given more %s after it was given less", seed, w.n.Load.Clock-w.state.Shrunk)
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
		if s.CPUs < 1 || s.CPUs > most || int64(s.CPUs)*1000 < min(s.Milli-hold, int64(most)*1000) || !s.Quotas {
			t.Fatalf("by both, of %d: %+v", most, s)
		}
	}
}

func checkParts(t *testing.T, w *node, s *model.Suppression) {
	t.Helper()
	var sum, memory int64
	for _, p := range s.Parts {
		if p.Milli < leastPart || p.Memory < 0 {
			t.Fatalf("the kernel takes no such quota: %+v", p)
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

// TestDivide compares with a dumb division, which hands out one milli-core after the other to whoever has least for what it
// asked for.
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
					if best < 0 || (d.part-spare(d, full))*dumb[best].weight < (dumb[best].part-spare(&dumb[best], full))*d.weight {
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
				t.Fatalf("seed %d: %d divided: %+v, by hand %+v", seed, milli, needs, dumb)
			}
		}
	}
}

// spare returns what of a part does not count when the rest is given out by weight.
func spare(d *need, full bool) int64 {
	if full {
		return d.most
	}
	return 0
}

// TestNoCPUsLeft: Koordinator divides by the number of CPUs that are not somebody's alone, and panics when there are none
// (cpu_suppress.go, adjustByCPUSet).
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

// TestStops: Koordinator leaves batch two CPUs whatever online pods need, which is half of a small node. Here nothing is
// left but what the kernel takes as a quota.
func TestStops(t *testing.T) {
	w := newNode(4)
	w.p.Suppress.By = model.SuppressByCpuset
	w.batch(4000)
	w.tick(4000)
	if s := w.tick(0); s.Milli != 0 || s.CPUs != 1 || !s.Quotas || s.Parts[0].Milli != leastPart {
		t.Errorf("with nothing left batch may use %+v", s)
	}
}

// TestShrinksWithoutTopology: Koordinator skips the tick where it lacks something, so that the last value stays. Here what is
// left counts, whatever else is known.
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

// TestDoesNotFlap: Koordinator follows the last second up and down, so that each wave of online load moves all batch twice.
// For any bounded noise this one moves batch down a bounded number of times, and hardly back up.
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

// TestFrozenMetrics: where nothing is measured any more, the account says less and less, and a state that was saved before
// counts only until the first measurement.
func TestFrozenMetrics(t *testing.T) {
	w := newNode(4)
	w.batch(4000)
	w.left.CPU.Use.Measured = false
	if s := w.tick(0); s != nil {
		t.Errorf("nothing was measured yet, and batch is kept to %+v", s)
	}
	w.left.CPU.Use.Measured = true
	w.tick(3000)
	w.left.CPU.Use.Measured = false
	if s := w.tick(0); s.Milli != 3000 {
		t.Errorf("before it measures again: %+v", s)
	}
	w.left.CPU.Use.Measured, w.left.CPU.Use.Age = true, time.Minute
	if s := w.tick(0); s.Milli != 0 || s.Reason.Code != model.SlackDoubted {
		t.Errorf("frozen: %+v", s)
	}
}

// TestRise: a glance counts from the last measurement on, and only for what is not batch.
func TestRise(t *testing.T) {
	l := &model.Load{CPUMilli: 10000, Clock: time.Hour}
	l.Classes[model.Guaranteed].CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 6000}
	l.Classes[model.BestEffort].CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 4000}
	l.Node.CPU = model.CPUUsage{At: time.Hour - time.Second, Milli: 6500}
	for _, c := range []struct {
		name   string
		glance model.Glance
		want   int64
	}{
		{"none", model.Glance{}, 0},
		{"older than the measurement", model.Glance{At: time.Hour - 2*time.Second, Node: 10000, Pods: 9500, BestEffort: 4000}, 0},
		{"online", model.Glance{At: time.Hour, Node: 9500, Pods: 9000, BestEffort: 4000}, 3000},
		{"online, which batch makes room for", model.Glance{At: time.Hour, Node: 6500, Pods: 6000, BestEffort: 2000}, 2000},
		{"batch", model.Glance{At: time.Hour, Node: 9500, Pods: 9000, BestEffort: 7000}, 0},
		{"outside of pods", model.Glance{At: time.Hour, Node: 8500, Pods: 6000, BestEffort: 4000}, 2000},
		{"pods seem to use more than the machine, and then less", model.Glance{At: time.Hour, Node: 2000, Pods: 3000, BestEffort: 1000}, 0},
		{"less than what could be noise", model.Glance{At: time.Hour, Node: 7200, Pods: 6700, BestEffort: 4000}, 0},
		{"online falls, the system rises as much", model.Glance{At: time.Hour, Node: 6500, Pods: 5000, BestEffort: 4000}, 1000},
	} {
		mark := markOf(l, 999)
		if got := mark.Rise(&c.glance); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestDue: a glance wakes the loop exactly when deciding gives batch less.
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
		s, _ := Decide(&w.n, &w.p, &w.left, w.state)
		if less := s.Milli < before-w.band(); less != due {
			t.Fatalf("seed %d: due %v, but from %d to %d", seed, due, before, s.Milli)
		}
	}
}

// due reports whether the glance wakes the loop.
func (w *node) due() bool {
	mark := Mark(w.n.Load, &w.p, &w.left.CPU, &w.state)
	return mark.Exceeded(&w.n.Glance)
}

// TestReaction: reactions that follow each other before one was seen to have an effect are one.
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

// TestOff: what does not suppress decides nothing and remembers nothing.
func TestOff(t *testing.T) {
	for _, p := range []model.Policy{
		{Mode: model.ModeDisabled, Suppress: model.SuppressPolicy{By: model.SuppressByQuota}},
		{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: model.SuppressByNone}}, {Mode: model.ModeEnforce},
	} {
		w := newNode(4)
		w.batch(1000)
		w.tick(3000)
		w.p = p
		if s := w.tick(3000); s != nil || !reflect.DeepEqual(w.state, State{}) {
			t.Errorf("%+v: %+v, %+v", p, s, w.state)
		}
	}
}

// waits says for how much of the time an online pod waits for a CPU, in thousandths, as it was seen so long ago.
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

// TestPressure: what is withheld while online pods wait grows fast, goes half as fast, and not by what was seen long ago.
func TestPressure(t *testing.T) {
	w := newNode(10)
	w.batch(8000)
	w.tick(8000)
	for i, want := range []int64{500, 1000, 1500, 2000, 2500, 2500} {
		w.waits(200, 0)
		if w.tick(8000); w.state.Push != want {
			t.Fatalf("after %d s in which an online pod waited %d mCPU are withheld, want %d", i+1, w.state.Push, want)
		}
	}
	w.n.Glance = model.Glance{At: w.n.Load.Clock + time.Millisecond}
	if w.due() {
		t.Error("what is withheld already is no reason to decide again")
	}
	if w.left.CPU.Allow = 7500; !w.due() {
		t.Error("what is withheld comes on top of a rise")
	}
	for i, want := range []int64{2250, 2000} {
		w.waits(0, 0)
		if w.tick(8000); w.state.Push != want {
			t.Fatalf("after %d s in which none waited %d mCPU are withheld, want %d", i+1, w.state.Push, want)
		}
	}
	w.waits(900, time.Minute)
	if w.tick(8000); w.state.Push != 1750 {
		t.Errorf("for what a pod waited a minute ago %d mCPU are withheld", w.state.Push)
	}
}

// TestLittleLeft: a fall that is less than what could be noise counts where it ends at nothing, or at the floor.
func TestLittleLeft(t *testing.T) {
	for _, c := range []struct{ floor, first, then, want int64 }{
		{0, 300, 200, 200}, // a fortieth of 10 CPUs is 250 mCPU
		{0, 5000, 4900, 5000},
		{100, 1200, 1000, 1000},
		{100, 1300, 1100, 1300},
	} {
		w := newNode(10)
		w.p.Suppress.MinBatch = c.floor
		w.batch(8000)
		w.tick(c.first)
		if s := w.tick(c.then); s.Milli != c.want {
			t.Errorf("floor %d, from %d to %d: batch may use %d, want %d", c.floor, c.first, c.then, s.Milli, c.want)
		}
	}
}

// TestOtherBoot: a clock that is behind what was noted is that of another boot, and batch does not wait until it is there.
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
		t.Errorf("ten seconds after the boot batch may still use %d", w.state.Milli)
	}
}

// TestGrowsToTheLeast: batch is given what was left all the time since it was last looked, not what is left just now.
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

// TestOneMoreCPU: batch gets a further CPU when a little more than that is left, and keeps it until less is left.
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

// TestPartOfLimit: a pod that uses little is counted with no more than its limit allows, and one whose part was below what the
// kernel takes is given a new one.
func TestPartOfLimit(t *testing.T) {
	w := newNode(10)
	w.batch(4000, 4000)
	w.n.Pods[0].Grant.LimitMilli = 600
	w.tick(8000)
	w.uses(520, 7400) // with room above that it would be 700
	if s := w.tick(9000); s.Parts[0].Milli != 600 || s.Parts[1].Milli != 8400 {
		t.Errorf("a limit of 600 mCPU: %+v", s.Parts)
	}
	w.state.Parts = []model.BatchPart{{UID: "b00", Milli: 5}, {UID: "b01", Milli: 7995}}
	w.uses(0, 100)
	if s := w.tick(8000); s.Parts[0].Milli < leastPart {
		t.Errorf("a quota that the kernel refuses stays: %+v", s.Parts)
	}
}
