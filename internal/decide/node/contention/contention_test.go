package contention

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// node is a node of 16 CPUs on virtual time, with online pods and one batch pod. The kernel of this world gives rounds
// what the last plan asked for, and no more: waits as often as that says and at once when a mark is exceeded, pressure
// each second or each fifth, and containers only where that says.
type node struct {
	n      model.Node
	p      model.Policy
	left   model.Slack
	cpus   *model.CPUPlan
	state  State
	result Result
	pods   map[string]*load
	tasks  bool // tasks of pods are seen
	wants  int64
	looked time.Duration // at waits

	refused bool // the kernel accepts no limit of batch
	young   bool // the batch pod has just started, so that its use is not measured yet
	rounds  int
}

// load is what an online pod does.
type load struct {
	uses, waits int64 // milli-cores; the mean number of tasks that wait, in thousandths
	times       int64 // how often a second its tasks get a CPU
	// Of ten periods, in how many its quota stops its container app, which uses all that it uses, and proxy, which uses
	// 50.
	app, proxy int64
	wait       model.PodWait
	seen       model.PodWait // the last sample
}

func newNode(by model.SuppressMethod) *node {
	w := &node{
		n: fixture.Node(model.Amount{}), pods: map[string]*load{}, tasks: true, wants: 16_000,
		p: model.Policy{Mode: model.ModeEnforce, Suppress: model.SuppressPolicy{By: by}},
	}
	w.n.Load = &model.Load{Clock: time.Hour, CPUMilli: 16_000}
	w.left.CPU = model.Account{Capacity: 16_000, Use: model.Use{Measured: true}}
	job := fixture.BatchPod("job", model.Amount{CPU: 16_000})
	fixture.Run(&w.n, job)
	w.pod("web", load{uses: 4000})
	return w
}

func (w *node) pod(uid string, l load) *model.Pod {
	p := fixture.Pod(uid, model.Burstable)
	p.Class = model.ClassLS
	fixture.Run(&w.n, p)
	l.wait.UID = uid
	w.pods[uid] = &l
	return p
}

func (w *node) gone(uid string) {
	fixture.Delete(&w.n, uid)
	delete(w.pods, uid)
}

// may returns what batch may use.
func (w *node) may() int64 {
	if w.result.Limit == nil || w.p.Mode != model.ModeEnforce || w.refused {
		return 16_000
	}
	return w.result.Limit.Milli
}

// used returns what batch uses: no more than its parts, where they are quotas.
func (w *node) used() int64 {
	may := w.may()
	if limit := w.result.Limit; limit != nil && limit.Quotas && may < 16_000 {
		parts := int64(0)
		for _, p := range limit.Parts {
			parts += p.Milli
		}
		may = min(may, parts)
	}
	return max(min(may, w.wants, 16_000-w.uses()), 0)
}

func (w *node) uses() int64 {
	sum := int64(0)
	for _, l := range w.pods {
		sum += l.uses
	}
	return sum
}

// contain gives a pod the containers app, with a limit, and proxy, with a limit of 50 milli-cores.
func (w *node) contain(pod *model.Pod, limit int64) {
	pod.Containers = []model.Container{
		{Name: "app", ID: "0123456789aa", LimitMilli: limit}, {Name: "proxy", ID: "0123456789bb", LimitMilli: 50},
	}
	group := w.n.Tree.Pods[pod.UID]
	group.Containers = []string{"0123456789aa", "0123456789bb"}
	w.n.Tree.Pods[pod.UID] = group
}

// serves gives web a figure, which may be 20,000 at most. It returns a function that fetches it each second, if the
// last plan asks for it.
func (w *node) serves(value func() int64) func() {
	model.FindPod(w.n.Pods, "web").Labels = map[string]string{"app": "web"}
	w.p.Services = []model.ServiceRule{{
		Selector: model.Selector{{Key: "app", Op: model.In, Values: []string{"web"}}}, Max: 20_000,
		Source: model.ServiceSource{Port: 8080},
	}}
	last := time.Duration(0)
	return func() {
		if now := w.n.Load.Clock; len(w.result.Services) > 0 && now-last >= time.Second {
			last = now
			w.n.Figures = []model.ServiceFigure{{UID: "web", At: now, Value: value(), Max: 20_000}}
		}
	}
}

// second lets a second pass. Each of its tenths calls now, which sets what pods wait. It returns the seconds in which a
// pod lacked CPU: 0 or 1.
func (w *node) second(now func()) (harmed int) {
	for tenth := range 10 {
		now()
		w.n.Load.Clock += 100 * time.Millisecond
		for _, l := range w.pods {
			l.wait.Ran += time.Duration(l.uses) * 100 * time.Microsecond
			l.wait.Waited += time.Duration(l.waits) * 100 * time.Microsecond
			l.wait.Times += l.times / 10
			// A tenth of running, or of the time that it does not run, what it waits anyway, and 30 milli-cores.
			if 10*l.waits > max(l.uses, 1000-10*l.uses)+500 {
				harmed = 1
			}
		}
		round := tenth == 9
		if round {
			w.measure()
		}
		if every := w.result.Every; w.tasks && every > 0 && w.n.Load.Clock-w.looked >= every-50*time.Millisecond {
			w.looked = w.n.Load.Clock
			w.n.Waits = nil
			for _, m := range w.result.Waits {
				if l := w.pods[m.UID]; l != nil {
					if !model.IsSystem(m.UID) || w.n.Load.Clock-l.seen.At > 950*time.Millisecond { // services each second only
						l.seen = l.wait
						l.seen.At = w.n.Load.Clock
					}
					w.n.Waits = append(w.n.Waits, l.seen)
					round = round || m.Exceeded(&l.seen)
				}
			}
		}
		if round {
			w.decide()
		}
	}
	return harmed
}

// measure measures usage, and pressure as often as the last plan wants.
func (w *node) measure() {
	l := w.n.Load
	at := l.Clock
	before := map[string]model.Pressure{}
	for i := range l.Pods {
		before[l.Pods[i].UID] = l.Pods[i].Pressure
	}
	l.Pods, l.Inside = nil, nil
	w.left.CPU.Use.Batch, w.left.CPU.Use.Online = w.used(), w.uses()
	w.left.CPU.Allow = max(12_800-w.uses(), 0)
	if w.young {
		w.left.CPU.Use.Batch = 0
		fixture.Measure(l, "job", model.Usage{})
	} else {
		fixture.Measure(l, "job", fixture.Usage(at, w.left.CPU.Use.Batch, 0))
	}
	for _, pod := range w.n.Pods {
		p := w.pods[pod.UID]
		if p == nil {
			continue
		}
		u := fixture.Usage(at, p.uses, 0)
		if u.Pressure = before[pod.UID]; !w.n.Tree.NoPressure && (w.result.Seconds || at-u.Pressure.At >= 5*time.Second) {
			u.Pressure = model.Pressure{At: at, CPU: model.Stall{Some: min(p.waits, 1000)}}
		}
		fixture.Measure(l, pod.UID, u)
		if from := quota.Throttles(&w.n, pod); from > 0 && p.uses >= max(from, LeastUse) {
			l.Inside = append(l.Inside, model.InsideUsage{UID: pod.UID, Name: "app", CPUUsage: model.CPUUsage{
				At: at, Milli: p.uses, Periods: 10, Throttled: p.app,
			}}, model.InsideUsage{UID: pod.UID, Name: "proxy", CPUUsage: model.CPUUsage{
				At: at, Milli: 50, Periods: 10, Throttled: p.proxy,
			}})
		}
	}
	for i := range l.Classes {
		l.Classes[i].CPU.At = at
	}
}

func (w *node) decide() {
	w.rounds++
	w.result, w.state = Decide(&w.n, &w.p, &w.left, w.cpus, w.state)
}

// run lets seconds pass in which batch harms the pods as the function says. It returns the mean of what batch may use
// and the seconds in which online pods lacked CPU.
func (w *node) run(seconds int, now func()) (mean int64, harmed int) {
	for range seconds {
		harmed += w.second(now)
		mean += w.may()
	}
	return mean / int64(max(seconds, 1)), harmed
}

// waits returns a function that lets web wait beyond what it may for each milli-core that batch uses above a limit.
func (w *node) waits(above int64) func() {
	return func() { w.pods["web"].waits = 20 + max(w.used()-above, 0)*2 }
}

func quietly() {}

// TestFree checks that batch may use the whole machine while nobody is harmed, by what signal ever.
func TestFree(t *testing.T) {
	for _, tasks := range []bool{true, false} {
		w := newNode(model.SuppressOnHarm)
		w.tasks = tasks
		w.run(20, quietly)
		if s := w.result.Limit; s.Milli != 16_000 || s.Quotas || s.CPUs != 0 || s.Reason.Code != model.BatchFree {
			t.Errorf("tasks %v: %+v, %+v", tasks, s, w.result.Harm)
		}
	}
}

// TestStaysBelowHarm checks that batch stays just below what harms, and harms for seconds in an hour, whatever comes
// and goes: pods that are not harmed, pods that are, and batch itself.
func TestStaysBelowHarm(t *testing.T) {
	for _, c := range []struct {
		name  string
		every int  // a pod comes, or goes, after so many seconds
		harms bool // it is harmed like web
		sleep int  // of 45 seconds, how long batch sleeps
		tasks bool
	}{
		{"nothing comes", 0, false, 0, true},
		{"every 120 s", 120, false, 0, true},
		{"every 60 s", 60, false, 0, true},
		{"every 30 s", 30, false, 0, true},
		{"every 5 s", 5, false, 0, true},
		{"harmed, every 60 s", 60, true, 0, true},
		{"harmed, every 5 s", 5, true, 0, true},
		{"batch sleeps", 0, false, 15, true},
		{"by pressure", 0, false, 0, false},
		{"by pressure, every 30 s", 30, false, 0, false},
	} {
		w := newNode(model.SuppressOnHarm)
		w.tasks = c.tasks
		web, have, clock := w.waits(10_500), false, 0
		now := func() {
			web()
			if z := w.pods["zz"]; z != nil && c.harms {
				z.waits = w.pods["web"].waits
			}
		}
		hour := func(seconds int) (mean int64, harmed int) {
			for range seconds {
				clock++
				if c.every > 0 && clock%c.every == 0 {
					if have = !have; have {
						w.pod("zz", load{uses: 300})
					} else {
						w.gone("zz")
					}
				}
				if w.wants = 16_000; clock%45 < c.sleep {
					w.wants = 0
				}
				m, h := w.run(1, now)
				mean, harmed = mean+m, harmed+h
			}
			return mean / int64(seconds), harmed
		}
		_, learning := hour(900)
		mean, harmed := hour(3600)
		t.Logf("%s: batch may use %d of 10500, harm in %d s, and %d s before", c.name, mean, harmed, learning)
		if harmed += learning; harmed > 30 || mean < 9000 {
			t.Errorf("%s: batch may use %d of 10500 on average, harm in %d s of an hour", c.name, mean, harmed)
		}
	}
}

// TestTrueHarm checks that batch makes room within ten seconds of harm, and goes below arithmetic if that helps.
func TestTrueHarm(t *testing.T) {
	for _, tasks := range []bool{true, false} {
		for _, above := range []int64{12_000, 9000, 6000} { // arithmetic leaves 8800
			w := newNode(model.SuppressOnHarm)
			w.tasks = tasks
			w.run(60, quietly)
			harm, seconds := w.waits(above), 0
			for ; w.used() > above && seconds < 60; seconds++ {
				w.second(harm)
			}
			limit := 5
			if above < 8800 {
				limit = 10 // it is seen that arithmetic does not help
			}
			if seconds > limit {
				t.Errorf("tasks %v, above %d: batch uses %d after %d s", tasks, above, w.used(), seconds)
			}
		}
	}
}

// TestOnlyNumbersDiffer checks that harm changes nothing but numbers in what is known of a pod: where more differs, the
// journal writes all pods of the node anew.
func TestOnlyNumbersDiffer(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(60, quietly)
	before := w.state.Pods
	w.pods["web"].waits = 9000
	w.run(2, quietly)
	if len(before) != len(w.state.Pods) || w.result.Harm.Worst.UID != "web" {
		t.Fatalf("%+v", w.result.Harm)
	}
	for i := range before {
		was, is := &before[i], &w.state.Pods[i]
		if was.Harm.UID != is.Harm.UID || was.Harm.By != is.Harm.By || was.Tasks != is.Tasks || was.UID != is.UID {
			t.Errorf("%+v\nbecame\n%+v", was, is)
		}
	}
}

// TestPressureIsSeen checks a pod that waits nearly all the time, where only pressure shows that: pressure is read each
// second while batch runs, and its age follows that.
func TestPressureIsSeen(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.tasks = false
	w.run(20, quietly)
	known, harmed := 0, 0
	for range 300 {
		w.pods["web"].waits = 900
		w.second(quietly)
		if w.result.Harm.Known {
			known++
		}
		if w.result.Harm.Milli > 0 {
			harmed++
		}
	}
	if known < 300 || harmed < 10 || w.result.Harm.Signal != model.HarmByPressure {
		t.Errorf("known in %d of 300 s, harm in %d: %+v", known, harmed, w.result.Harm)
	}
}

// TestStuckSamples checks that samples which do not change count for three seconds, and that pressure counts then.
func TestStuckSamples(t *testing.T) {
	for _, pressure := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		w.n.Tree.NoPressure = !pressure
		w.run(20, quietly)
		w.tasks = false // the last samples stay as they are
		w.run(2, quietly)
		if h := w.result.Harm; !h.Known || h.Signal != model.HarmByDelay {
			t.Errorf("after 2 s: %+v", h)
		}
		for s := range 20 {
			w.run(1, quietly)
			if h := w.result.Harm; s > 6 && (h.Known != pressure || pressure && h.Signal != model.HarmByPressure) {
				t.Fatalf("pressure is there: %v; after %d s: %+v", pressure, s+3, h)
			}
		}
	}
}

// TestNoSignal checks that batch has what arithmetic leaves where neither tasks nor pressure are seen, and that it is
// said.
func TestNoSignal(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.tasks, w.n.Tree.NoPressure = false, true
	w.run(20, quietly)
	if !w.result.NoSignal || w.may() != 8800 || w.result.Limit.Reason.Code != model.HarmUnknown {
		t.Errorf("no signal: %v, %+v", w.result.NoSignal, w.result.Limit)
	}
}

// TestWakeIsKnown checks that waking batch is no blind round, and forgets nothing: samples may be as old as was asked.
func TestWakeIsKnown(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	unknown := 0
	for s := range 900 {
		if w.wants = 0; s%30 >= 17 {
			w.wants = 12_000
		}
		w.second(quietly)
		if s > 10 && !w.result.Harm.Known {
			unknown++
		}
	}
	if unknown > 0 {
		t.Errorf("harm was not known in %d s", unknown)
	}
}

// TestToleranceIsEarned checks that one bad second of a node teaches no pod to tolerate anything, also while another
// pod's own waiting keeps batch at its lowest.
func TestToleranceIsEarned(t *testing.T) {
	for _, lies := range []bool{false, true} {
		w := newNode(model.SuppressOnHarm)
		w.pod("liar", load{uses: 500})
		w.run(60, quietly)
		if lies {
			w.pods["liar"].waits = 10_000
			w.run(20, quietly)
		}
		web := w.pods["web"]
		web.uses, web.waits = 20, 600 // it hardly gets a CPU
		w.second(quietly)
		web.uses, web.waits = 4000, 20
		w.pods["liar"].waits = 0
		w.run(60, quietly)
		web.waits = 4000 // it waits as long as it runs
		seconds := 0
		for ; w.result.Harm.Worst.UID != "web" && seconds < 100; seconds++ {
			w.second(quietly)
		}
		if seconds > 2 {
			t.Errorf("another pod lies: %v; found after %d s", lies, seconds)
		}
	}
}

// TestOwnFault checks that a pod that waits whatever batch does costs batch no more than arithmetic would, for seconds
// in ten minutes, and that what it waits beyond that counts.
func TestOwnFault(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(60, quietly)
	w.pods["web"].waits = 3000
	below := 0
	mean := int64(0)
	for range 3600 {
		w.second(quietly)
		if mean += w.may(); w.may() < 8800 {
			below++
		}
	}
	t.Logf("batch may use %d on average, less than arithmetic leaves for %d s of an hour", mean/3600, below)
	if mean/3600 < 14_000 || below > 6*10 {
		t.Errorf("batch may use %d on average, less than arithmetic leaves for %d s of an hour", mean/3600, below)
	}
	w.run(60, quietly)
	w.pods["web"].waits = 6000
	if w.run(3, quietly); w.result.Harm.Milli == 0 && w.may() == 16_000 {
		t.Errorf("it waits twice as long: %+v", w.result.Harm)
	}
}

// TestGrowsFromTheFloor checks that batch gets the machine back also where the harm began at the lowest limit, so that
// the cubic has no height.
func TestGrowsFromTheFloor(t *testing.T) {
	for after, times := range map[time.Duration]int{minRecovery: 900, maxRecovery: 2700} {
		w := newNode(model.SuppressOnHarm)
		w.run(60, quietly)
		h := &w.state.Harm
		h.Limit, h.From, h.Bears, h.Grew, h.Soon = 400, 400, 400, 0, after
		if w.run(times, quietly); w.may() != 16_000 {
			t.Errorf("after %d s without harm, batch may use %d", times, w.may())
		}
	}
}

// TestLiesInTurns checks pods of a tenant that take turns in waiting for themselves: batch keeps nearly what arithmetic
// leaves.
func TestLiesInTurns(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(60, quietly)
	mean := int64(0)
	for s := range 3600 {
		if s%15 == 0 {
			w.gone(fmt.Sprintf("x%d", s-15))
			w.pod(fmt.Sprintf("x%d", s), load{uses: 100, waits: 3000})
		}
		w.second(quietly)
		mean += w.may()
	}
	t.Logf("batch may use %d on average", mean/3600)
	if mean/3600 < 8700*95/100 {
		t.Errorf("batch may use %d on average, and arithmetic leaves 8700", mean/3600)
	}
}

// TestBins checks that an empty bin of a baseline takes nothing from a far one.
func TestBins(t *testing.T) {
	var b Baseline
	for range meanSamples {
		b.Bins[binOf(10)].add(3000)
	}
	for milli, want := range map[int64]int64{10: 3000, 40: 3000, 100: 0, 2000: 0} {
		if got := b.at(milli); got != want {
			t.Errorf("at %d milli-cores %d, want %d", milli, got, want)
		}
	}
}

// TestBaselinesOfTenants checks that a tenant with many pods displaces no baseline of another.
func TestBaselinesOfTenants(t *testing.T) {
	all := []Baseline{{Key: "shop:web", Used: 1}}
	for i := range 3 * maxBaselines {
		all = append(all, Baseline{Key: fmt.Sprintf("tenant:%05d", i), Used: time.Hour})
	}
	all = forget(all, time.Hour)
	if len(all) != maxBaselines || all[0].Key != "shop:web" {
		t.Errorf("%d baselines, the first is %s", len(all), all[0].Key)
	}
}

// TestQuiet checks that batch is quiet below a hundredth of the machine, and on large machines below 100 milli-cores:
// what it uses beyond that is neither unjudged nor part of baselines.
func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		capacity, uses int64
		quiet          bool
	}{{2000, 19, true}, {2000, 20, false}, {256_000, 99, true}, {256_000, 2500, false}} {
		w := newNode(model.SuppressOnHarm)
		w.measure()
		w.left.CPU.Capacity, w.left.CPU.Use.Batch = c.capacity, c.uses
		if w.decide(); w.result.Batch.Quiet != c.quiet {
			t.Errorf("%d of %d: quiet %v", c.uses, c.capacity, w.result.Batch.Quiet)
		}
	}
}

// TestContainerAtItsLimit checks that a container at its own limit is not harmed by batch, although the quota of its
// pod is larger.
func TestContainerAtItsLimit(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.contain(w.pod("side", load{uses: 1000, waits: 4000, app: 10}), 1000)
	harmed := 0
	for range 60 {
		if w.second(quietly); w.result.Harm.Milli > 0 {
			harmed++
		}
	}
	if harmed > 1 || w.may() != 16_000 {
		t.Errorf("harmed in %d s, batch may use %d", harmed, w.may())
	}
	w.pods["side"].app = 0
	if w.run(3, quietly); w.may() == 16_000 {
		t.Error("it is not throttled, and not harmed either")
	}
}

// TestExclusiveCPUs checks that a pod on exclusive CPUs is not judged, because batch never runs there.
func TestExclusiveCPUs(t *testing.T) {
	for name, own := range map[string]func(w *node, pod *model.Pod){
		"by Waterline": func(w *node, _ *model.Pod) {
			w.cpus = &model.CPUPlan{Own: []model.OwnCPUs{{UID: "db", Mode: model.CPUExclusive}}}
		},
		"by the kubelet": func(w *node, pod *model.Pod) {
			w.n.Kubelet.StaticCPUs, pod.QoS = true, model.Guaranteed
			pod.Containers = []model.Container{{Name: "app", RequestMilli: 2000, LimitMilli: 2000}}
		},
		"": func(*node, *model.Pod) {},
	} {
		w := newNode(model.SuppressOnHarm)
		own(w, w.pod("db", load{uses: 2000, waits: 2000}))
		if w.run(20, quietly); (w.may() == 16_000) != (name != "") {
			t.Errorf("%q: batch may use %d, %+v", name, w.may(), w.result.Harm)
		}
	}
}

// TestStopping checks that an agent that stops leaves the limit by arithmetic.
func TestStopping(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.run(20, quietly)
	w.n.Stopping = true
	if w.decide(); w.may() != 8800 || !w.result.Limit.Quotas {
		t.Errorf("%+v", w.result.Limit)
	}
}

// TestNearlyTooHigh checks a figure that stays between 0.9 and 1 of its maximum after it was above once: batch is held
// for half a minute, and gets the machine back.
func TestNearlyTooHigh(t *testing.T) {
	w := newNode(model.SuppressOnHarm)
	w.p.Services = []model.ServiceRule{{Max: 20_000, Source: model.ServiceSource{Port: 8080}}}
	value := int64(18_500)
	figure := func() {
		w.n.Figures = []model.ServiceFigure{{UID: "web", At: w.n.Load.Clock, Value: value, Max: 20_000}}
	}
	w.run(60, figure)
	value = 20_500
	w.run(3, figure)
	value = 18_500
	pushed := w.may()
	if w.run(20, figure); pushed >= 12_000 || w.may() > pushed {
		t.Errorf("pushed back to %d, 20 s later %d", pushed, w.may())
	}
	if w.run(300, figure); w.may() != 16_000 {
		t.Errorf("five minutes later batch may use %d", w.may())
	}
}
