package evict

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

const gib = 1 << 30

// world is a node of 100 GiB, of which batch and online pods may use 80 GiB.
type world struct {
	node    model.Node
	policy  model.Policy
	slack   model.Slack
	parts   *model.Suppression
	online  int64 // bytes
	age     time.Duration
	limited bool
	state   State
	last    *model.Evictions
}

func newWorld() *world {
	w := &world{node: fixture.Node(model.Amount{}), policy: fixture.Policy(), online: 40 * gib}
	w.policy.Protect.EvictPerHour = 6
	w.node.Load = &model.Load{Clock: time.Hour}
	return w
}

// pod adds a batch pod with a lifetime, a request of one CPU and a memory usage in bytes.
func (w *world) pod(uid string, used int64, ran time.Duration) *model.Pod {
	p := fixture.BatchPod(uid, model.Amount{CPU: 1000, Memory: used})
	p.Created, p.Grace = w.node.Now.Add(-ran), 30*time.Second
	fixture.Run(&w.node, p)
	fixture.Measure(w.node.Load, uid, fixture.Usage(0, 1000, used))
	return p
}

// gone removes a pod.
func (w *world) gone(uid string) { fixture.Delete(&w.node, uid) }

// second advances the world by one second and returns the UID of the requested pod; "": none.
func (w *world) second() string {
	l := w.node.Load
	l.Clock += time.Second
	w.node.Now = w.node.Now.Add(time.Second)
	a := &w.slack.Memory
	*a = model.Account{Capacity: 100 * gib, Use: model.Use{Measured: true, Age: w.age}, Allow: max(80*gib-w.online, 0)}
	for i := range l.Pods {
		l.Pods[i].Memory.At, l.Pods[i].CPU.At = l.Clock-w.age, l.Clock-w.age
		a.Use.Batch += l.Pods[i].Memory.WorkingSet
	}
	others := Others{Slack: &w.slack, Suppress: w.parts, Limited: w.limited}
	w.last, w.state = Decide(&w.node, &w.policy, others, w.state)
	if w.last == nil || w.last.Request == nil {
		return ""
	}
	return w.last.Request.UID
}

// run advances the world and returns the UIDs of the pods requested meanwhile, in order.
func (w *world) run(d time.Duration) string {
	var requested []string
	last := w.state.Request.UID
	for range d / time.Second {
		if now := w.second(); now != last {
			if last = now; now != "" {
				requested = append(requested, now)
			}
		}
	}
	return strings.Join(requested, " ")
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("requested were %q, want %q", got, want)
	}
}

// TestChoice checks the choice of the pod: most needed memory per lost work, and the annotations of owners.
func TestChoice(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"the shortest run": {func(*world) {}, "b"},
		"most relief": {func(w *world) {
			w.node.Load.Pods[0].Memory.WorkingSet = 40 * gib
			w.node.Pods[0].Created = w.node.Pods[1].Created
		}, "a"},
		"no more than is needed": {func(w *world) {
			w.node.Load.Pods[2].Memory.WorkingSet = 3 * gib
			w.node.Pods[2].Created = w.node.Pods[1].Created
			w.online = 62 * gib
		}, "c"},
		"first":                      {func(w *world) { w.node.Pods[0].Annotations.Evict = model.EvictFirst }, "a"},
		"never":                      {func(w *world) { w.node.Pods[1].Annotations.Evict = model.EvictNever }, "c"},
		"mid after batch":            {func(w *world) { w.node.Pods[1].Tier = model.TierMid }, "c"},
		"its CPU request was larger": {func(w *world) { w.node.Pods[1].Batch.CPU = 64_000 }, "c"},
		"online": {func(w *world) {
			w.node.Pods[1].Class = model.ClassLS
			w.node.Load.Pods[2].Memory.WorkingSet = 30 * gib
		}, "c"},
		"critical":                         {func(w *world) { w.node.Pods[1].Critical = true }, "c"},
		"a static pod, which would return": {func(w *world) { w.node.Pods[1].APIUID = "mirror" }, "c"},
		"ended":                            {func(w *world) { w.node.Pods[1].Ended = true }, "c"},
		"all pods are excluded": {func(w *world) {
			for _, p := range w.node.Pods {
				p.Annotations.Evict = model.EvictNever
			}
		}, ""},
		"the clock was set back": {func(w *world) {
			w.node.Now = w.node.Now.Add(-24 * time.Hour)
			w.node.Pods[1].Created = time.Time{}
		}, "a"},
		"no evictions by policy": {func(w *world) { w.policy.Protect.EvictPerHour = 0 }, ""},
		"mode Disabled":          {func(w *world) { w.policy.Mode = model.ModeDisabled }, ""},
		"old measurements":       {func(w *world) { w.age = 6 * time.Second }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.online = 62 * gib
			w.pod("a", 8*gib, 10*time.Hour)
			w.pod("b", 8*gib, 10*time.Minute)
			w.pod("c", 8*gib, time.Hour)
			c.change(w)
			expect(t, w.run(30*time.Second), c.want)
		})
	}
}

// TestNeverMoreThanNeeded checks that the next request waits until the pod has left and the memory that it freed was
// measured. (Koordinator counts memory as freed as soon as it decides to free it, and kills on. Crane evicts again
// every ten seconds while the first pods still terminate.)
func TestNeverMoreThanNeeded(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 9*gib, time.Minute)
	w.pod("b", 10*gib, time.Hour)
	expect(t, w.run(30*time.Second), "a")
	w.node.Pods[0].Leaving = true
	expect(t, w.run(40*time.Second), "")
	w.gone("a")
	expect(t, w.run(10*time.Minute), "")
	if l := w.last; l == nil || !l.Last.Seen || l.Last.Observed != 9*gib {
		t.Errorf("what it freed was not measured: %+v", l)
	}
	if w.last.Hot.Code != "" {
		t.Errorf("the node is still hot: %v", w.last.Hot)
	}
}

// TestAnotherPodLeaves checks that the memory of a pod that leaves for another reason counts.
func TestAnotherPodLeaves(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 9*gib, time.Minute)
	w.pod("b", 10*gib, time.Hour).Leaving = true
	expect(t, w.run(50*time.Second), "")
	expect(t, w.run(30*time.Second), "a") // it takes longer than it may
}

// TestIgnoresSIGTERM checks that a pod that does not end within its grace period neither blocks other requests nor is
// requested again.
func TestIgnoresSIGTERM(t *testing.T) {
	for grace, most := range map[time.Duration]time.Duration{
		30 * time.Second: time.Minute,
		10 * time.Hour:   maxGrace + maxLateness,
		-1:               maxLateness,
	} {
		w := newWorld()
		w.online = 62 * gib
		w.pod("a", 9*gib, time.Minute).Grace = grace
		w.pod("b", 10*gib, time.Hour)
		expect(t, w.run(30*time.Second), "a")
		w.node.Pods[0].Leaving = true
		expect(t, w.run(most), "")
		expect(t, w.run(time.Minute+settleTime), "b")
	}
}

// TestUnanswered checks requests that are not carried out, because of a budget or because the API or the manager is
// away: one pod after the other is requested, each for a minute, and none twice within ten minutes.
func TestUnanswered(t *testing.T) {
	w := newWorld()
	w.online = 64 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 8*gib, 10*time.Minute)
	expect(t, w.run(11*time.Second), "b")
	expect(t, w.run(time.Minute), "a")
	expect(t, w.run(8*time.Minute), "")
	expect(t, w.run(3*time.Minute), "b a")
	w = newWorld()
	w.policy.Mode = model.ModeObserve // requests are only reported
	w.online = 64 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 8*gib, 10*time.Minute)
	expect(t, w.run(10*time.Minute), "b")
	if w.last.Requested() != nil {
		t.Error("mode Observe requests an eviction")
	}
}

// TestPageCacheIsNoReason checks that reclaimable page cache causes no eviction (Volcano #5333 does evict for it).
func TestPageCacheIsNoReason(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 30*gib, time.Minute)
	w.node.Load.Pods[0].Memory.ActiveFile = 13 * gib
	expect(t, w.run(10*time.Minute), "")
}

// TestTmpfsCounts checks that tmpfs and kernel memory of a pod count as relief. (Koordinator counts anonymous memory
// only, and so kills more pods than needed.)
func TestTmpfsCounts(t *testing.T) {
	w := newWorld()
	w.pod("a-tmpfs", 12*gib, time.Hour)
	w.pod("b-anon", 8*gib, time.Hour)
	w.node.Load.Pods[1].Memory.Anon = 8 * gib
	w.online = 68 * gib
	expect(t, w.run(20*time.Second), "a-tmpfs")
}

// TestOneSampleIsNoReason checks that a shortage of moments causes no eviction (Koordinator decides by the last
// sample alone).
func TestOneSampleIsNoReason(t *testing.T) {
	w := newWorld()
	w.pod("a", 18*gib, time.Minute)
	for range 200 {
		w.online = 70 * gib
		expect(t, w.run(9*time.Second), "")
		w.online = 60 * gib
		expect(t, w.run(time.Second), "")
	}
	if w.state.Hot != 0 {
		t.Error("the node is hot")
	}
}

// TestNothingSoldIsNoReason checks that a withdrawn offer causes no eviction while memory is available, however much
// is bound (Koordinator #2118).
func TestNothingSoldIsNoReason(t *testing.T) {
	w := newWorld()
	w.pod("a", 10*gib, time.Minute).Batch.Memory = 500 * gib
	w.node.Withdrawn, w.policy.CPU.Method, w.policy.Memory.Method = true, "", ""
	expect(t, w.run(10*time.Minute), "")
}

// TestBudget checks that the policy limits evictions per hour.
func TestBudget(t *testing.T) {
	w := newWorld()
	w.policy.Protect.EvictPerHour = 2
	w.online = 79 * gib
	for i := range 5 {
		w.pod(fmt.Sprint(i), 2*gib, time.Minute)
	}
	left := 0
	for range 3000 {
		if uid := w.second(); uid != "" {
			w.gone(uid)
			left++
		}
	}
	if left != 2 {
		t.Errorf("%d left, not 2", left)
	}
}

// TestStarves checks that a pod with hardly any of its requested CPU is requested after five minutes if it wants
// more.
func TestStarves(t *testing.T) {
	const wants = 100
	for name, c := range map[string]struct {
		used, part, waits int64
		want              string
	}{
		"it uses all it may":           {wants, 100, 0, "a"},
		"it wants nothing":             {20, 100, 0, ""},
		"it has enough":                {250, 300, 0, ""},
		"it waits, limited by weight":  {wants, 0, 600, "a"},
		"there is neither measurement": {wants, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.pod("a", gib, time.Hour)
			w.node.Load.Pods[0].CPU.Milli = c.used
			if c.part > 0 {
				w.parts = &model.Suppression{Parts: []model.BatchPart{{UID: "a", Milli: c.part}}}
			}
			w.node.Load.Pods[0].Pressure.CPU.Some = c.waits
			var requested string
			for i := range 400 {
				w.node.Load.Pods[0].Pressure.At = w.node.Load.Clock * time.Duration(min(c.waits, 1))
				if now := w.second(); now != "" && requested == "" {
					if requested = now; i < 298 {
						t.Errorf("requested after %d s", i)
					}
				}
			}
			expect(t, requested, c.want)
		})
	}
}

// TestAnotherBoot checks that a clock that starts again resets the state.
func TestAnotherBoot(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 20*gib, time.Hour)
	expect(t, w.run(20*time.Second), "a")
	w.node.Load.Clock = time.Second
	if w.run(5 * time.Second); w.last != nil {
		t.Errorf("after the boot: %+v", w.last)
	}
}

// TestGap checks that a time without rounds does not count as a shortage.
func TestGap(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 20*gib, time.Hour)
	expect(t, w.run(5*time.Second), "")
	w.node.Load.Clock += time.Minute
	expect(t, w.run(10*time.Second), "")
	expect(t, w.run(time.Second), "a")
}

// TestWaitsForOne checks that no other pod is requested until the first has left, even if that will not be enough.
func TestWaitsForOne(t *testing.T) {
	w := newWorld()
	w.online = 68 * gib
	w.pod("a", gib, time.Second).Grace = 2 * time.Minute
	w.pod("b", 12*gib, 100*time.Hour)
	expect(t, w.run(30*time.Second), "a")
	w.node.Pods[0].Leaving = true
	expect(t, w.run(2*time.Minute), "")
	w.gone("a")
	expect(t, w.run(settleTime), "")
	expect(t, w.run(time.Second), "b")
}

// TestStarvesNoMore checks that after a starving pod has left, the next one must starve for another minute.
func TestStarvesNoMore(t *testing.T) {
	w := newWorld()
	w.parts = &model.Suppression{Parts: []model.BatchPart{{UID: "a", Milli: 100}, {UID: "b", Milli: 100}}}
	w.pod("a", gib, time.Minute)
	w.pod("b", gib, time.Hour)
	w.node.Load.Pods[0].CPU.Milli, w.node.Load.Pods[1].CPU.Milli = 100, 100
	expect(t, w.run(302*time.Second), "a")
	w.run(30 * time.Second)
	w.gone("a")
	expect(t, w.run(time.Minute), "")
	expect(t, w.run(2*time.Second), "b")
}

// TestBounded checks the number of requests, evictions and changes of hot per hour with random measurements and
// outcomes.
func TestBounded(t *testing.T) {
	const hours = 4
	all := map[string]int{}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 8))
		w := newWorld()
		for i := range 12 {
			w.pod(string(rune('a'+i)), (1+random.Int64N(3))*gib, time.Duration(random.IntN(90))*time.Minute)
		}
		w.parts = &model.Suppression{}
		for i := range w.node.Pods {
			w.parts.Parts = append(w.parts.Parts, model.BatchPart{UID: w.node.Pods[i].UID, Milli: 100})
		}
		answers := random.IntN(3) // never, at once, now and then
		swing, period := (1+random.Int64N(30))*gib, 1+random.IntN(600)
		var begun, left, turned []time.Duration
		request, hot, next := "", false, 0
		for second := range hours * 3600 {
			w.online = 50*gib + random.Int64N(swing)
			if second/period%2 == 0 {
				w.online += 20 * gib
			}
			for i := range w.node.Load.Pods {
				w.node.Load.Pods[i].CPU.Milli = int64(100 + 900*random.IntN(1+second/period%2))
			}
			now := w.second()
			clock := w.node.Load.Clock
			if now != "" && now != request {
				begun = append(begun, clock)
			}
			if request = now; (w.state.Hot != 0) != hot {
				hot = !hot
				turned = append(turned, clock)
			}
			if now != "" && (answers == 1 || answers == 2 && random.IntN(30) == 0) {
				left = append(left, clock)
				w.gone(now)
				next++
				w.pod(fmt.Sprintf("z%05d", next), (1+random.Int64N(3))*gib, 0)
			}
		}
		for what, c := range map[string]struct {
			at   []time.Duration
			most int
		}{"requests": {begun, 60}, "evictions": {left, 6}, "changes of hot": {turned, 2 * 20}} {
			all[what] += len(c.at)
			for i := range c.at {
				n := 0
				for _, at := range c.at[i:] {
					if at-c.at[i] < time.Hour {
						n++
					}
				}
				if n > c.most {
					t.Fatalf("seed %d: %d %s in an hour", seed, n, what)
				}
			}
		}
	}
	t.Logf("in 40 worlds of 4 hours: %v", all)
	if len(all) != 3 || all["evictions"] < 40*hours || all["changes of hot"] < 40 {
		t.Errorf("hardly anything happened: %v", all)
	}
}

// TestWorkerHasTime checks that a worker of a pool, whose containers end first, has three minutes before another pod is
// requested, and another pod one minute.
func TestWorkerHasTime(t *testing.T) {
	for _, c := range []struct {
		pool    string
		seconds int
	}{{"", 60}, {"night", 180}} {
		w := newWorld()
		w.pod("first", 30*gib, time.Minute).Pool = c.pool
		w.pod("second", 9*gib, time.Hour)
		w.online = 42 * gib
		asked := ""
		for range 60 {
			if asked = w.second(); asked != "" {
				break
			}
		}
		if asked != "first" {
			t.Fatalf("%q is requested", asked)
		}
		stood := 0
		for w.second() == "first" {
			if stood++; stood > 1000 {
				break
			}
		}
		if stood < c.seconds-2 || stood > c.seconds+2 {
			t.Errorf("pool %q: the request stood for %d s, want %d", c.pool, stood, c.seconds)
		}
	}
}
