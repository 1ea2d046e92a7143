package evict

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

const gib = 1 << 30

// world is a node of 100 GiB, of which batch and online pods may use 80.
type world struct {
	node   model.Node
	policy model.Policy
	slack  model.Slack
	parts  *model.Suppression
	online int64 // bytes
	age    time.Duration
	held   bool
	state  State
	last   *model.Evictions
}

func newWorld() *world {
	w := &world{policy: fixture.Policy(), online: 40 * gib}
	w.policy.Protect.EvictPerHour = 6
	w.node = model.Node{Now: time.Unix(1_790_000_000, 0), PodsKnown: true, Tree: model.Tree{Pods: map[string]model.PodGroup{}}, Load: &model.Load{Clock: time.Hour}}
	return w
}

// pod adds a batch pod that has run for some time, sold one CPU, and uses so many bytes.
func (w *world) pod(uid string, used int64, ran time.Duration) *model.Pod {
	p := &model.Pod{
		UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: model.BestEffort, Class: model.ClassBE, Tier: model.TierBatch,
		Created: w.node.Now.Add(-ran), Batch: model.Amount{CPU: 1000, Memory: used}, Grace: 30 * time.Second,
	}
	w.node.Pods = append(w.node.Pods, p)
	w.node.Load.Pods = append(w.node.Load.Pods, model.PodUsage{UID: uid, Usage: model.Usage{Memory: model.MemoryUsage{WorkingSet: used}, CPU: model.CPUUsage{Milli: 1000}}})
	w.node.Tree.Pods[uid] = model.PodGroup{Dir: uid}
	return p
}

// gone takes a pod away.
func (w *world) gone(uid string) {
	for i, p := range w.node.Pods {
		if p.UID == uid {
			w.node.Pods = append(append([]*model.Pod{}, w.node.Pods[:i]...), w.node.Pods[i+1:]...)
			w.node.Load.Pods = append(append([]model.PodUsage{}, w.node.Load.Pods[:i]...), w.node.Load.Pods[i+1:]...)
			delete(w.node.Tree.Pods, uid)
			return
		}
	}
}

// second lets one second pass, and returns who should leave; "": nobody.
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
	w.last, w.state = Decide(&w.node, &w.policy, Others{Slack: &w.slack, Suppress: w.parts, Held: w.held}, w.state)
	if w.last == nil || w.last.Request == nil {
		return ""
	}
	return w.last.Request.UID
}

// run lets some time pass, and returns who was asked for, one after the other.
func (w *world) run(d time.Duration) string {
	var asked []string
	last := w.state.Ask.UID
	for range d / time.Second {
		if now := w.second(); now != last {
			if last = now; now != "" {
				asked = append(asked, now)
			}
		}
	}
	return strings.Join(asked, " ")
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("asked for were %q, not %q", got, want)
	}
}

// TestChoice: who frees most of what is needed for the least work that is lost, and what owners say.
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
		"first":                           {func(w *world) { w.node.Pods[0].Annotations.Evict = model.EvictFirst }, "a"},
		"never":                           {func(w *world) { w.node.Pods[1].Annotations.Evict = model.EvictNever }, "c"},
		"mid after batch":                 {func(w *world) { w.node.Pods[1].Tier = model.TierMid }, "c"},
		"it cost more CPU":                {func(w *world) { w.node.Pods[1].Batch.CPU = 64_000 }, "c"},
		"online":                          {func(w *world) { w.node.Pods[1].Class = model.ClassLS; w.node.Load.Pods[2].Memory.WorkingSet = 30 * gib }, "c"},
		"critical":                        {func(w *world) { w.node.Pods[1].Critical = true }, "c"},
		"a static pod, which comes again": {func(w *world) { w.node.Pods[1].APIUID = "mirror" }, "c"},
		"ended":                           {func(w *world) { w.node.Pods[1].Ended = true }, "c"},
		"nobody may": {func(w *world) {
			for _, p := range w.node.Pods {
				p.Annotations.Evict = model.EvictNever
			}
		}, ""},
		"the clock was set back":      {func(w *world) { w.node.Now = w.node.Now.Add(-24 * time.Hour); w.node.Pods[1].Created = time.Time{} }, "a"},
		"not by this policy":          {func(w *world) { w.policy.Protect.EvictPerHour = 0 }, ""},
		"switched off":                {func(w *world) { w.policy.Mode = model.ModeDisabled }, ""},
		"at once in a moment's doubt": {func(w *world) { w.age = 6 * time.Second }, ""},
	} {
		w := newWorld()
		w.online = 62 * gib
		w.pod("a", 8*gib, 10*time.Hour)
		w.pod("b", 8*gib, 10*time.Minute)
		w.pod("c", 8*gib, time.Hour)
		c.change(w)
		if got := w.run(30 * time.Second); got != c.want {
			t.Errorf("%s: asked for was %q, not %q", name, got, c.want)
		}
	}
}

// TestNeverMoreThanNeeded: what leaves is waited for, and what it freed measured, before anybody else is asked for (Koordinator books
// what it wanted to free as freed at once, and kills on; Crane evicts again every ten seconds while the first ones still end).
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

// TestSomebodyElseLeaves: a pod that ends of its own accord frees what is needed.
func TestSomebodyElseLeaves(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 9*gib, time.Minute)
	w.pod("b", 10*gib, time.Hour).Leaving = true
	expect(t, w.run(50*time.Second), "")
	expect(t, w.run(30*time.Second), "a") // it takes longer than it may
}

// TestIgnoresSIGTERM: a pod that does not end within its grace does not keep others from being asked for, and is not asked for again.
func TestIgnoresSIGTERM(t *testing.T) {
	for grace, most := range map[time.Duration]time.Duration{30 * time.Second: time.Minute, 10 * time.Hour: mostGrace + late, -1: late} {
		w := newWorld()
		w.online = 62 * gib
		w.pod("a", 9*gib, time.Minute).Grace = grace
		w.pod("b", 10*gib, time.Hour)
		expect(t, w.run(30*time.Second), "a")
		w.node.Pods[0].Leaving = true
		expect(t, w.run(most), "")
		expect(t, w.run(time.Minute+settling), "b")
	}
}

// TestNobodyAnswers: while nobody carries out what is asked for, because of a budget, or the API or the manager is away, one pod after
// the other is asked for, each for a minute, and none twice within ten.
func TestNobodyAnswers(t *testing.T) {
	w := newWorld()
	w.online = 64 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 8*gib, 10*time.Minute)
	expect(t, w.run(11*time.Second), "b")
	expect(t, w.run(time.Minute), "a")
	expect(t, w.run(8*time.Minute), "")
	expect(t, w.run(3*time.Minute), "b a")
	w = newWorld()
	w.policy.Mode = model.ModeObserve // nobody could answer
	w.online = 64 * gib
	w.pod("a", 8*gib, 10*time.Hour)
	w.pod("b", 8*gib, 10*time.Minute)
	expect(t, w.run(10*time.Minute), "b")
	if w.last.Requested() != nil {
		t.Error("in mode Observe somebody is asked for")
	}
}

// TestPageCacheIsNoReason: what the kernel takes back by itself is no reason to evict (Volcano #5333).
func TestPageCacheIsNoReason(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 30*gib, time.Minute)
	w.node.Load.Pods[0].Memory.ActiveFile = 13 * gib
	expect(t, w.run(10*time.Minute), "")
}

// TestTmpfsCounts: a pod frees what tmpfs and the kernel hold for it too (Koordinator counts anonymous memory alone, and so kills more
// than is needed).
func TestTmpfsCounts(t *testing.T) {
	w := newWorld()
	w.pod("a-tmpfs", 12*gib, time.Hour)
	w.pod("b-anon", 8*gib, time.Hour)
	w.node.Load.Pods[1].Memory.Anon = 8 * gib
	w.online = 68 * gib
	expect(t, w.run(20*time.Second), "a-tmpfs")
}

// TestOneSampleIsNoReason: what is short for moments is not (Koordinator goes by the last sample alone).
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

// TestNothingSoldIsNoReason: that nothing is sold any more, however much is bound, evicts nobody whose memory is there (Koordinator
// #2118).
func TestNothingSoldIsNoReason(t *testing.T) {
	w := newWorld()
	w.pod("a", 10*gib, time.Minute).Batch.Memory = 500 * gib
	w.node.Withdrawn, w.policy.CPU.Method, w.policy.Memory.Method = true, "", ""
	expect(t, w.run(10*time.Minute), "")
}

// TestBudget: no more leave in an hour than the policy says.
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

// TestStarves: a pod that has hardly any of the CPU that it was sold, and wants it, is better off elsewhere after five minutes.
func TestStarves(t *testing.T) {
	const wants = 100
	for name, c := range map[string]struct {
		used, part, waits int64
		want              string
	}{
		"it has what it may":       {wants, 100, 0, "a"},
		"it wants nothing":         {20, 100, 0, ""},
		"it has enough":            {250, 300, 0, ""},
		"it waits, by weight only": {wants, 0, 600, "a"},
		"nobody knows":             {wants, 0, 0, ""},
	} {
		w := newWorld()
		w.pod("a", gib, time.Hour)
		w.node.Load.Pods[0].CPU.Milli = c.used
		if c.part > 0 {
			w.parts = &model.Suppression{Parts: []model.BatchPart{{UID: "a", Milli: c.part}}}
		}
		w.node.Load.Pods[0].Pressure.CPU.Some = c.waits
		var asked string
		for i := range 400 {
			w.node.Load.Pods[0].Pressure.At = w.node.Load.Clock * time.Duration(min(c.waits, 1))
			if now := w.second(); now != "" && asked == "" {
				if asked = now; i < 298 {
					t.Errorf("%s: asked for after %d s", name, i)
				}
			}
		}
		if asked != c.want {
			t.Errorf("%s: asked for was %q, not %q", name, asked, c.want)
		}
	}
}

// TestAnotherBoot: a clock that begins anew forgets.
func TestAnotherBoot(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 20*gib, time.Hour)
	expect(t, w.run(20*time.Second), "a")
	w.node.Load.Clock = time.Second
	if w.run(5 * time.Second); w.last != nil {
		t.Errorf("after the start it is said: %+v", w.last)
	}
}

// TestNobodyWatched: of a time in which the agent did not look nobody knows whether memory was short.
func TestNobodyWatched(t *testing.T) {
	w := newWorld()
	w.online = 62 * gib
	w.pod("a", 20*gib, time.Hour)
	expect(t, w.run(5*time.Second), "")
	w.node.Load.Clock += time.Minute
	expect(t, w.run(10*time.Second), "")
	expect(t, w.run(time.Second), "a")
}

// TestWaitsForOne: who was asked for and leaves is waited for, even if it will not be enough.
func TestWaitsForOne(t *testing.T) {
	w := newWorld()
	w.online = 68 * gib
	w.pod("a", gib, time.Second).Grace = 2 * time.Minute
	w.pod("b", 12*gib, 100*time.Hour)
	expect(t, w.run(30*time.Second), "a")
	w.node.Pods[0].Leaving = true
	expect(t, w.run(2*time.Minute), "")
	w.gone("a")
	expect(t, w.run(settling), "")
	expect(t, w.run(time.Second), "b")
}

// TestStarvesNoMore: when one that starved has left, the next one must starve on for a minute.
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

// TestBounded: whatever is measured, and whatever becomes of what is asked for, there are no more than so many actions in any hour.
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
		ask, hot, next := "", false, 0
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
			if now != "" && now != ask {
				begun = append(begun, clock)
			}
			if ask = now; (w.state.Hot != 0) != hot {
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
		}{"pods asked for": {begun, 60}, "pods that left": {left, 6}, "turns of hot": {turned, 2 * 20}} {
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
	if len(all) != 3 || all["pods that left"] < 40*hours || all["turns of hot"] < 40 {
		t.Errorf("hardly anything happened: %v", all)
	}
}
