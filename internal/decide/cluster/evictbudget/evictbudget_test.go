package evictbudget

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// world is a cluster whose nodes request evictions. It contains requests only, neither nodes nor pods of the model.
type world struct {
	at    time.Duration
	set   Settings
	all   []*Request
	deaf  bool // the view of the API is not up to date
	state State
	given map[string]Verdict // last verdict by node
	times map[string][]time.Duration
	count int
}

// newWorld returns a world that has been observed for long enough to have all of its budgets.
func newWorld() *world {
	w := &world{
		at: 1000 * time.Hour, set: DefaultSettings(), given: map[string]Verdict{}, times: map[string][]time.Duration{},
	}
	w.run(0)
	w.at += w.set.Period
	_, w.state = Watch(w.at, nil, w.state)
	return w
}

// request adds a node's request to evict a pod of a workload.
func (w *world) request(node, pod, owner string) *Request {
	r := &Request{
		Node: node, UID: pod, Code: model.MemoryExhausted, Ready: true, PerNode: 6, Renewed: "0",
		Pod: Pod{Known: true, UID: pod, Node: node, Owner: owner, Batch: true},
	}
	w.all = append(w.all, r)
	return r
}

// second advances the world by one second; renew says whether nodes renew their requests.
func (w *world) second(renew bool, outcome func(Decision) Verdict) {
	w.at += time.Second
	if w.deaf {
		return
	}
	var requests []Request
	for _, r := range w.all {
		if w.count++; renew {
			r.Renewed = fmt.Sprint(w.count)
		}
		requests = append(requests, *r)
	}
	var decisions []Decision
	var outcomes []Outcome
	_, w.state = Watch(w.at, requests, w.state)
	decisions, w.state = Round(w.at, requests, w.set, w.state)
	for _, d := range decisions {
		if d.Verdict == Evict {
			why := Evict
			if outcome != nil {
				why = outcome(d)
			}
			outcomes = append(outcomes, Outcome{d.UID, why})
			if d.Verdict = why; why == Evict {
				w.times["all"] = append(w.times["all"], w.at)
				w.times["node "+d.Node] = append(w.times["node "+d.Node], w.at)
				w.times["owner "+d.Pod.Owner] = append(w.times["owner "+d.Pod.Owner], w.at)
			}
		}
		w.given[d.Node] = d.Verdict
	}
	w.state = Note(w.at, outcomes, w.state)
}

func (w *world) run(seconds int) {
	for i := range seconds {
		w.second(i%20 == 0, nil)
	}
	if seconds == 0 {
		w.second(true, nil)
	}
}

// TestVerdicts checks the verdict for each kind of request.
func TestVerdicts(t *testing.T) {
	for want, change := range map[Verdict]func(w *world, r *Request){
		Evict:      func(*world, *Request) {},
		Leaving:    func(_ *world, r *Request) { r.Pod.Leaving = true },
		Gone:       func(_ *world, r *Request) { r.Pod.UID = "another" },
		NotAlive:   func(_ *world, r *Request) { r.Withdrawn = true },
		NotAllowed: func(_ *world, r *Request) { r.PerNode = 0 },
		NotItsOwn:  func(_ *world, r *Request) { r.Pod.Node = "b" },
		NotBatch:   func(_ *world, r *Request) { r.Pod.Batch = false },
		Kept:       func(_ *world, r *Request) { r.Pod.Kept = true },
		NodeSpent:  func(w *world, r *Request) { r.PerNode = 1; w.state.taken = []taken{{w.at, "a", "x", "x"}} },
		OwnerSpent: func(w *world, _ *Request) { w.set.PerOwner = 1; w.state.taken = []taken{{w.at, "b", "o", "x"}} },
		AllSpent:   func(w *world, _ *Request) { w.set.All = 1; w.state.taken = []taken{{w.at, "b", "x", "x"}} },
		Failed:     func(_ *world, r *Request) { r.Pod = Pod{} },
		NotSeen:    func(w *world, _ *Request) { w.state = State{} },
	} {
		t.Run(string(want), func(t *testing.T) {
			w := newWorld()
			change(w, w.request("a", "p", "o"))
			if w.second(true, nil); w.given["a"] != want {
				t.Errorf("the verdict is %q, not %q", w.given["a"], want)
			}
		})
	}
	w := newWorld()
	w.request("a", "p", "o").Ready = false
	if w.run(0); w.given["a"] != NotAlive {
		t.Errorf("without a ready agent the verdict is %q", w.given["a"])
	}
}

// TestOld checks that a request does not count if it is not renewed, or if its last change happened before the
// manager started or while the view of the API was old.
func TestOld(t *testing.T) {
	w := newWorld()
	r := w.request("a", "p", "o")
	r.Ready = false
	for range 61 {
		w.second(false, nil)
	}
	if r.Ready = true; w.given["a"] != NotAlive {
		t.Errorf("the verdict is %q", w.given["a"])
	}
	if w.second(false, nil); w.given["a"] != TooOld {
		t.Errorf("for a request of a minute ago it is %q", w.given["a"])
	}
	w.deaf = true
	w.run(30)
	w.deaf, r.Renewed = false, "meanwhile"
	if w.second(false, nil); w.given["a"] != NotSeen {
		t.Errorf("for a request of unknown age it is %q", w.given["a"])
	}
	if w.second(true, nil); w.given["a"] != Evict {
		t.Errorf("for a renewed request it is %q", w.given["a"])
	}
}

// TestOnce checks that each renewal of a request is decided once, which bounds the API calls.
func TestOnce(t *testing.T) {
	w := newWorld()
	w.request("a", "p", "o").Pod.Leaving = true
	looked := 0
	for i := range 100 {
		w.at += time.Second
		if i%20 == 0 {
			w.all[0].Renewed = fmt.Sprint(i)
		}
		var worth []Request
		worth, w.state = Watch(w.at, []Request{*w.all[0]}, w.state)
		looked += len(worth)
		_, w.state = Round(w.at, []Request{*w.all[0]}, w.set, w.state)
	}
	if looked != 5 {
		t.Errorf("in 100 s the pod was looked up %d times, not 5", looked)
	}
}

// TestSameOwnerTwice checks that the second pod of a workload waits for the workload's budget, on any node.
func TestSameOwnerTwice(t *testing.T) {
	w := newWorld()
	w.set.PerOwner = 1
	w.request("a", "p", "o")
	w.request("b", "q", "o")
	w.request("c", "r", "other")
	w.run(1)
	if w.given["a"] != Evict || w.given["b"] != OwnerSpent || w.given["c"] != Evict {
		t.Errorf("verdicts %v", w.given)
	}
	w.all = w.all[1:2]
	w.run(3580)
	if w.given["b"] != OwnerSpent {
		t.Errorf("within the hour the verdict is %q", w.given["b"])
	}
	if w.run(21); w.given["b"] != Evict {
		t.Errorf("after an hour the verdict is %q", w.given["b"])
	}
}

// TestDisruptionBudget checks a pod that a PodDisruptionBudget blocks: it is tried again with growing delays, counts
// against no budget, and does not block other evictions.
func TestDisruptionBudget(t *testing.T) {
	w := newWorld()
	w.set.All = 1
	w.request("a", "kept", "o")
	tries := 0
	for range 3600 {
		w.second(true, func(Decision) Verdict { tries++; return Waits })
	}
	if tries < 12 || tries > 16 {
		t.Errorf("in an hour it was tried %d times", tries)
	}
	w.request("b", "free", "o")
	for range 2 { // the blocked pod may be tried again in the first of them
		w.second(true, func(d Decision) Verdict {
			if d.Node == "a" {
				return Waits
			}
			return Evict
		})
	}
	if len(w.times["node b"]) != 1 || w.given["a"] != Waits {
		t.Errorf("verdicts %v, evictions %v", w.given, w.times)
	}
	w.all = w.all[:1]
	w.at += time.Hour
	w.run(0)
	w.run(0)
	if w.given["a"] != Evict {
		t.Errorf("once unblocked, the verdict is %q", w.given["a"])
	}
}

// TestWorker checks a worker of a pool: its eviction is granted once, within the budgets, and its pool has five
// minutes. Then it is evicted like others. Another manager goes on.
func TestWorker(t *testing.T) {
	w := newWorld()
	w.set.All = 1
	a := w.request("a", "nm", "pool")
	a.Pod.Worker = true
	for range 290 {
		if w.second(true, nil); w.given["a"] != Drains {
			t.Fatalf("the verdict is %q", w.given["a"])
		}
	}
	past := w.state.Counting(w.at)
	if len(past) != 1 {
		t.Fatalf("%d evictions count, want one", len(past))
	}
	w.state = Resume(w.at, past)
	for range 4 { // a request counts when it was seen to change
		w.second(true, nil)
	}
	if w.given["a"] != Drains || len(w.state.Counting(w.at)) != 1 {
		t.Errorf("another manager: %q, and %d count", w.given["a"], len(w.state.Counting(w.at)))
	}
	for range 20 {
		w.second(true, func(Decision) Verdict { a.Pod.Leaving = true; return Evict })
	}
	if w.given["a"] != Leaving || len(w.times["node a"]) != 1 || len(w.state.Counting(w.at)) != 1 {
		t.Errorf("after five minutes: %q, evicted %v, and %d count", w.given["a"], w.times["node a"],
			len(w.state.Counting(w.at)))
	}
	w.request("b", "nm2", "pool").Pod.Worker = true
	w.second(true, nil)
	if w.given["b"] != AllSpent {
		t.Errorf("a worker without a budget: %q", w.given["b"])
	}
}

// TestFailed checks that an eviction that may have happened counts.
func TestFailed(t *testing.T) {
	w := newWorld()
	w.set.All = 1
	w.request("a", "p", "o")
	w.second(true, func(Decision) Verdict { return Failed })
	w.all = nil
	w.request("b", "q", "x")
	if w.run(1); w.given["b"] != AllSpent {
		t.Errorf("after an eviction with unknown result the next is %q", w.given["b"])
	}
	w = newWorld()
	w.set.All = 1
	w.request("a", "p", "o")
	w.second(true, func(Decision) Verdict { return Gone })
	w.all = nil
	w.request("b", "q", "x")
	if w.run(1); w.given["b"] != Evict {
		t.Errorf("after a pod that did not exist the next is %q", w.given["b"])
	}
}

// TestMemoryFirst checks that requests for memory precede those of starving pods.
func TestMemoryFirst(t *testing.T) {
	w := newWorld()
	w.set.All = 1
	w.request("a", "p", "o").Code = model.BatchStarved
	w.request("b", "q", "x")
	if w.run(1); w.given["b"] != Evict || w.given["a"] != AllSpent {
		t.Errorf("verdicts %v", w.given)
	}
}

// TestNewManager checks that the budgets of a new manager are empty and fill.
func TestNewManager(t *testing.T) {
	w := newWorld()
	w.state = State{}
	w.run(0)
	w.request("a", "p", "o")
	w.run(9 * 60)
	if w.given["a"] != NodeSpent {
		t.Errorf("after nine minutes the verdict is %q", w.given["a"])
	}
	w.run(90)
	if n := len(w.times["all"]); n == 0 || w.times["all"][0]-w.state.start < 10*time.Minute {
		t.Errorf("the first of %d was evicted after %v", n, w.times["all"])
	}
}

// TestResume checks that a manager that knows the evictions of its predecessor has what they left of the budgets, at
// once, and that what it counts is what it hands on.
func TestResume(t *testing.T) {
	w := newWorld()
	w.set.All = 2
	past := []Past{{10 * time.Minute, "z", "x", "u1"}, {59*time.Minute + 50*time.Second, "z", "x", "u0"}}
	w.state = Resume(w.at, past)
	got := w.state.Counting(w.at)
	slices.Reverse(got)
	if !slices.Equal(got, past) {
		t.Errorf("it counts %+v, want %+v", got, past)
	}
	w.run(0)
	w.request("a", "p", "o")
	w.run(2)
	if w.given["a"] != AllSpent {
		t.Errorf("beside two evictions of the predecessor the verdict is %q", w.given["a"])
	}
	w.run(40)
	if w.given["a"] != Evict {
		t.Errorf("with one left in the hour the verdict is %q", w.given["a"])
	}
}

// TestBudgets checks that evictions in any hour stay within the budgets for random requests and results, and within
// twice the budgets when managers restart.
func TestBudgets(t *testing.T) {
	evicted := 0
	for seed := range fixture.Times(uint64(30)) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := newWorld()
		w.set = Settings{PerOwner: 1 + r.Int64N(8), All: 1 + r.Int64N(30), Period: time.Hour}
		perNode, restarts := 1+r.Int64N(8), seed%3 == 0
		for second := range 3 * 3600 {
			if second%30 == 0 {
				w.all = nil
				for node := range r.IntN(8) {
					req := w.request(fmt.Sprint(node), fmt.Sprint("p", r.IntN(1e9)), fmt.Sprint(r.IntN(4)))
					req.PerNode = perNode
				}
			}
			switch {
			case restarts && r.IntN(1200) == 0:
				w.state = State{}
			case seed%3 == 1 && r.IntN(1200) == 0: // another manager, which knows the evictions
				w.state = Resume(w.at, w.state.Counting(w.at))
			}
			w.second(second%20 == 0, func(Decision) Verdict {
				return []Verdict{Evict, Evict, Waits, Gone, Failed}[r.IntN(5)]
			})
		}
		evicted += len(w.times["all"])
		for what, at := range w.times {
			budget := map[byte]int64{'a': w.set.All, 'n': perNode, 'o': w.set.PerOwner}[what[0]]
			if restarts {
				budget *= 2
			}
			for i := range at {
				n := int64(0)
				for _, later := range at[i:] {
					if later-at[i] < time.Hour {
						n++
					}
				}
				if n > budget {
					t.Fatalf("seed %d: %d evictions of %s in an hour, not %d", seed, n, what, budget)
				}
			}
		}
	}
	if evicted < fixture.Times(500) {
		t.Errorf("there were only %d evictions", evicted)
	}
}
