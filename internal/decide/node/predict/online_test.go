package predict

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// node is an imagined node that is measured every so often.
type node struct {
	model.Node
	state  State
	cpus   [model.Horizons]model.Peak
	memory [model.Horizons]model.Peak
}

func newNode() *node {
	n := &node{}
	n.Now = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	n.Load = &model.Load{CPUMilli: 32_000, Memory: 64 << 30}
	return n
}

// run has the pods that stand there use an amount each for some time.
func (n *node) run(d time.Duration, milli int64, pods ...*model.Pod) {
	n.Pods = nil
	fixture.Bind(&n.Node, pods...)
	for end := n.Now.Add(d); n.Now.Before(end); {
		n.Now = n.Now.Add(30 * time.Second)
		n.Load.Clock += 30 * time.Second
		n.Load.Node.CPU.At, n.Load.Pods = n.Load.Clock, n.Load.Pods[:0]
		var cpu, memory model.Use
		cpu.Measured, memory.Measured = true, true
		for _, p := range n.Pods {
			fixture.Measure(n.Load, p.UID, fixture.Usage(n.Load.Clock, milli, milli<<20))
			cpu.Online += milli
			memory.Online += milli << 20
		}
		n.cpus, n.memory, n.state = Decide(&n.Node, cpu, memory, n.state)
	}
}

// pod returns an online pod that requests as many MiB as milli-cores.
func pod(uid, owner string, milli int64) *model.Pod {
	p := fixture.Pod(uid, model.Burstable)
	p.Owner, p.Class, p.RequestMilli, p.MemoryRequest = owner, model.ClassLS, milli, milli<<20
	return p
}

// TestColdStart checks what is counted with until there is a past: requests; then what was used.
func TestColdStart(t *testing.T) {
	n := newNode()
	web := []*model.Pod{pod("a", "web", 4000), pod("b", "web", 4000)}
	n.run(30*time.Second, 1000, web...)
	if p := n.cpus[model.Hour]; p.Known || p.Value != 8000 {
		t.Errorf("in the first minute %+v, want the requests, 8000", p)
	}
	if p := n.memory[model.Day]; p.Known || p.Value < 8000<<20 || p.Value > 16000<<20 {
		t.Errorf("in the first minute %+v of memory, want the requests or somewhat more", p)
	}
	n.run(26*time.Hour, 1000, web...)
	if p := n.cpus[model.Hour]; !p.Known || p.New != 0 || p.Value < 2000 || p.Value > 6000 {
		t.Errorf("after a day %+v, want somewhat more than the 2000 used", p)
	}
	if p := n.cpus[model.Day]; p.Known {
		t.Errorf("after a day the next one is known: %+v", p)
	}
	n.run(26*time.Hour, 1000, web...)
	if p := n.cpus[model.Day]; !p.Known {
		t.Errorf("after two days the next one is not known: %+v", p)
	}
}

// TestNewcomers checks that pods which were not here before are counted by owner: with what its other pods used, if
// there are any that ran here for a day.
func TestNewcomers(t *testing.T) {
	n := newNode()
	a, b := pod("a", "web", 4000), pod("b", "web", 4000)
	n.run(10*24*time.Hour, 1000, a, b)
	before := n.cpus[model.Hour].Value

	n.run(30*time.Second, 1000, a, b, pod("c", "web", 4000))
	if p := n.cpus[model.Hour]; p.New > 5 || p.Value < 3000 {
		t.Errorf("a third pod of an owner whose pods use 1000, and so does it: %+v", p)
	}
	n.run(30*time.Second, 100, a, b, pod("d", "web", 4000))
	if p := n.cpus[model.Hour]; p.New < 900 || p.New > 1000 {
		t.Errorf("a third pod that does little yet, of an owner whose pods use 1000: %+v", p)
	}
	n.run(30*time.Second, 0, a, b, pod("e", "db", 4000))
	if p := n.cpus[model.Hour]; p.New != 4000 || p.Value < before+4000 {
		t.Errorf("a pod of an unknown owner that requests 4000 and does nothing yet: %+v, before %d", p, before)
	}
	n.run(30*time.Second, 1000, pod("f", "web", 4000), pod("g", "web", 4000))
	if p := n.cpus[model.Hour]; p.New > 5 {
		t.Errorf("pods that take the place of others of the same owner count as new: %+v", p)
	}
	n.run(5*24*time.Hour, 1000, a, b, pod("e", "db", 4000))
	if p := n.cpus[model.Hour]; p.New > 5 {
		t.Errorf("after five days a pod still counts as new: %+v", p)
	}
}

// TestOnlineSamples checks what becomes a sample: the mean of each minute, of each measurement once, and nothing old.
func TestOnlineSamples(t *testing.T) {
	n := newNode()
	load := n.Load
	use := func(cpu int64, age time.Duration) {
		_, _, n.state = Decide(&n.Node, model.Use{Measured: true, Online: cpu, Age: age}, model.Use{Measured: true}, n.state)
	}
	for second, cpu := range []int64{1000, 3000} {
		n.Now, load.Node.CPU.At = n.Now.Add(time.Second), time.Duration(second+1)*time.Second
		for range 5 { // rounds for other reasons
			use(cpu, 0)
		}
	}
	load.Node.CPU.At += time.Second
	use(30_000, time.Minute)
	n.Now, load.Node.CPU.At = n.Now.Add(time.Minute), load.Node.CPU.At+time.Minute
	use(0, 0)
	if got := n.state.CPU.value; got != 2000 {
		t.Errorf("the minute counts as %g, want the mean of 1000 and 3000", got)
	}
	before := n.state
	n.Load = nil
	cpus, _, after := Decide(&n.Node, model.Use{}, model.Use{}, before)
	if cpus[model.Hour].Value != math.MaxInt64 || cpus[model.Hour].Known {
		t.Errorf("without measurements: %+v", cpus)
	}
	if d := fixture.Diff(before, after); d != "" {
		t.Errorf("a round without measurements changed the state (-before +after):\n%s", d)
	}
}

// TestOnlineState checks that the state stays small, survives being stored and is never changed in place.
func TestOnlineState(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := newNode()
	for i := range 400 {
		pods := make([]*model.Pod, 0, 8)
		for range 8 {
			pods = append(pods, pod(fmt.Sprintf("%04d", len(pods)), fmt.Sprintf("Deployment/%s/%s-%d", strings.Repeat("n", 63),
				strings.Repeat("w", 60), r.IntN(300)), 100))
		}
		before, text := n.state, ""
		if i%50 == 0 {
			text = encoded(t, before)
		}
		n.run(time.Minute, int64(r.IntN(4000)), pods...)
		if text != "" && encoded(t, before) != text {
			t.Fatal("a state was changed in place")
		}
	}
	text := encoded(t, n.state)
	if len(n.state.Owners) != mostOwners || len(text) > 60<<10 {
		t.Errorf("%d owners in %d bytes, want %d in less than 60 KiB", len(n.state.Owners), len(text), mostOwners)
	}
	var back State
	if err := json.Unmarshal([]byte(text), &back); err != nil {
		t.Fatal(err)
	}
	if d := fixture.Diff(n.state, back); d != "" {
		t.Errorf("after JSON the state differs (-want +got):\n%s", d)
	}
}

func encoded(t *testing.T, s State) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
