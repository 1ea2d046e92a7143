package contention

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// TestFigureFlaps checks a figure that is too high in a rhythm of its own, or at random, whatever batch does: that
// shows within some times, and then it costs batch a fifth of what arithmetic leaves at most. At random it is
// an eighth on average, and two fifths at most, as it is where it is of any height each second, or in each burst.
func TestFigureFlaps(t *testing.T) {
	type rhythm struct {
		bad, good int
		high      int64
	}
	all := []rhythm{
		{60, 25, 40_000}, {10, 50, 21_000}, {10, 50, 30_000}, {1, 20, 21_000}, {1, 60, 22_000}, {2, 120, 22_000},
	}
	for _, bad := range []int{3, 12, 30} {
		for _, good := range []int{2, 15, 31, 60} {
			all = append(all, rhythm{bad, good, 40_000})
		}
	}
	most, random, leaves := int64(0), int64(0), int64(0)
	for _, c := range all {
		for _, kind := range []string{
			"", "nearly too high between", "at random", "of any height", "each of any height", "from Prometheus",
		} {
			w := newNode(model.SuppressOnHarm)
			r, until, bad := rand.New(rand.NewPCG(uint64(c.bad), uint64(c.good))), time.Duration(0), false
			heights, height := rand.New(rand.NewPCG(uint64(c.good), uint64(c.bad))), int64(0)
			figure := w.serves(func() int64 {
				if now := w.n.Load.Clock; now >= until {
					bad = !bad
					length := c.good
					if bad {
						length = c.bad
					}
					if kind == "at random" {
						length = 1 + r.IntN(2*length)
					}
					until = now + time.Duration(length)*time.Second
					height = 20_001 + c.high/int64(1+heights.IntN(20))
				}
				switch {
				case bad && kind == "each of any height":
					return height
				case bad && kind == "of any height":
					return 20_001 + c.high/int64(1+heights.IntN(20))
				case bad:
					return c.high
				case kind == "nearly too high between":
					return 19_000
				}
				return 10_000
			})
			limit := w.leaves() / 5
			switch kind {
			case "at random", "of any height", "each of any height":
				limit = w.leaves() * 2 / 5
			case "from Prometheus":
				w.p.Services[0].Source.Port = 0
			}
			w.run(1800, figure)
			mean, less := w.hour(figure)
			if most = max(most, less); kind == "at random" {
				random, leaves = random+less, leaves+w.leaves()
			}
			if less > limit {
				t.Errorf("%+v %s: batch may use %d on average, %d less than arithmetic leaves", c, kind, mean, less)
			}
		}
	}
	t.Logf("batch has %d milli-cores less than arithmetic leaves at most, at random %d of %d", most, random, leaves)
	if random > leaves/8 {
		t.Errorf("at random, batch has %d of %d milli-cores less than arithmetic leaves", random, leaves)
	}
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

// TestFigureAnswersBesideBursts checks a figure that answers to batch, ten seconds late, and that is too high for two
// seconds now and then whatever batch does: a burst at the floor proves no fault alone.
func TestFigureAnswersBesideBursts(t *testing.T) {
	for _, every := range []int{900, 1800} {
		w := newNode(model.SuppressOnHarm)
		var last []int64
		figure := w.serves(func() int64 {
			value := 10_000 + w.used()*10_000/4000
			if int(w.n.Load.Clock/time.Second)%every < 2 {
				value = 40_000
			}
			last = append(last[max(len(last)-9, 0):], value)
			return slices.Max(last)
		})
		slow := 0
		for range 4 * 3600 {
			if w.second(figure); w.used() > 4000 {
				slow++
			}
		}
		if slow/4 > 120 {
			t.Errorf("too high each %d s: the service is slow for %d s of an hour", every, slow/4)
		}
	}
}

// TestFigureAnswersBesideOwnBursts checks a figure whose maximum is too tight: it answers to batch, and is also too
// high in short bursts of its own, so many that they prove a fault. Then it counts when it is too high for longer than
// in such a burst, so the service is slow for a small part of the time, and batch is not stopped.
func TestFigureAnswersBesideOwnBursts(t *testing.T) {
	for _, bears := range []int64{600, 1000, 4000} {
		for _, window := range []int{2, 10} {
			for _, pause := range []int{30, 60} {
				w := newNode(model.SuppressOnHarm)
				r, until, burst := rand.New(rand.NewPCG(uint64(bears), uint64(window))), time.Duration(0), false
				var last []int64
				figure := w.serves(func() int64 {
					if now := w.n.Load.Clock; now >= until {
						length := 1 + r.IntN(2*pause)
						if burst = !burst; burst {
							length = 1 + r.IntN(3)
						}
						until = now + time.Duration(length)*time.Second
					}
					value := 10_000 + w.used()*10_000/bears
					if burst {
						value += 15_000
					}
					last = append(last[max(len(last)-window+1, 0):], value)
					return slices.Max(last)
				})
				slow, mean := 0, int64(0)
				for range 4 * 3600 {
					w.second(figure)
					mean += w.used() / 4
					if w.used() > bears {
						slow++
					}
				}
				what := fmt.Sprintf("batch uses %d of %d beside bursts each %d s that show for %d s, and the service is slow "+
					"for %d s of an hour", mean/3600, bears, pause, window, slow/4)
				t.Log(what)
				if slow/4 > 360 || mean/3600 < bears/3 {
					t.Error(what)
				}
			}
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
		if w.state.Services[0].Own == 0 {
			t.Fatal("nothing is proven")
		}
		w.run(int(faultTTL/time.Second)+60, figure)
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
		if w.run(600, figure); w.may() != want || len(w.result.Harm.Services) != 1 {
			t.Errorf("harmed %v: batch may use %d, want %d: %+v", harmed, w.may(), want, w.result.Harm)
		}
	}
}

// TestSilentLiar checks a figure that is always too high, of a service that answers once in a minute only: it costs
// batch an eighth of what arithmetic leaves at most.
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
		if less > w.leaves()/8 {
			t.Errorf("%d: batch may use %d on average, %d less than arithmetic leaves", high, mean, less)
		}
	}
}

// TestFigureOfShortLived checks pods whose figures are always too high, and which are replaced before their own fault
// is proven, as those of a CronJob are, or bare pods of a tenant. The proof adds up over the pods of an owner, and of a
// namespace, and then the next ones cost batch little.
func TestFigureOfShortLived(t *testing.T) {
	for _, owner := range []string{"CronJob/shop/report", ""} {
		for _, lives := range []int{15, 20, 40} {
			w := newNode(model.SuppressOnHarm)
			w.serves(func() int64 { return 0 })
			delete(model.FindPod(w.n.Pods, "web").Labels, "app")
			s, last := 0, ""
			figure := func() {
				if s++; s%(10*(lives+5)) == 1 {
					last = fmt.Sprintf("x%d", s)
					pod := w.pod(last, load{uses: 500})
					pod.Owner, pod.Labels = cmp.Or(owner, "Job/shop/"+last), map[string]string{"app": "web"}
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
			t.Logf("%q: pods of %d s: batch may use %d on average, %d less than arithmetic leaves", owner, lives, mean, less)
			if less > w.leaves()/8 {
				t.Errorf("%q: pods of %d s: batch has %d less than arithmetic leaves", owner, lives, less)
			}
		}
	}
}

// TestFigureOfReplacedPods checks pods whose figures answer to batch, ten seconds late, and which are replaced after
// some time, by pods of the same owner or of others: batch does not try anew each time what they bear.
func TestFigureOfReplacedPods(t *testing.T) {
	for _, lives := range []int{30, 60, 120} {
		for _, owners := range []bool{false, true} {
			w := newNode(model.SuppressOnHarm)
			w.serves(func() int64 { return 0 })
			delete(model.FindPod(w.n.Pods, "web").Labels, "app")
			last, slow := "", 0
			var values []int64
			for s := range 3600 {
				if s%lives == 0 {
					w.gone(last)
					last, values = fmt.Sprintf("x%d", s), nil
					pod := w.pod(last, load{uses: 500})
					if pod.Owner, pod.Labels = "Deployment/shop/web", map[string]string{"app": "web"}; owners {
						pod.Owner = "Job/shop/" + last
					}
				}
				w.second(quietly)
				values = append(values, 10_000+w.used()*10_000/4000)
				values = values[max(len(values)-10, 0):]
				w.n.Figures = []model.ServiceFigure{{
					UID: last, At: w.n.Load.Clock, Value: slices.Max(values), Max: 20_000,
				}}
				if w.used() > 4000 {
					slow++
				}
			}
			if slow > 120 {
				t.Errorf("pods of %d s, each of another owner %v: they are slow for %d s of an hour", lives, owners, slow)
			}
		}
	}
}

// TestFigureBesideFaulty checks a service that answers to batch, ten seconds late, and whose pods are of a new owner
// each ten minutes, beside pods of their namespace whose figures are always too high: it inherits the fault of these,
// and is slow for a small part of the time all the same.
func TestFigureBesideFaulty(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.serves(func() int64 { return 0 })
	delete(model.FindPod(w.n.Pods, "web").Labels, "app")
	var last []int64
	liar, victim, slow, mean := "", "", 0, int64(0)
	for s := range 3 * 3600 {
		begin := func(old, name string) string {
			w.gone(old)
			pod := w.pod(name, load{uses: 500})
			pod.Owner, pod.Labels = "Job/shop/"+name, map[string]string{"app": "web"}
			return name
		}
		if s%20 == 0 {
			liar = begin(liar, fmt.Sprintf("x%d", s))
		}
		if s%600 == 0 {
			victim, last = begin(victim, fmt.Sprintf("v%d", s)), nil
		}
		w.second(quietly)
		last = append(last[max(len(last)-9, 0):], 10_000+w.used()*10_000/4000)
		w.n.Figures = []model.ServiceFigure{
			{UID: victim, At: w.n.Load.Clock, Value: slices.Max(last), Max: 20_000},
			{UID: liar, At: w.n.Load.Clock, Value: 60_000, Max: 20_000},
		}
		if mean += w.used(); w.used() > 4000 {
			slow++
		}
	}
	t.Logf("batch uses %d of 4000, and the service is slow for %d s of an hour", mean/3/3600, slow/3)
	if slow/3 > 300 || mean/3/3600 < 1000 {
		t.Errorf("batch uses %d of 4000, and the service is slow for %d s of an hour", mean/3/3600, slow/3)
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

// TestFigureKeepsItsPlace checks that many pods of a tenant displace no figure of another's service, whichever was
// there first.
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

// TestPushEnds checks that batch has at least what arithmetic leaves half a minute after the last service whose figure
// pushed it below that: its rule was removed, or it left, whoever else was harmed meanwhile.
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
			if w.run(40, quietly); w.may() < w.leaves() {
				t.Errorf("%s, %s was harmed: batch may use %d, and arithmetic leaves %d", name, other, w.may(), w.leaves())
			}
			if w.run(180, quietly); w.may() != 16_000 {
				t.Errorf("%s, %s was harmed: 3 minutes later batch may use %d", name, other, w.may())
			}
		}
	}
}
