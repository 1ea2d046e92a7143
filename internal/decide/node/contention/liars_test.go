package contention

import (
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// lessBatch is how many milli-cores less than arithmetic leaves waits may cost batch, on average of an hour, whoever
// waits and why: a quarter of 16 CPUs for 16 s in two minutes.
const lessBatch = 16_000 / 4 * 16 / 120

// hour lets an hour pass. It returns the means of what batch may use, and of what it may use less than arithmetic
// leaves.
func (w *node) hour(now func()) (mean, less int64) {
	for range 3600 {
		w.second(now)
		mean += w.may()
		less += max(w.leaves()-w.may(), 0)
	}
	return mean / 3600, less / 3600
}

// TestFigureOpensNoDoor checks that waits do not hold batch where a service's figure pushed it, once the figure is
// good: pods of a tenant take turns in waiting for themselves.
func TestFigureOpensNoDoor(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	value := int64(10_000)
	figure := w.serves(func() int64 { return value })
	w.run(60, figure)
	value = 60_000
	if w.run(12, figure); w.may() > 2000 {
		t.Fatalf("the figure pushes batch to %d only", w.may())
	}
	value = 10_000
	s, last := 0, "x"
	_, less := w.hour(func() {
		figure()
		if s++; s%150 == 1 {
			w.gone(last)
			last = fmt.Sprintf("x%d", s)
			w.pod(last, load{uses: 100, waits: 3000})
		}
	})
	t.Logf("batch has %d milli-cores less than arithmetic leaves", less)
	if less > lessBatch {
		t.Errorf("batch has %d milli-cores less than arithmetic leaves", less)
	}
}

// TestFigureBesideBlind checks that batch gets back what arithmetic leaves after a figure pushed it below that, where
// nothing is known of another pod.
func TestFigureBesideBlind(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.tasks, w.n.Tree.NoPressure = false, true
	w.pod("db", load{uses: 500})
	value := int64(60_000)
	figure := w.serves(func() int64 { return value })
	if w.run(12, figure); w.may() > 2000 {
		t.Fatalf("the figure pushes batch to %d only", w.may())
	}
	value = 10_000
	if w.run(120, figure); w.may() != w.leaves() || w.result.Limit.Reason.Code != model.HarmUnknown {
		t.Errorf("batch may use %d, and arithmetic leaves %d: %v", w.may(), w.leaves(), w.result.Limit.Reason)
	}
}

// TestLiesInRhythm checks pods that wait in rhythms that fit the trials: they cost batch little more than arithmetic
// would.
func TestLiesInRhythm(t *testing.T) {
	most := int64(0)
	for _, on := range []int{15, 25, 30, 50, 100} { // tenths of a second
		for _, off := range []int{50, 80, 90, 120, 200} {
			for _, pulses := range []int{0, 5, 40} {
				w := newNode(model.SuppressOnHarm)
				w.pod("liar", load{uses: 500})
				w.run(60, quietly)
				at := -1
				_, less := w.hour(func() {
					at = (at + 1) % (on + off + 100*pulses)
					w.pods["liar"].waits = 0
					if at < on || at >= on+off && (at-on-off)%100 < 15 {
						w.pods["liar"].waits = 8000
					}
				})
				most = max(most, less)
				if less > lessBatch {
					t.Errorf("waits for %d, not for %d tenths, and then for 15 of 100, %d times: batch has %d less than arithmetic "+
						"leaves", on, off, pulses, less)
				}
			}
		}
	}
	t.Logf("batch has %d less than arithmetic leaves at most", most)
}

// TestVictimBesideLiar checks that a pod which batch harms is helped by less than arithmetic leaves, although another
// one waits whatever batch does, and longer.
func TestVictimBesideLiar(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.pod("liar", load{uses: 500, waits: 3000})
	now := func() { w.pods["web"].waits = min(max(w.used()-7000, 0)*2, 700) }
	harmed := 0
	for range 60 {
		w.second(now)
		if w.pods["web"].waits > 450 {
			harmed++
		}
	}
	if harmed > 20 {
		t.Errorf("it is harmed in %d of 60 s, and batch may use %d", harmed, w.may())
	}
}

// TestWithoutLimit checks that harm counts at once when batch begins to be limited: as long as it was not, because the
// agent only observed, or because the kernel refused the limit, nothing proves a pod's own fault.
func TestWithoutLimit(t *testing.T) {
	for _, refused := range []bool{false, true} {
		for _, figure := range []bool{false, true} {
			w := newNode(model.SuppressOnHarm)
			now := w.waits(10_500)
			if figure {
				now = w.serves(func() int64 { return 10_000 + w.used() })
			}
			if w.refused = refused; !refused {
				w.p.Mode = model.ModeObserve
			}
			w.run(120, now)
			w.p.Mode, w.refused = model.ModeEnforce, false
			if w.run(10, now); w.used() > 11_000 {
				t.Errorf("refused %v, figure %v: batch uses %d, %+v", refused, figure, w.used(), w.result.Harm)
			}
		}
	}
}

// TestRounds checks that pods which wait whatever batch does cause no rounds of their own where batch can be pushed
// back no further.
func TestRounds(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.pod("liar", load{uses: 500})
	w.run(60, quietly)
	w.pods["liar"].waits = 8000
	w.run(3, quietly)
	before := w.rounds
	for range 2 {
		w.second(quietly)
	}
	if got := w.rounds - before; got > 3 {
		t.Errorf("%d rounds in 2 s at the lowest limit", got)
	}
}

// TestRoundsBelow checks that a pod which waits whatever batch does causes no rounds of its own while a figure rightly
// holds batch below what arithmetic leaves: its waits count for nothing there.
func TestRoundsBelow(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.pod("liar", load{uses: 500, waits: 8000})
	figure := w.serves(func() int64 { return 10_000 + w.used()*10_000/4000 })
	w.run(600, figure)
	before := w.rounds
	if w.run(60, figure); w.rounds-before > 62 || w.may() > 5000 {
		t.Errorf("%d rounds in 60 s, batch may use %d", w.rounds-before, w.may())
	}
}

// TestHelpedOnce checks that the waits of a pod which less batch helped once do not keep batch where a figure pushed
// it: not at all if that push is over, and no lower than waits push if it is not.
func TestHelpedOnce(t *testing.T) {
	for _, deeper := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		figure := w.serves(func() int64 { return 10_000 })
		w.run(60, figure)
		w.state.Services[0].Pushes = true
		h := &w.state.Harm // as a figure leaves it
		h.Deep, h.Deeper, h.Limit, h.From, h.Bears, h.Soon = true, deeper, 100, 100, 16_000, slowRecovery
		h.Pods = []string{"web"}
		for i := range w.state.Pods {
			w.state.Pods[i].Trial = helped
		}
		w.pods["web"].waits = 8000
		if w.run(15, figure); w.may() < 4800 {
			t.Errorf("less helps it now: %v; after 15 s batch may use %d", deeper, w.may())
		}
	}
}
