package contention

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// service adds one of the node's own services.
func (w *node) service(uid string, l load) *load {
	l.wait.UID = uid
	w.pods[uid] = &l
	return &l
}

// starved returns what is said of the services that wait.
func (w *node) starved() string {
	var all []string
	for _, why := range w.result.Harm.Starved {
		all = append(all, fmt.Sprintf("%s %s: %s", why.Code, why.Text, why.Fix))
	}
	return strings.Join(all, "\n")
}

// TestServiceWaits checks that batch makes room within ten seconds when one of the node's own services waits because of
// batch, that this is said, and that batch gets the machine back.
func TestServiceWaits(t *testing.T) {
	for _, uid := range model.SystemGroups() {
		w := newNode(model.SuppressOnHarm)
		s := w.service(uid, load{uses: 50})
		if w.run(60, quietly); w.may() != 16_000 || w.starved() != "" {
			t.Errorf("%s does not wait: batch may use %d, %s", uid, w.may(), w.starved())
		}
		seconds, said := 0, false
		harm := func() {
			s.waits = max(w.used()-10_500, 0)
			said = said || w.result.Limit.Reason.Code == model.SystemHarmed
		}
		for ; w.used() > 10_500 && seconds < 60; seconds++ {
			w.second(harm)
		}
		want := "SystemHarmed " + model.SystemName(uid) + ": because of batch, which makes room"
		if seconds > 10 || !said || w.starved() != want {
			t.Errorf("%s: batch uses %d after %d s, %v, %s", uid, w.used(), seconds, said, w.starved())
		}
		if w.run(600, func() { s.waits = 0 }); w.may() != 16_000 || w.starved() != "" {
			t.Errorf("%s waits no more: batch may use %d, %s", uid, w.may(), w.starved())
		}
	}
}

// TestServiceOnce checks that batch is pushed back once for one sample of a service, whatever rounds others cause
// before the next one, and that it gets nothing back meanwhile.
func TestServiceOnce(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	s := w.service(model.SystemKubelet, load{uses: 50})
	w.run(60, quietly)
	before := w.may()
	s.waits = 600
	for w.may() == before {
		w.second(quietly)
	}
	pushed := w.may()
	for range 3 {
		w.n.Load.Clock += 100 * time.Millisecond
		if w.decide(); w.may() != pushed || w.result.Harm.Milli == 0 {
			t.Errorf("without a new sample, batch may use %d, not %d: %+v", w.may(), pushed, w.result.Harm)
		}
	}
}

// TestServiceWaitsForPods checks that the online pod is named for which a service waits, whether batch runs or not, and
// that batch is not blamed for it, nor limited for long.
func TestServiceWaitsForPods(t *testing.T) {
	for _, batch := range []bool{true, false} {
		w := newNode(model.SuppressOnHarm)
		w.left.CPU.Use.Online = 12_000
		w.pods["web"].uses = 12_000
		s := w.service(model.SystemKubelet, load{uses: 50})
		if !batch {
			w.gone("job")
			w.wants = 0
		}
		w.run(60, quietly)
		s.waits = 900
		w.run(60, quietly)
		named, blamed, mean := 0, 0, int64(0)
		for range 1200 {
			w.second(quietly)
			switch said := w.starved(); {
			case strings.Contains(said, "SystemStarved kubelet: because of online pods, of which default/web"):
				named++
			case strings.Contains(said, "batch"):
				blamed++
			}
			mean += w.used()
		}
		t.Logf("batch %v: named in %d s, batch blamed in %d, batch uses %d of 3950", batch, named, blamed, mean/1200)
		if named < 1100 || !batch && blamed > 0 || batch && mean/1200 < 3500 {
			t.Errorf("batch %v: named in %d of 1200 s, batch blamed in %d, batch uses %d of 3950: %s", batch, named, blamed,
				mean/1200, w.starved())
		}
	}
}

// TestServiceWaitsForOthers checks that no pod is named where processes outside of pods use the CPU.
func TestServiceWaitsForOthers(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.gone("job")
	w.left.CPU.Use.System, w.left.CPU.Use.Online = 9000, 4000
	w.service(model.SystemServices, load{uses: 50, waits: 900})
	if w.run(60, quietly); !strings.Contains(w.starved(), "SystemStarved system services: because of processes outside") {
		t.Error(w.starved())
	}
	w.left.CPU.Use.Stolen = 6000 // another machine has it
	if w.run(60, quietly); !strings.Contains(w.starved(), "default/web") {
		t.Error(w.starved())
	}
}

// TestServiceObserved checks that an agent that only observes does not claim that batch made room.
func TestServiceObserved(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.p.Mode = model.ModeObserve
	w.service(model.SystemKubelet, load{uses: 50, waits: 900})
	if w.run(15, quietly); w.starved() != "SystemHarmed kubelet: because of batch, which makes room in mode Enforce" {
		t.Error(w.starved())
	}
}

// TestServiceTurns checks that short waits, each time that a thread gets a CPU, harm nobody, however many there are.
func TestServiceTurns(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	s := w.service(model.SystemKernel, load{uses: 200, waits: 4000, times: 5000})
	if w.run(60, quietly); w.may() != 16_000 || w.starved() != "" {
		t.Errorf("batch may use %d, %s", w.may(), w.starved())
	}
	s.times = 500 // 8 ms each time
	if w.run(5, quietly); w.may() == 16_000 || w.starved() == "" {
		t.Errorf("batch may use %d, %s", w.may(), w.starved())
	}
}

// TestServicesUnseen checks that services that are not seen change nothing for pods: neither what is known of these,
// nor how often their pressure is read.
func TestServicesUnseen(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(20, quietly)
	if h := w.result.Harm; !h.Known || h.Signal != model.HarmByDelay || w.result.Seconds {
		t.Errorf("pressure each second: %v, %+v", w.result.Seconds, h)
	}
	w = newNode(model.SuppressOnHarm)
	w.n.Tree.NoPressure = true
	w.pods["web"].seen.UID = "" // never sampled
	web := w.pods["web"]
	delete(w.pods, "web")
	w.service(model.SystemKubelet, load{uses: 50})
	w.n.Load.Pods = nil
	w.run(2, func() { fixture.Measure(w.n.Load, "web", fixture.Usage(w.n.Load.Clock, web.uses, 0)) })
	for range 20 {
		w.second(quietly)
		fixture.Measure(w.n.Load, "web", fixture.Usage(w.n.Load.Clock, web.uses, 0))
		w.decide()
	}
	if !w.result.NoSignal {
		t.Errorf("the kubelet is seen, and no pod: %+v", w.result.Harm)
	}
}

// TestNoPodIsAService checks that no pod can have the UID of a service.
func TestNoPodIsAService(t *testing.T) {
	before := ""
	for _, uid := range model.SystemGroups() {
		if cgroup.ValidUID(uid) || !model.IsSystem(uid) || uid <= before || uid >= "0" {
			t.Errorf("%s is valid, or in no order", uid)
		}
		before = uid
	}
}
