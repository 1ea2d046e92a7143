package harm

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

// counting returns a node whose pod is counted, and does not wait.
func counting() *node {
	w := newNode()
	w.p.Protect.Cycles = true
	w.n.Cycles = []model.PodCycles{{UID: "web"}}
	return w
}

// counts lets the pod use so much CPU for a second, on CPUs of 2 GHz, at so many cycles for 1000 instructions.
func (w *node) counts(milli, ratio int64) *model.Harm {
	c := &w.n.Cycles[0]
	c.At = w.n.Load.Clock + time.Second
	c.Cycles += milli * 2_000_000
	c.Instructions += milli * 2_000_000 * 1000 / ratio
	return w.uses(milli, 0, time.Second)
}

// learnCycles lets batch be quiet for some seconds.
func (w *node) learnCycles(seconds int, milli int64, ratio func() int64) {
	w.quiet = true
	for range seconds {
		w.counts(milli, ratio())
	}
	w.quiet = false
}

func always(ratio int64) func() int64 { return func() int64 { return ratio } }

// TestHarmByCycles checks what counts as harm, and how much CPU the pod lacks.
func TestHarmByCycles(t *testing.T) {
	w := counting()
	w.learnCycles(120, 1000, always(800))
	if h := w.counts(1000, 920); h.Milli != 0 || h.Deep {
		t.Errorf("within the baseline, 10 %% and 5 %% is harm: %+v", h)
	}
	h := w.counts(1000, 1600)
	want := model.Harm{
		Known: true, Signal: model.HarmByDelay, Milli: 450, Deep: true,
		Worst: model.PodHarm{UID: "web", Milli: 450, Waits: 1600, Allowed: 880, By: model.HarmByCycles},
	}
	if d := cmp.Diff(&want, h); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if r := h.Worst.Reason(); r.Operands[1] != (model.Operand{Name: "cycles", Value: 1600, Unit: model.UnitPermille}) {
		t.Errorf("%+v", r)
	}
	w.n.Load.Clock += 250 * time.Millisecond
	if h := w.decide(); h.Milli != 450 {
		t.Errorf("a moment later it is as harmed as before: %+v", h)
	}
	w.n.Load.Clock += 250 * time.Millisecond
	if h := w.decide(); h.Milli != 0 {
		t.Errorf("harm stays without a further sample: %+v", h)
	}
	w.n.Load.Clock += 500 * time.Millisecond
	if h := w.counts(2000, 1600); h.Milli != 0 {
		t.Errorf("nothing was learned of this CPU use: %+v", h)
	}
	if h := w.counts(1000, 800); h.Milli != 0 || h.Deep {
		t.Errorf("harm stays when it ended: %+v", h)
	}
	text, err := json.Marshal(w.state)
	var read State
	if err != nil || json.Unmarshal(text, &read) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	if d := cmp.Diff(w.state, read); d != "" {
		t.Errorf("%s: decoded with differences (-want +got):\n%s", text, d)
	}

	next := counting()
	next.state = read.Learned()
	next.counts(1000, 1600)
	if h := next.counts(1000, 1600); h.Milli != 450 {
		t.Errorf("the baseline is lost: %+v", h)
	}
	next.p.Protect.Cycles = false
	if h := next.counts(1000, 1600); h.Milli != 0 || len(Count(&next.state)) != 0 {
		t.Errorf("the policy does not want it: %+v, %v", h, Count(&next.state))
	}
}

// madeUp are the cycles for 1000 instructions that a server could need in 30 seconds, of which batch fills the memory
// bandwidth in the second ten. No server was measured.
var madeUp = [...]int64{
	1043, 1010, 1092, 998, 1061, 1033, 1120, 1017, 1052, 1039,
	1702, 1811, 1655, 1930, 1748, 1801, 1690, 1777, 1862, 1720,
	1048, 1021, 1070, 1104, 1012, 1037, 1059, 1088, 1003, 1045,
}

// TestSeriesOfCycles checks in which seconds of a series a pod is harmed.
func TestSeriesOfCycles(t *testing.T) {
	w := counting()
	i := 0
	w.learnCycles(200, 700, func() int64 { i++; return madeUp[i%10] })
	for i, ratio := range madeUp {
		if h, want := w.counts(700, ratio), i/10 == 1; (h.Milli > 0) != want || h.Deep != want {
			t.Errorf("second %d, %d cycles: %+v", i, ratio, h)
		}
	}
}

// TestNoise checks how often noise is taken for harm, and that harm within noise is found.
func TestNoise(t *testing.T) {
	for _, spread := range []float64{0.02, 0.05, 0.10, 0.20} {
		r := rand.New(rand.NewPCG(7, 7))
		w := counting()
		noisy := func(mean float64) func() int64 {
			return func() int64 { return max(int64(mean*(1+spread*r.NormFloat64())), 100) }
		}
		w.learnCycles(600, 1000, noisy(900))
		wrong, found := 0, 0
		for range 10_000 {
			if w.counts(1000, noisy(900)()).Milli > 0 {
				wrong++
			}
		}
		for range 1000 {
			if w.counts(1000, noisy(1800)()).Milli > 0 {
				found++
			}
		}
		result := fmt.Sprintf("noise of %.0f %%: %d of 10000 seconds are wrong, %d of 1000 with twice the cycles are found",
			100*spread, wrong, found)
		t.Log(result)
		if wrong > 200 || found < 850 {
			t.Error(result)
		}
	}
}

// TestNoCounts checks samples that say nothing.
func TestNoCounts(t *testing.T) {
	for name, happens := range map[string]func(*node){
		"no counters":       func(w *node) { w.n.Cycles = nil },
		"nothing yet":       func(w *node) { w.n.Cycles[0] = model.PodCycles{UID: "web"} },
		"counters that end": func(w *node) { w.n.Cycles[0].At += time.Second },
		"samples are stuck": func(*node) {},
		"they began anew": func(w *node) {
			w.n.Cycles[0] = model.PodCycles{UID: "web", At: w.n.Load.Clock + time.Second, Cycles: 4000, Instructions: 1}
		},
		"instructions are not counted": func(w *node) {
			w.n.Cycles[0].At += time.Second
			w.n.Cycles[0].Cycles += 1 << 32
		},
		"the last sample is old": func(w *node) {
			w.n.Load.Clock += time.Minute
			c := &w.n.Cycles[0]
			c.At, c.Cycles, c.Instructions = w.n.Load.Clock, c.Cycles+4_000_000_000, c.Instructions+1_000_000_000
		},
		"it hardly ran": func(w *node) {
			w.n.Load.Pods[0].CPU.Milli = 1
			w.n.Cycles[0].At += time.Second
			w.n.Cycles[0].Cycles += 1_000_000
			w.n.Cycles[0].Instructions += 100_000
		},
	} {
		w := counting()
		w.learnCycles(120, 1000, always(800))
		w.counts(1000, 800)
		happens(w)
		w.n.Waits[0].At, w.n.Load.Clock = w.n.Load.Clock+time.Second, w.n.Load.Clock+time.Second
		if h := w.decide(); h.Milli != 0 || h.Deep || !h.Known {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

// TestOwnCycles checks that a pod that needs as many cycles after batch was pushed back as far as possible is not
// harmed.
func TestOwnCycles(t *testing.T) {
	w := counting()
	w.learnCycles(120, 1000, always(800))
	w.useless = true
	w.counts(1000, 1600)
	w.useless = false
	if h := w.counts(1000, 1650); h.Milli != 0 {
		t.Errorf("it needed as many without batch: %+v", h)
	}
	if h := w.counts(1000, 2400); h.Milli == 0 {
		t.Errorf("it needs more: %+v", h)
	}
	for range 1800 {
		w.counts(1000, 800)
	}
	if h := w.counts(1000, 1600); h.Milli == 0 {
		t.Errorf("after half an hour: %+v", h)
	}
}

// TestCount checks which pods are counted: the 16 that use most, and none in the place of one that is alike.
func TestCount(t *testing.T) {
	w := counting()
	for i := range 40 {
		w.pod("x" + string(rune('A'+i)))
	}
	use := func(milli func(i int) int64) []string {
		for i := range w.n.Load.Pods {
			w.n.Load.Pods[i].CPU.Milli = milli(i)
		}
		w.decide()
		return Count(&w.state)
	}
	if got := use(func(int) int64 { return uses - 1 }); len(got) != 0 {
		t.Errorf("pods that use nothing: %v", got)
	}
	first := use(func(i int) int64 { return int64(i) * 50 })
	if len(first) != mostCounted || !slices.IsSorted(first) || first[0] != "xY" {
		t.Errorf("%v", first)
	}
	if got := use(func(i int) int64 { return 2000 - int64(i) }); !slices.Equal(got, first) {
		t.Errorf("others use a little more: %v instead of %v", got, first)
	}
	if got := use(func(i int) int64 { return 2000 - 50*int64(i) }); slices.Equal(got, first) {
		t.Errorf("others use much more: %v", got)
	}
}
