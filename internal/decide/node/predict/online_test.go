package predict

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
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

// TestFirstDay: pods that request almost the whole node and use little leave room from the first minutes on. Young pods
// count with their requests, of CPU less and less, and a busy node is no estimate of a quiet one.
func TestFirstDay(t *testing.T) {
	n := newNode()
	old, young := pod("a", "web", 28_000), pod("b", "db", 2000)
	old.Created = n.Now.Add(-30 * 24 * time.Hour)
	n.Load.Memory = 32_000 << 20
	estimate := func(least, most int64) {
		t.Helper()
		cpu, memory := n.cpus[model.Hour], n.memory[model.Hour]
		memory.Value >>= 20
		for _, p := range []model.Peak{cpu, memory} {
			if !p.Learning || p.Known || p.Value < least || p.Value > most {
				t.Errorf("%+v, want %d to %d", p, least, most)
			}
		}
	}
	n.run(30*time.Second, 2000, old)
	if p := n.cpus[model.Hour]; p.Value != 28_000 || !p.Learning {
		t.Errorf("before the first minute is over: %+v, want the requests", p)
	}
	n.run(5*time.Minute, 2000, old)
	estimate(15_000, 18_000) // half of the other 30 CPUs
	n.run(2*time.Hour, 2000, old)
	estimate(11_000, 12_500) // three tenths
	before := n.cpus[model.Hour].Value

	young.Created = n.Now
	n.run(time.Minute, 1000, old, young)
	if p := n.cpus[model.Hour]; p.New < 990 || p.Value < before+900 {
		t.Errorf("beside a new pod that requests 1000 more than it uses: %+v, before %d", p, before)
	}
	n.run(12*time.Hour, 1000, old, young)
	if hour, memory := n.cpus[model.Hour].New, n.memory[model.Hour].New>>20; hour < 490 || hour > 510 || memory != 1000 {
		t.Errorf("after half a day %d milli-cores and %d MiB are kept for it, want 500 and 1000", hour, memory)
	}
	n.run(3*time.Minute, 13_000, old, young)
	if p := n.cpus[model.Hour]; p.Value < 26_000 {
		t.Errorf("a rise to 26 CPUs does not count: %+v", p)
	}
	n.run(12*time.Hour, 1000, old, young)
	if p := n.cpus[model.Hour]; !p.Known || p.Learning {
		t.Errorf("after a day it is still learning: %+v", p)
	}
}

// TestFirstSeconds: an agent is installed together with other pods in the last seconds of a minute. What these pods use
// while they start does not become the peak of the hour.
func TestFirstSeconds(t *testing.T) {
	n := newNode()
	web := pod("a", "web", 100)
	n.Now = n.Now.Add(27 * time.Second)
	n.run(30*time.Second, n.Load.CPUMilli, web) // once, at the 57th
	n.run(2*time.Minute, 100, web)
	if p := n.cpus[model.Hour]; !p.Learning || p.Value > n.Load.CPUMilli*55/100 {
		t.Errorf("%+v, want half of the CPUs", p)
	}
}

// TestStartOfPods: in the first hour, the use of pods that start counts up to their requests, and later all of it.
func TestStartOfPods(t *testing.T) {
	n := newNode()
	daemon, web := pod("a", "daemon", 100), pod("b", "web", 2000)
	web.Created = n.Now.Add(2 * time.Minute)
	n.run(2*time.Minute, 100, daemon)
	n.run(2*time.Minute, 16_000, daemon, web) // the daemon is old, so what it uses counts
	n.run(2*time.Minute, 100, daemon, web)
	if p := n.cpus[model.Hour]; !p.Learning || p.Value-p.Margin-p.New < 18_000 || p.Value-p.Margin-p.New > 22_000 {
		t.Errorf("a start with 16000, of which 2000 are requested, beside as much of another pod: %+v", p)
	}

	n = newNode()
	daemon.Created = time.Time{}
	web.Created = n.Now
	n.run(2*time.Minute, n.Load.CPUMilli, web)
	n.run(2*time.Minute, 100, web)
	if p := n.cpus[model.Hour]; !p.Learning || p.Value > 20_000 {
		t.Errorf("a start that takes the whole node: %+v", p)
	}
	n.run(70*time.Minute, 100, daemon)
	web.Created = n.Now
	n.run(2*time.Minute, 30_000, web)
	n.run(2*time.Minute, 100, web)
	if p := n.cpus[model.Hour]; p.Value < 30_000 {
		t.Errorf("a start with 30000 in the second hour: %+v", p)
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

// TestNewcomerIsSeen checks that for the CPU of the next hour a request counts less the longer its pod was measured,
// but not what the pod has used, and that it counts in full for a day and for memory.
func TestNewcomerIsSeen(t *testing.T) {
	n := newNode()
	a, b := pod("a", "web", 4000), pod("b", "db", 4000)
	n.run(10*24*time.Hour, 1000, a)
	n.run(time.Minute, 0, a, b)
	if hour, day := n.cpus[model.Hour], n.cpus[model.Day]; hour.New < 3990 || day.New < 3990 {
		t.Errorf("a pod that requests 4000 and does nothing yet: %+v and %+v", hour, day)
	}
	n.run(12*time.Hour, 0, a, b)
	stays := 4000 * math.Exp(-0.5) // so much of a pod is more than usual after half a day
	hour, day, memory := float64(n.cpus[model.Hour].New), float64(n.cpus[model.Day].New), n.memory[model.Hour].New>>20
	if math.Abs(hour-stays/2) > 20 || math.Abs(day-stays) > 20 || math.Abs(float64(memory)-stays) > 20 {
		t.Errorf("after half a day %v in an hour, %v in a day, and %v of memory; %v are more than usual",
			hour, day, memory, stays)
	}
	n.run(time.Minute, 3000, a, b)
	n.run(time.Minute, 0, a, b)
	if p := n.cpus[model.Hour]; math.Abs(float64(p.New)-stays/4000*3500) > 20 {
		t.Errorf("it has used 3000: %+v, want halfway to the request", p)
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

// TestOtherDays: the figures show how long a trough lasts, from the second day on, and not once measurements are old.
func TestOtherDays(t *testing.T) {
	n := newNode()
	web := pod("a", "web", 4000)
	if cpu, memory := OtherDays(&n.Node, n.state); cpu != (model.OtherDays{}) || memory != (model.OtherDays{}) {
		t.Errorf("a node without a past had other days: %v %v", cpu, memory)
	}
	for range 2 {
		n.run(8*time.Hour, 1000, web) // from midnight on
		n.run(12*time.Hour, 6000, web)
		n.run(4*time.Hour, 1000, web)
	}
	for _, test := range []struct {
		after       time.Duration // midnight
		four, eight int64
	}{{time.Minute, 1000, 6000}, {6 * time.Hour, 6000, 6000}} {
		at := n.Node
		at.Now = n.Now.Add(test.after)
		cpu, memory := OtherDays(&at, n.state)
		if test.after >= maxAge {
			test.four, test.eight = 0, 0
		}
		for _, pair := range [][2]int64{{cpu.FourHours, test.four}, {cpu.EightHours, test.eight},
			{memory.FourHours >> 20, test.four}, {memory.EightHours >> 20, test.eight}} {
			if pair[0] < pair[1] || pair[0] > pair[1]+pair[1]/100 {
				t.Errorf("%s after midnight: %v and %v, not %+v", test.after, cpu, memory, test)
			}
		}
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
	if len(n.state.Owners) != maxOwners || len(text) > 60<<10 {
		t.Errorf("%d owners in %d bytes, want %d in less than 60 KiB", len(n.state.Owners), len(text), maxOwners)
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
