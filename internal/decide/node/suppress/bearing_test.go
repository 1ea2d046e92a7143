package suppress

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// bears returns a node with suppression by harm, whose online pods use so much, and batch all that it may.
func bears(cpus int, online int64) *node {
	w := newNode(cpus)
	w.p.Suppress.By = model.SuppressOnHarm
	w.batch(int64(cpus) * 1000)
	web := fixture.Pod("web", model.Burstable)
	web.Class = model.ClassLS
	fixture.Run(&w.n, web)
	w.harmed(online, 0)
	return w
}

// harmed advances the node by one second in which online pods use so much and lack so much.
func (w *node) harmed(online, lacks int64) *model.Suppression {
	capacity := w.left.CPU.Capacity
	w.harm = &model.Harm{Known: true, Signal: model.HarmByDelay, Milli: lacks}
	if lacks > 0 {
		w.harm.Worst = model.PodHarm{UID: "web", Milli: lacks}
	}
	w.uses(max(min(w.may(), capacity-online), 0))
	return w.tick(capacity*8/10 - online)
}

// may returns what batch may use.
func (w *node) may() int64 {
	if w.state.Bearing.Known {
		return w.state.Bearing.Limit
	}
	return w.state.Milli
}

// floor returns what batch may use by arithmetic.
func (w *node) floor() int64 { return w.state.Milli }

// TestFree checks that batch may use the whole machine while nobody is harmed, without quotas and on all CPUs.
func TestFree(t *testing.T) {
	for _, cpus := range []int{2, 64} {
		w := bears(cpus, int64(cpus)*300)
		var s *model.Suppression
		for range 6 {
			s = w.harmed(int64(cpus)*300, 0)
		}
		if s.Milli != int64(cpus)*1000 || s.Quotas || s.CPUs != 0 || s.Reason.Code != model.BatchFree {
			t.Errorf("%d CPUs: %+v", cpus, s)
		}
	}
}

// TestPushedBack checks that batch gives up twice of what online pods lack, at once, and gets it back.
func TestPushedBack(t *testing.T) {
	for _, cpus := range []int{4, 64} {
		w := bears(cpus, int64(cpus)*300)
		capacity := int64(cpus) * 1000
		for range 20 {
			w.harmed(capacity*3/10, 0)
		}
		s := w.harmed(capacity*3/10, capacity/20)
		if want := capacity*7/10 - capacity/10; s.Milli != want || s.Reason.Code != model.OnlineHarmed {
			t.Errorf("%d CPUs: batch may use %d, not %d, %+v", cpus, s.Milli, want, s.Reason)
		}
		if limited := s.Quotas || s.CPUs > 0; !limited {
			t.Errorf("%d CPUs: nothing limits it: %+v", cpus, s)
		}
		seconds := 0
		for ; s.Milli < capacity && seconds < 60; seconds++ {
			s = w.harmed(capacity*3/10, 0)
		}
		if seconds < 5 || seconds > 20 {
			t.Errorf("%d CPUs: it has the machine again after %d s", cpus, seconds)
		}
	}
}

// TestNeverBelowArithmetic checks random harm: the limit is never below that by arithmetic, nor above the machine, and
// more harm never gives batch more.
func TestNeverBelowArithmetic(t *testing.T) {
	for seed := range fixture.Times(uint64(200)) {
		r := rand.New(rand.NewPCG(seed, 3))
		cpus := 1 + r.IntN(64)
		capacity := int64(cpus) * 1000
		w := bears(cpus, 0)
		for range 300 {
			online := r.Int64N(capacity)
			lacks := max(r.Int64N(capacity)-capacity/2, 0)
			before, load := *w, *w.n.Load
			before.n.Load = &load
			s := w.harmed(online, lacks)
			if s.Milli < w.floor() || s.Milli > capacity {
				t.Fatalf("seed %d: batch may use %d; by arithmetic %d of %d", seed, s.Milli, w.floor(), capacity)
			}
			other := before
			if more := other.harmed(online, lacks+r.Int64N(1000)); more.Milli > s.Milli {
				t.Fatalf("seed %d: with more harm batch may use %d instead of %d", seed, more.Milli, s.Milli)
			}
		}
	}
}

// TestUnknownHarm checks that batch has what is left while nothing is known of harm, and the machine soon after.
func TestUnknownHarm(t *testing.T) {
	w := bears(16, 4000)
	for range 20 {
		w.harmed(4000, 0)
	}
	for _, h := range []*model.Harm{nil, {Blind: "web"}} {
		w.harm = h
		s := w.tick(8800)
		if s.Milli > 8800 || s.Milli != w.floor() {
			t.Errorf("%+v: batch may use %d", h, s.Milli)
		}
		if h != nil && (s.Reason.Code != model.HarmUnknown || s.Reason.Text != "default/web") {
			t.Errorf("%+v", s.Reason)
		}
	}
	s := w.harmed(4000, 0)
	for i := 0; s.Milli < 16000; i++ {
		if s = w.harmed(4000, 0); i > 5 {
			t.Fatalf("batch may use %d", s.Milli)
		}
	}
}

// TestFullByArithmetic checks that batch gets the machine although arithmetic leaves it nothing.
func TestFullByArithmetic(t *testing.T) {
	w := bears(4, 4000)
	for range 10 {
		w.harmed(4000, 0)
	}
	if w.may() != 4000 || w.floor() != 0 {
		t.Errorf("batch may use %d, by arithmetic %d", w.may(), w.floor())
	}
}

// plant is a node whose online pods are harmed by batch.
type plant struct {
	*node
	online int64
	r      *rand.Rand
	lacks  func(batch int64) int64 // CPU that online pods lack
	late   []int64                 // what is still to be seen of it
}

// run lets time pass, and returns the mean of what batch may use, the seconds in which online pods were harmed, and how
// often the limit fell.
func (p *plant) run(seconds int) (mean, harmed, falls int64) {
	for range seconds {
		batch := max(min(p.may(), p.left.CPU.Capacity-p.online), 0)
		lacks := p.lacks(batch)
		seen := lacks
		if len(p.late) > 0 {
			seen, p.late = p.late[0], append(p.late[1:], lacks)
		}
		before := p.may()
		s := p.harmed(p.online, seen)
		if s.Milli < before {
			falls++
		}
		if lacks > 0 {
			harmed++
		}
		mean += s.Milli
	}
	return mean / int64(seconds), harmed, falls
}

// TestLearnsWhatPodsBear checks that batch stays just below what harms, tries rarely whether more is borne, and finds
// that out when it is.
func TestLearnsWhatPodsBear(t *testing.T) {
	for name, late := range map[string]int{"at once": 0, "a second late": 1, "two seconds late": 2} {
		p := &plant{node: bears(16, 4000), online: 4000, late: make([]int64, late)}
		p.lacks = func(batch int64) int64 { return max(batch-10500, 0) / 2 }
		p.run(120)
		mean, harmed, falls := p.run(3600)
		t.Logf("%s: batch may use %d on average; harm in %d s of an hour, %d falls", name, mean, harmed, falls)
		if mean < 9500 || harmed > 60 || falls > 40 {
			t.Errorf("%s: batch may use %d on average; harm in %d s of an hour, %d falls", name, mean, harmed, falls)
		}
		p.lacks = func(int64) int64 { return 0 }
		p.run(int(returns * latest / time.Second))
		if p.may() != 16000 {
			t.Errorf("%s: nothing harms any more, and batch may use %d", name, p.may())
		}
	}
}

// TestLies checks signals that have nothing to do with batch: it is no worse off than by arithmetic, but for what
// pressure withholds.
func TestLies(t *testing.T) {
	for name, lacks := range map[string]func(r *rand.Rand) int64{
		"always":  func(*rand.Rand) int64 { return 3000 },
		"noise":   func(r *rand.Rand) int64 { return max(r.Int64N(4000)-3000, 0) },
		"seldom":  func(r *rand.Rand) int64 { return max(r.Int64N(100)-98, 0) * 4000 },
		"strange": func(r *rand.Rand) int64 { return r.Int64N(1 << 40) },
	} {
		p := &plant{node: bears(16, 4000), online: 4000, r: rand.New(rand.NewPCG(1, 2))}
		p.lacks = func(int64) int64 { return lacks(p.r) }
		mean, _, falls := p.run(3600)
		arithmetic := int64(8800)
		t.Logf("%s: batch may use %d on average, by arithmetic %d; %d falls", name, mean, arithmetic, falls)
		if least := arithmetic - 16000*pushed/1000; mean < least || falls > 1000 {
			t.Errorf("%s: batch may use %d on average, by arithmetic %d; %d falls", name, mean, arithmetic, falls)
		}
	}
}

// TestOtherPodsBearMore checks that what was learned of some online pods does not hold batch back beside others.
func TestOtherPodsBearMore(t *testing.T) {
	p := &plant{node: bears(16, 4000), online: 4000}
	p.lacks = func(batch int64) int64 { return max(batch-10500, 0) / 2 }
	p.run(1800)
	p.lacks = func(int64) int64 { return 0 }
	fixture.Delete(&p.n, "web")
	if p.run(12); p.may() != 16000 {
		t.Errorf("batch may use %d", p.may())
	}
}

// TestRepeats checks that two samples within the time that a cut takes are one harm.
func TestRepeats(t *testing.T) {
	w := bears(16, 4000)
	for range 20 {
		w.harmed(4000, 0)
	}
	w.harmed(4000, 400)
	w.n.Load.Clock += 100 * time.Millisecond
	before := w.may()
	s, _ := Decide(&w.n, &w.p, &w.left, w.harm, w.state)
	if s.Milli != before {
		t.Errorf("a tenth of a second after a cut batch may use %d instead of %d", s.Milli, before)
	}
}

// deeply advances the node by one second in which a figure shows harm, for part of which batch was pushed back before.
func (w *node) deeply(known bool, lacks, held int64) *model.Suppression {
	w.harm = &model.Harm{Known: known, Milli: lacks, Held: held, Deep: lacks > 0}
	if lacks > 0 {
		w.harm.Worst = model.PodHarm{UID: "web", Milli: lacks, By: model.HarmByService, Value: 2, Max: 1}
	}
	if !known {
		w.harm.Blind = "web"
	}
	w.uses(max(min(w.may(), 12000), 0))
	return w.tick(8800)
}

// TestDeep checks harm that weights cannot hold off: batch is pushed back below arithmetic, is held while the same
// figure shows harm, and then returns to where it harmed.
func TestDeep(t *testing.T) {
	w := bears(16, 4000)
	for range 20 {
		w.deeply(true, 0, 0)
	}
	s := w.deeply(true, 1500, 0)
	if s.Milli != 9000 || s.Reason.Code != model.ServiceHarmed {
		t.Fatalf("%+v", s)
	}
	for range 9 {
		if s = w.deeply(true, 1500, 1500); s.Milli != 9000 {
			t.Fatalf("batch was pushed back for it: %+v", s)
		}
	}
	if s = w.deeply(true, 1500, 0); s.Milli != 6000 || s.Milli >= w.floor() {
		t.Fatalf("for a new figure: %+v, by arithmetic %d", s, w.floor())
	}
	if w.floor() != 8800 {
		t.Errorf("by arithmetic batch may use %d", w.floor())
	}
	for range 9 {
		s = w.deeply(true, 1500, 1500)
	}
	if b := w.state.Bearing; b.Bears != 12000 || b.Soon != slowly || s.Milli != 6000 {
		t.Errorf("it is one harm: %+v, %+v", b, s)
	}
	if s = w.deeply(true, 0, 0); s.Milli <= 6000 || s.Milli >= 10000 {
		t.Errorf("a second after the harm: %+v", s)
	}
	for range 5 {
		s = w.deeply(true, 0, 0)
	}
	if s.Milli > 9500 {
		t.Errorf("six seconds after the harm: %+v", s)
	}
	for range 25 {
		s = w.deeply(true, 0, 0)
	}
	if s.Milli < 11500 || s.Milli > 12500 {
		t.Errorf("31 seconds after the harm: %+v", s)
	}
}

// TestKeeps checks that batch keeps no more than a part of what it used, whatever little the pod lacks.
func TestKeeps(t *testing.T) {
	w := bears(16, 4000)
	for range 20 {
		w.deeply(true, 0, 0)
	}
	for _, want := range []int64{6000, 3000, 1500} {
		w.harm = &model.Harm{Known: true, Milli: 160, Deep: true, Keeps: 500, Worst: model.PodHarm{
			UID: "web", Milli: 160, By: model.HarmByService, Value: 3, Max: 1,
		}}
		w.uses(max(min(w.may(), 12000), 0))
		if s := w.tick(8800); s.Milli != want {
			t.Fatalf("%+v, want %d", s, want)
		}
	}
}

// TestDeepLeast checks how far a figure pushes batch back, and when that is as far as possible.
func TestDeepLeast(t *testing.T) {
	for _, minBatch := range []int64{0, 100} {
		w := bears(16, 4000)
		w.p.Suppress.MinBatch = minBatch
		for range 20 {
			w.deeply(true, 0, 0)
		}
		exhausted := -1
		for second := range 20 {
			s := w.deeply(true, 8000, 0)
			if want := max(16*minBatch, leastPart); s.Milli != want {
				t.Fatalf("minBatch %d: %+v, want %d", minBatch, s, want)
			}
			if w.state.Exhausted(w.n.Load.Clock, 16000) && exhausted < 0 {
				exhausted = second
			}
		}
		if exhausted != 5 {
			t.Errorf("minBatch %d: it is at its lowest after %d s", minBatch, exhausted)
		}
	}
}

// TestDeepWhereWaitsAreUnknown checks that a figure counts where the waiting of another pod is not known. Batch never
// gets more than by arithmetic there.
func TestDeepWhereWaitsAreUnknown(t *testing.T) {
	w := bears(16, 4000)
	for range 5 {
		w.deeply(false, 0, 0)
	}
	s := w.deeply(false, 1500, 0)
	if s.Milli != 5800 || s.Reason.Code != model.ServiceHarmed {
		t.Fatalf("%+v", s)
	}
	if s = w.deeply(false, 0, 0); s.Milli <= 5800 || s.Milli >= 8800 || s.Reason.Code != model.HarmUnknown {
		t.Errorf("a second after the harm: %+v", s)
	}
	for range 35 {
		s = w.deeply(false, 0, 0)
	}
	if s.Milli != 8800 || s.Reason.Code != model.HarmUnknown || w.state.Bearing.Bears != 8800 {
		t.Errorf("in the end: %+v, %+v", s, w.state.Bearing)
	}
	for range 60 {
		w.deeply(false, 0, 0)
	}
	if w.state.Bearing.Limit != 0 {
		t.Errorf("it is not forgotten: %+v", w.state.Bearing)
	}
}
