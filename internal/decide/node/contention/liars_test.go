package contention

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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

// TestFigureFlaps checks a figure that is too high in a rhythm of its own, or at random, whatever batch does: that
// shows within some times, and then it costs batch an eighth of what arithmetic leaves at most, at random a quarter.
func TestFigureFlaps(t *testing.T) {
	type rhythm struct {
		bad, good int
		high      int64
	}
	all := []rhythm{{60, 25, 40_000}, {10, 50, 21_000}, {10, 50, 30_000}, {1, 60, 22_000}, {2, 120, 22_000}}
	for _, bad := range []int{3, 8, 12, 20, 30} {
		for _, good := range []int{2, 8, 15, 25, 31, 45, 60} {
			all = append(all, rhythm{bad, good, 40_000})
		}
	}
	most := int64(0)
	for _, c := range all {
		for _, random := range []bool{false, true} {
			w := newNode(model.SuppressOnHarm)
			r, until, bad := rand.New(rand.NewPCG(uint64(c.bad), uint64(c.good))), time.Duration(0), false
			figure := w.serves(func() int64 {
				if now := w.n.Load.Clock; now >= until {
					bad = !bad
					length := c.good
					if bad {
						length = c.bad
					}
					if random {
						length = 1 + r.IntN(2*length)
					}
					until = now + time.Duration(length)*time.Second
				}
				if bad {
					return c.high
				}
				return 10_000
			})
			w.run(1800, figure)
			mean, less := w.hour(figure)
			most = max(most, less)
			limit := w.leaves() / 8
			if random {
				limit *= 2
			}
			if less > limit {
				t.Errorf("%+v, random %v: batch may use %d on average, %d less than arithmetic leaves", c, random, mean, less)
			}
		}
	}
	t.Logf("batch has %d milli-cores less than arithmetic leaves at most", most)
}

// TestFigureAnswers checks a figure that answers to batch, ten seconds late, also where the service bears less than
// arithmetic leaves: it is too high for a small part of the time.
func TestFigureAnswers(t *testing.T) {
	for _, bears := range []int64{300, 600, 1000, 4000, 7000, 11_000} {
		w := newNode(model.SuppressOnHarm)
		var last []int64
		figure := w.serves(func() int64 {
			if last = append(last, 10_000+w.used()*10_000/bears); len(last) > 10 {
				last = last[1:]
			}
			worst := int64(0)
			for _, v := range last {
				worst = max(worst, v)
			}
			return worst
		})
		slow, mean := 0, int64(0)
		for range 3600 {
			w.second(figure)
			mean += w.used()
			if w.used() > bears {
				slow++
			}
		}
		t.Logf("batch uses %d of %d, and the service is slow for %d s of an hour", mean/3600, bears, slow)
		if slow > 120 || mean/3600 < bears/3 {
			t.Errorf("batch uses %d of %d, and the service is slow for %d s of an hour", mean/3600, bears, slow)
		}
	}
}

// TestFigureAnswersLater checks a service whose figure was too high for an hour in a rhythm of its own. When it answers
// to batch later, the service is protected again after forty minutes at most, as if it had never been at fault.
func TestFigureAnswersLater(t *testing.T) {
	for _, bears := range []int64{1000, 4000} {
		w := newNode(model.SuppressOnHarm)
		figure := w.serves(func() int64 {
			switch now := w.n.Load.Clock; {
			case now > 2*time.Hour:
				return 10_000 + w.used()*10_000/bears
			case int(now/time.Second)%60 < 10:
				return 30_000
			}
			return 10_000
		})
		w.run(3600, figure)
		if w.state.Services[0].Fault == 0 {
			t.Fatal("nothing is proven")
		}
		w.run(int(maxFault/time.Second)+60, figure)
		slow := 0
		for range 3600 {
			if w.second(figure); w.used() > bears {
				slow++
			}
		}
		if slow > 120 {
			t.Errorf("it bears %d, and is slow for %d s of an hour: %+v", bears, slow, w.state.Services[0])
		}
	}
}

// TestSilent checks a service whose figure was too high, and that does not answer any more: batch gets no more for a
// minute, and then what arithmetic leaves at most. One that was never too high costs nothing.
func TestSilent(t *testing.T) {
	for _, harmed := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		silent := false
		fetch := w.serves(func() int64 {
			if harmed {
				return 10_000 + w.used()*10_000/4000
			}
			return 10_000
		})
		figure := func() {
			if fetch(); silent && len(w.n.Figures) > 0 {
				w.n.Figures[0].Failed, w.n.Figures[0].At = "timeout", w.n.Load.Clock-time.Minute
			}
		}
		for s := 0; s < 60 || harmed && !w.state.Services[0].Over; s++ {
			w.second(figure)
		}
		silent = true
		before := w.may()
		if w.run(55, figure); harmed && w.may() > before {
			t.Errorf("batch may use %d after 55 s, and %d before", w.may(), before)
		}
		want := int64(16_000)
		if harmed {
			want = w.leaves()
		}
		if w.run(600, figure); w.may() != want || len(w.result.Harm.Unknown) != 1 {
			t.Errorf("harmed %v: batch may use %d, want %d: %+v", harmed, w.may(), want, w.result.Harm)
		}
	}
}

// TestSilentLiar checks a figure that is always too high, of a service that answers once in a minute only: it costs
// batch a third of what arithmetic leaves at most.
func TestSilentLiar(t *testing.T) {
	for _, high := range []int64{21_000, 60_000} {
		w := newNode(model.SuppressOnHarm)
		w.serves(func() int64 { return high })
		s := 0
		figure := func() {
			if s++; s%600 == 1 && len(w.result.Services) > 0 {
				w.n.Figures = []model.ServiceFigure{{UID: "web", At: w.n.Load.Clock, Value: high, Max: 20_000}}
			}
		}
		w.run(1800, figure)
		mean, less := w.hour(figure)
		t.Logf("%d: batch may use %d on average, %d less than arithmetic leaves", high, mean, less)
		if less > w.leaves()/3 {
			t.Errorf("%d: batch may use %d on average, %d less than arithmetic leaves", high, mean, less)
		}
	}
}

// TestFigureOfShortLived checks pods whose figures are always too high, and which are replaced before their own fault
// is proven, as those of a CronJob are. The proof adds up over the pods of an owner, and then the next ones cost batch
// little.
func TestFigureOfShortLived(t *testing.T) {
	for _, lives := range []int{15, 20, 40} {
		w := newNode(model.SuppressOnHarm)
		w.serves(func() int64 { return 0 })
		delete(model.FindPod(w.n.Pods, "web").Labels, "app")
		s, last := 0, ""
		figure := func() {
			if s++; s%(10*(lives+5)) == 1 {
				last = fmt.Sprintf("x%d", s)
				pod := w.pod(last, load{uses: 500})
				pod.Owner, pod.Labels = "CronJob/shop/report", map[string]string{"app": "web"}
			}
			if s%(10*(lives+5)) == 10*lives {
				w.gone(last)
				w.n.Figures, last = nil, ""
			}
			if last != "" && s%10 == 0 {
				w.n.Figures = []model.ServiceFigure{{UID: last, At: w.n.Load.Clock, Value: 60_000, Max: 20_000}}
			}
		}
		w.run(600, figure)
		mean, less := w.hour(figure)
		t.Logf("pods of %d s: batch may use %d on average, %d less than arithmetic leaves", lives, mean, less)
		if less > w.leaves()/8 {
			t.Errorf("pods of %d s: batch has %d less than arithmetic leaves", lives, less)
		}
	}
}

// TestFigureOfFlippedLabel checks a pod whose figure is always too high, and which takes off the label by which a rule
// selects it for a second before its own fault is proven: it keeps the proof.
func TestFigureOfFlippedLabel(t *testing.T) {
	for _, every := range []int{10, 14, 18, 30} {
		w := newNode(model.SuppressOnHarm)
		figure := w.serves(func() int64 { return 60_000 })
		pod, s := model.FindPod(w.n.Pods, "web"), 0
		pod.Owner = "Deployment/shop/web"
		now := func() {
			pod.Labels = map[string]string{"app": "web"}
			if s++; s/10%every == 0 {
				pod.Labels = nil
			}
			figure()
		}
		w.run(300, now)
		mean, less := w.hour(now)
		t.Logf("label off each %d s: batch may use %d on average, %d less than arithmetic leaves", every, mean, less)
		if less > w.leaves()/8 {
			t.Errorf("label off each %d s: batch has %d less than arithmetic leaves", every, less)
		}
	}
}

// TestFigureKeepsItsPlace checks that many pods of a tenant displace no figure of another's service, whichever of them
// was there first.
func TestFigureKeepsItsPlace(t *testing.T) {
	for _, first := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		figure := w.serves(func() int64 { return 10_000 + w.used()*10_000/4000 })
		web := model.FindPod(w.n.Pods, "web")
		if !first {
			web.Labels = nil
		}
		w.run(60, figure)
		for i := range 2 * maxServices {
			pod := w.pod(fmt.Sprintf("a%02d", i), load{uses: 1})
			pod.Namespace, pod.Labels = "evil", map[string]string{"app": "web"}
		}
		now := func() {
			var all []model.ServiceFigure
			for _, s := range w.result.Services {
				if all = append(all, model.ServiceFigure{UID: s.UID, At: w.n.Load.Clock, Value: 1, Max: 20_000}); s.UID == "web" {
					all[len(all)-1].Value = 10_000 + w.used()*10_000/4000
				}
			}
			w.n.Figures = all
		}
		w.run(60, now)
		web.Labels = map[string]string{"app": "web"}
		if w.run(60, now); w.used() > 4500 || len(w.result.Services) != maxServices {
			t.Errorf("web was first %v: batch uses %d, web bears 4000, and %d figures are fetched", first, w.used(),
				len(w.result.Services))
		}
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

// TestPushEnds checks that batch has at least what arithmetic leaves as soon as no service is there whose figure pushed
// it below that: its rule was removed, or it left, whoever else was harmed meanwhile.
func TestPushEnds(t *testing.T) {
	for _, other := range []string{"db", model.SystemKernel} {
		for name, end := range map[string]func(w *node){
			"the rule is removed": func(w *node) { w.p.Services = nil },
			"the service leaves":  func(w *node) { w.gone("web") },
		} {
			w := newNode(model.SuppressOnHarm)
			if w.pod("db", load{uses: 300}); other != "db" {
				w.service(other, load{uses: 50})
			}
			value := int64(10_000)
			figure := w.serves(func() int64 { return value })
			w.run(60, figure)
			w.pods[other].waits = 3000
			w.run(3, figure)
			w.pods[other].waits, value = 0, 60_000
			w.run(12, figure)
			if w.state.Harm.Soon, value = maxRecovery, 10_000; w.may() > 1000 {
				t.Fatalf("%s, %s: the figure pushes batch to %d only", name, other, w.may())
			}
			w.run(10, figure)
			w.n.Figures = nil
			end(w)
			if w.run(10, quietly); w.may() < w.leaves() {
				t.Errorf("%s, %s was harmed: batch may use %d, and arithmetic leaves %d", name, other, w.may(), w.leaves())
			}
			if w.run(180, quietly); w.may() != 16_000 {
				t.Errorf("%s, %s was harmed: 3 minutes later batch may use %d", name, other, w.may())
			}
		}
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
