package harm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// withRule adds a rule for all pods: the figure may be 20 thousandths.
func (w *node) withRule(port int64) {
	w.p.Services = []model.ServiceRule{{Max: 20_000, Source: model.ServiceSource{Port: port}}}
}

// says lets a second pass in which the first pod uses one CPU, and after which its figure is this, in millionths.
func (w *node) says(value int64) *model.Harm {
	w.n.Figures = []model.ServiceFigure{{UID: "web", At: w.n.Load.Clock + time.Second, Value: value, Max: 20_000}}
	return w.uses(1000, 20, time.Second)
}

// newService returns a node whose first pod has a figure, and waits as without batch.
func newService(port int64) *node {
	w := newNode()
	w.withRule(port)
	w.learn(1000, 20)
	w.says(10_000)
	return w
}

// TestFigure checks what harm a figure shows, and that batch is pushed back for a figure once.
func TestFigure(t *testing.T) {
	w := newService(8080)
	for _, step := range []struct {
		value                    int64
		milli, held, keeps, says int64
	}{
		{20_000, 0, 0, 0, 0},
		{20_001, 40, 0, 950, 20_001}, // a hundredth of the node at least
		{30_000, 500, 500, 0, 30_000},
		{30_000, 500, 0, 666, 30_000},
		{19_000, 40, 40, 0, 19_000}, // nearly good is as before
		{18_000, 40, 40, 0, 18_000},
		{17_999, 0, 0, 0, 0},
		{19_000, 0, 0, 0, 0}, // as before, too
		{2_000_000, 2000, 0, 500, 2_000_000},
	} {
		h := w.says(step.value)
		if h.Milli != step.milli || h.Held != step.held || h.Keeps != step.keeps || h.Worst.Value != step.says ||
			h.Deep != (step.milli > 0) || !h.Known || h.Signal != model.HarmByDelay {
			t.Errorf("%d: %+v", step.value, h)
		}
	}
	if why := w.says(40_000).Worst.Reason().String(); why != "ServiceHarmed lacks=1000mCPU value=0.04 max=0.02" {
		t.Error(why)
	}
}

// TestFigureAndWaits checks that of the figure and the waits of a pod the greater counts.
func TestFigureAndWaits(t *testing.T) {
	w := newService(8080)
	both := func(value, waits int64) *model.Harm {
		w.n.Figures = []model.ServiceFigure{{UID: "web", At: w.n.Load.Clock + time.Second, Value: value, Max: 20_000}}
		return w.uses(1000, waits, time.Second)
	}
	if h := both(30_000, 320); h.Milli != 500 || h.Worst.Value != 30_000 || h.Held != 0 {
		t.Errorf("%+v", h)
	}
	if h := both(30_000, 320); h.Milli != 500 || h.Held != 300 {
		t.Errorf("batch was pushed back for the figure: %+v", h)
	}
	if h := both(21_000, 320); h.Milli != 200 || h.Worst.Waits != 320 || !h.Deep {
		t.Errorf("it waits more: %+v", h)
	}
}

// TestFigureUnknown checks figures that say nothing, and that the other signals count then.
func TestFigureUnknown(t *testing.T) {
	for port, fresh := range map[int64]time.Duration{8080: freshPort, 0: freshQuery} {
		w := newService(port)
		w.says(30_000)
		w.n.Figures[0].Failed = "timeout"
		for age := time.Second; age <= fresh; age += time.Second {
			if h := w.uses(1000, 20, time.Second); h.Milli == 0 || h.Doubted {
				t.Fatalf("port %d, %s old: %+v", port, age, h)
			}
		}
		h := w.uses(1000, 320, time.Second)
		if h.Milli != 200 || h.Deep || !h.Known || len(h.Unknown) != 1 || !h.Doubted ||
			h.Unknown[0].String() != `ServiceUnknown pod: "default/web": timeout` {
			t.Errorf("port %d: it is too old: %+v", port, h)
		}
		if h := w.says(10_000); len(h.Unknown) != 0 || !h.Doubted {
			t.Errorf("port %d: it is known again: %+v", port, h)
		}
		for range doubted / time.Second {
			h = w.says(10_000)
		}
		if h.Doubted {
			t.Errorf("port %d: a minute later: %+v", port, h)
		}
		w.quiet = true
		w.n.Figures = nil
		for range 60 {
			if h := w.uses(1000, 20, time.Second); h.Doubted {
				t.Fatalf("port %d: without batch: %+v", port, h)
			}
		}
	}
}

// TestFigureKnows checks that a pod whose waiting is not seen is known by its figure.
func TestFigureKnows(t *testing.T) {
	w := newService(8080)
	for range 10 {
		w.n.Load.Clock += time.Second
		w.n.Figures = []model.ServiceFigure{{UID: "web", At: w.n.Load.Clock, Value: 10_000, Max: 20_000}}
		if h := w.decide(); !h.Known || h.Milli != 0 {
			t.Fatalf("%+v", h)
		}
	}
	if h := w.decide(); h.Signal != model.HarmByService {
		t.Errorf("%+v", h)
	}
}

// TestServiceItself checks that a figure that stays too high without batch does not count, until it was good once or
// for ten minutes, and that the waits of the pod count meanwhile.
func TestServiceItself(t *testing.T) {
	for port, own := range map[int64]time.Duration{8080: ownPort, 0: ownQuery} {
		w := newService(port)
		fault := func() {
			w.says(30_000)
			w.useless = true
			for range own / time.Second {
				if h := w.says(30_000); h.Milli == 0 {
					t.Fatalf("port %d: too early", port)
				}
			}
			if h := w.says(30_000); h.Milli != 0 || h.Deep {
				t.Fatalf("port %d: %+v", port, h)
			}
			w.useless = false
		}
		fault()
		w.n.Figures[0].At += time.Second
		if h := w.uses(1000, 320, time.Second); h.Milli != 200 || h.Worst.Waits == 0 {
			t.Errorf("port %d: waits: %+v", port, h)
		}
		w.says(20_000)
		if h := w.says(30_000); h.Milli == 0 {
			t.Errorf("port %d: it was good once: %+v", port, h)
		}
		fault()
		seconds := time.Duration(0)
		for w.says(30_000).Milli == 0 {
			seconds++
		}
		if got := seconds * time.Second; got < ownFor-2*time.Second || got > ownFor {
			t.Errorf("port %d: it counts again after %s", port, got)
		}
	}
}

// TestTargets checks which figures are fetched.
func TestTargets(t *testing.T) {
	w := newService(8080)
	w.n.Pods[0].IP = "10.0.0.1"
	got := Targets(&w.n, &w.p, &w.state, false)
	want := model.ServiceTarget{
		UID: "web", Namespace: "default", Name: "web", IP: "10.0.0.1", Source: w.p.Services[0].Source, Max: 20_000,
	}
	if len(got) != 1 || !got[0].Equal(&want) {
		t.Errorf("%+v", got)
	}
	if got := Targets(&w.n, &w.p, &w.state, true); len(got) != 0 {
		t.Errorf("while batch is quiet: %+v", got)
	}
	w.says(30_000)
	if got := Targets(&w.n, &w.p, &w.state, true); len(got) != 1 {
		t.Errorf("batch is quiet because of the figure: %+v", got)
	}
	for i := range 20 {
		w.pod(fmt.Sprintf("x%02d", i))
	}
	w.n.Pods[3].Ended, w.n.Pods[4].Class = true, model.ClassBE
	h := w.says(10_000)
	if got := Targets(&w.n, &w.p, &w.state, false); len(got) != mostServices {
		t.Errorf("%d figures are fetched", len(got))
	}
	if last := h.Unknown[len(h.Unknown)-1]; last.Fix != "only the figures of 16 pods of a node are fetched" {
		t.Errorf("%+v", h.Unknown)
	}
	w.p.Services[0].Selector = model.Selector{{Key: "app", Op: model.Exists}}
	w.decide()
	if got := Targets(&w.n, &w.p, &w.state, false); len(got) != 0 {
		t.Errorf("no pod is selected: %+v", got)
	}
}

// TestFigureProperties checks on random figures that there is no harm without a rule, that a higher figure never shows
// less harm, and the bounds of what a pod lacks.
func TestFigureProperties(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newNode()
		w.withRule(r.Int64N(2))
		w.n.Load.CPUMilli = 1000 + r.Int64N(256_000)
		for range r.IntN(20) {
			w.useless = r.IntN(2) == 0
			w.says(r.Int64N(60_000))
		}
		use, value := r.Int64N(300_000), r.Int64N(1<<r.IntN(63)+1)
		judge := func(value int64) *model.Harm {
			other := *w
			load := *w.n.Load
			load.Clock += time.Second
			load.Pods = []model.PodUsage{{UID: "web"}}
			load.Pods[0].CPU = model.CPUUsage{At: load.Clock, Milli: use}
			other.n.Load = &load
			other.n.Figures = []model.ServiceFigure{{UID: "web", At: load.Clock, Value: value, Max: 20_000}}
			return other.decide()
		}
		h, more := judge(value), judge(value+r.Int64N(1<<62))
		if more.Milli < h.Milli || more.Milli-more.Held < h.Milli-h.Held {
			t.Fatalf("seed %d: %d shows %+v, more %+v", seed, value, h, more)
		}
		if h.Milli > w.n.Load.CPUMilli/2 || h.Milli != 0 && h.Milli < w.n.Load.CPUMilli/100 || h.Held > h.Milli {
			t.Fatalf("seed %d: of %d: %+v", seed, w.n.Load.CPUMilli, h)
		}
		if pushes := h.Milli > h.Held; pushes != (h.Keeps > 0) || pushes && (h.Keeps < leastKept || h.Keeps > mostKept ||
			more.Keeps > h.Keeps) {
			t.Fatalf("seed %d: %+v, more %+v", seed, h, more)
		}
		w.p.Services = nil
		if h := judge(value); h.Milli != 0 || h.Deep || h.Doubted {
			t.Fatalf("seed %d: without a rule: %+v", seed, h)
		}
	}
}
