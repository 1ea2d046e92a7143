package contention

import (
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// faulty returns a node whose service has proven a fault by three bursts of a second, beside batch at its lowest, and
// what sets its figure from then on.
func faulty(t *testing.T) (w *node, figure func(), set func(func() int64)) {
	t.Helper()
	w = newNode(model.SuppressOnHarm)
	value := func() int64 { return 10_000 + 40_000*min(w.used()/100, 1) }
	figure = w.serves(func() int64 { return value() })
	for s := 0; s < 300 && (len(w.state.Services) == 0 || w.state.Services[0].Own == 0); s++ {
		if s > 30 {
			value = func() int64 { return 10_000 + 40_000*int64(s%10/9) }
		}
		w.second(figure)
	}
	if s := w.state.Services[0]; s.Own == 0 || s.Burst > 10*time.Second {
		t.Fatalf("it proves no fault of short bursts: %+v", s)
	}
	return w, figure, func(to func() int64) { value = to }
}

// TestFaultWithGaps checks that a service with a fault is protected where its figure is good for single seconds while
// batch harms it, as a histogram's is that has no requests then.
func TestFaultWithGaps(t *testing.T) {
	w, figure, set := faulty(t)
	set(func() int64 {
		if w.n.Load.Clock/time.Second%9 == 0 {
			return 0
		}
		return 10_000 + w.used()*10_000/4000
	})
	slow := 0
	for range 600 {
		if w.second(figure); w.used() > 4000 {
			slow++
		}
	}
	if slow > 150 {
		t.Errorf("it is slow for %d of 600 s: %+v", slow, w.state.Services[0])
	}
}

// TestFaultFallsSilent checks that a service with a fault, which batch harms for longer than that and which does not
// answer any more, counts as any other: batch gets no more for a minute, and then what arithmetic leaves at most.
func TestFaultFallsSilent(t *testing.T) {
	w, figure, set := faulty(t)
	set(func() int64 { return 60_000 })
	for s := 0; s < 60 && !w.state.Services[0].Beyond; s++ {
		w.second(figure)
	}
	w.run(3, figure)
	before := w.may()
	w.n.Figures = nil
	if w.run(50, quietly); w.may() > before {
		t.Errorf("batch may use %d, and %d before it was silent", w.may(), before)
	}
	if w.run(600, quietly); w.may() > w.leaves() {
		t.Errorf("batch may use %d, and arithmetic leaves %d", w.may(), w.leaves())
	}
}

// TestFaultOfOtherMax checks that a fault does not count for another maximum, which the service may keep.
func TestFaultOfOtherMax(t *testing.T) {
	w, figure, set := faulty(t)
	set(func() int64 { return 10_000 })
	w.run(5, figure)
	w.p.Services[0].Max = 30_000
	if w.run(2, figure); w.state.Services[0].Own != 0 || w.state.Services[0].Burst != 0 {
		t.Errorf("after the maximum was raised: %+v", w.state.Services[0])
	}
}

// TestFaultOfTwoPods checks that a pod of the same owner with less of a proof does not displace a fault.
func TestFaultOfTwoPods(t *testing.T) {
	w, figure, _ := faulty(t)
	web := model.FindPod(w.n.Pods, "web")
	web.Owner = "Deployment/shop/web"
	w.state.Services[0].Owner = web.Owner
	web.Labels = nil
	w.run(2, figure)
	other := Service{UID: "other", Owner: web.Owner, Since: w.n.Load.Clock, Vain: vainPush}
	w.state.Gone = append([]Service{other}, w.state.Gone...)
	w.run(2, figure)
	web.Labels = map[string]string{"app": "web"}
	if w.run(2, figure); w.state.Services[0].Own == 0 {
		t.Errorf("the fault is forgotten: %+v", w.state.Services[0])
	}
}

// TestFaultInObserve checks that pods which come and go prove no fault while batch is not pushed back.
func TestFaultInObserve(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.p.Mode = model.ModeObserve
	figure := w.serves(func() int64 { return 60_000 })
	for i := range 10 {
		pod := model.FindPod(w.n.Pods, "web")
		pod.Labels = map[string]string{"app": "web"}
		if w.run(15, figure); i == 9 {
			break
		}
		pod.Labels = nil
		w.run(3, quietly)
	}
	if s := w.state.Services[0]; s.Own != 0 {
		t.Errorf("a fault is proven: %+v", s)
	}
}

// TestFaultOfNeighbour checks that a service is protected soon that begins where one of another owner was always too
// high, for longer each time that it proved so.
func TestFaultOfNeighbour(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	figure := w.serves(func() int64 { return 60_000 })
	if w.run(1200, figure); w.state.Services[0].Burst < 5*time.Minute {
		t.Fatalf("its burst is short: %+v", w.state.Services[0])
	}
	delete(model.FindPod(w.n.Pods, "web").Labels, "app")
	pod := w.pod("shop", load{uses: 500})
	pod.Owner, pod.Labels = "Deployment/shop/shop", map[string]string{"app": "web"}
	slow := 0
	for range 600 {
		w.second(quietly)
		w.n.Figures = []model.ServiceFigure{{
			UID: "shop", At: w.n.Load.Clock, Value: 10_000 + w.used()*10_000/4000, Max: 20_000,
		}}
		if w.used() > 4000 {
			slow++
		}
	}
	if slow > 100 {
		t.Errorf("it is slow for %d of 600 s: %+v", slow, w.state.Services)
	}
}

// TestFaultOfLittle checks that a fault covers no value far above those that the service has at the floor: one that is
// a tenth too high for 40 s of each minute, whatever batch does, has far more only while batch grows. That is so where
// single figures are 0, as those of a histogram are that has no requests then, or many times as high.
func TestFaultOfLittle(t *testing.T) {
	for _, other := range []int64{-1, 0, 400_000} {
		w := newNode(model.SuppressOnHarm)
		figure := w.serves(func() int64 {
			second := w.n.Load.Clock / time.Second
			switch {
			case other == 0 && second%4 == 0, other > 0 && second%97 == 0:
				return other
			}
			value := int64(15_000)
			if second%60 < 40 {
				value = 22_000
			}
			return value + max(w.used()-2000, 0)*10
		})
		w.run(600, figure)
		slow, mean := 0, int64(0)
		for range 3600 {
			w.second(figure)
			mean += w.used()
			if w.used() > 3500 {
				slow++
			}
		}
		mean /= 3600
		t.Logf("%d now and then: batch uses %d, and the service is slow for %d s of an hour", other, mean, slow)
		if slow > 240 || mean < 1000 {
			t.Errorf("%d now and then: batch uses %d, and the service is slow for %d s of an hour", other, mean, slow)
		}
	}
}
