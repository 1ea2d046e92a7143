package interference

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

// machine is a node with pods of every kind.
func machine() *model.Node {
	const clock = time.Hour
	usage := func(uid string, milli, wait int64) model.PodUsage {
		u := model.PodUsage{
			UID: uid, Usage: model.Usage{CPU: model.CPUUsage{At: clock, Milli: milli, Periods: 10, Throttled: 2}},
		}
		u.Pressure = model.Pressure{At: clock - time.Second, CPU: model.Stall{Some: wait}}
		return u
	}
	n := &model.Node{Load: &model.Load{Clock: clock}, Pods: []*model.Pod{
		{UID: "agent", Class: model.ClassSystem, RequestMilli: 100},
		{UID: "ended", Class: model.ClassBE, Ended: true},
		{UID: "gone", Class: model.ClassBE},
		{UID: "job", Class: model.ClassBE, Grant: model.Grant{RequestMilli: 2000}},
		{UID: "web", Class: model.ClassLS, RequestMilli: 500, LimitMilli: 1000, Annotations: model.PodAnnotations{Shares: 7}},
	}}
	for i, uid := range []string{"agent", "ended", "job", "unknown", "web"} {
		n.Load.Pods = append(n.Load.Pods, usage(uid, int64(i+1)*100, 500))
	}
	n.Load.Pods[2].New = true
	return n
}

// TestNodeInput checks what of a node is compared: all that use the CPU, and of whom it counts that they wait, and who
// may be throttled.
func TestNodeInput(t *testing.T) {
	n := machine()
	p := &model.Policy{Mode: model.ModeEnforce}
	at := n.Load.Clock
	want := Input{Clock: at, Acts: true, Pods: []Pod{
		{UID: "agent", Shares: 102, UsedAt: at, Used: 100},
		{UID: "ended", UsedAt: at, Used: 200},
		{UID: "job", Batch: true, New: true, Shares: 2048, UsedAt: at, Used: 300},
		{UID: "unknown", UsedAt: at, Used: 400},
		{
			UID: "web", Online: true, Shares: 7, UsedAt: at, Used: 500,
			Lacked: model.Lack{At: at, Wait: 700 * time.Millisecond},
		},
	}}
	lacked := []model.Lacked{
		{UID: "job", Lack: model.Lack{At: at, Wait: time.Second}},
		{UID: "web", Lack: model.Lack{At: at, Wait: 700 * time.Millisecond}},
	}
	if diff := cmp.Diff(want, newInput(n, p, lacked)); diff != "" {
		t.Error(diff)
	}
	for _, change := range []func(){func() { p.Mode = model.ModeObserve },
		func() { p.Mode, n.Tree.ReadOnly = model.ModeEnforce, true }} {
		change()
		if newInput(n, p, nil).Acts {
			t.Errorf("%s, read-only %v: batch may be throttled", p.Mode, n.Tree.ReadOnly)
		}
	}
}

// trying plays a world until the guilty neighbour is throttled.
func trying(t *testing.T, acts bool) *tester {
	t.Helper()
	p := newTester(newWorld(linear, 3, 4), func(int) bool { return true })
	p.in.Acts = acts
	for range 1200 {
		if b := p.second(); len(b.Throttles) > 0 || !acts && b.Waits {
			return p
		}
	}
	t.Fatal("nobody is throttled, or would be")
	return nil
}

// TestObserves: where nothing is carried out, who is named is not throttled, and who was throttled is so no more.
func TestObserves(t *testing.T) {
	p := trying(t, false)
	for range 600 {
		if b := p.second(); len(b.Throttles) > 0 {
			t.Fatalf("%+v", b.Throttles)
		}
	}
	if p.state.Trials != [trialsPerHour]time.Duration{} {
		t.Errorf("trials: %v", p.state.Trials)
	}
	p = trying(t, true)
	p.in.Acts = false
	for range 5 {
		p.second()
	}
	if len(p.last.Throttles) > 0 || p.state.throttled(p.in.Pods[p.w.guilty].UID) != nil {
		t.Errorf("%+v", p.state.Throttled)
	}
}

// TestReport: a suspect is reported with the numbers of that moment for ten minutes, and another one a minute later at
// the soonest.
func TestReport(t *testing.T) {
	s := State{Clock: time.Hour}
	name := func(suspect string, wait int64) model.Finding {
		s.Result.Finding = model.Finding{Victim: "web", Suspect: suspect, Wait: wait}
		s.report()
		return s.Result.Named
	}
	if f := name("", 1); f != (model.Finding{}) {
		t.Errorf("no suspect: %+v", f)
	}
	first := name("a", 2)
	for _, c := range []struct {
		after   time.Duration
		suspect string
		want    int64
	}{
		{5 * time.Second, "a", 2}, {time.Second, "b", 2}, {59 * time.Second, "b", 3}, {9 * time.Minute, "", 3},
		{59 * time.Second, "b", 3}, {time.Second, "b", 6}, {10 * time.Minute, "", 0},
	} {
		s.Clock += c.after
		wait := map[bool]int64{true: c.want, false: 99}[c.want > s.Result.Named.Wait]
		if got := name(c.suspect, wait); got.Wait != c.want {
			t.Errorf("%s later %q: %+v, first %+v", c.after, c.suspect, got, first)
		}
	}
}

// delayed is a node on which one batch pod makes an online pod wait.
type delayed struct {
	n     *model.Node
	p     model.Policy
	state State
	last  model.Interference

	lacked []model.Lacked // of the online pod
}

func newDelayed() *delayed {
	d := &delayed{n: machine(), p: model.Policy{Mode: model.ModeEnforce}}
	for i := range d.n.Load.Pods {
		u := &d.n.Load.Pods[i]
		u.New, u.CPU.Periods, u.CPU.Throttled, u.Pressure = false, 0, 0, model.Pressure{}
	}
	d.n.Load.Clock -= time.Second // with the next one a span begins
	d.lacked = []model.Lacked{{UID: "web", Lack: model.Lack{At: d.n.Load.Clock}}}
	return d
}

// after decides when some time has passed, in which the tasks of the online pod waited.
func (d *delayed) after(length, waited time.Duration) {
	sum := &d.lacked[0]
	sum.Wait += waited
	sum.At += length
	d.pass(length)
}

// pass decides when some time has passed in which no task was sampled.
func (d *delayed) pass(length time.Duration) {
	d.n.Load.Clock += length
	for i := range d.n.Load.Pods {
		d.n.Load.Pods[i].CPU.At = d.n.Load.Clock
	}
	d.last, d.state = Node(d.n, &d.p, d.lacked, d.state)
}

// span returns the sample of the span that the next seconds complete, in each of which the online pod waits so long. It
// is -1 if nothing was measured.
func (d *delayed) span(waits ...time.Duration) int {
	for _, waited := range waits {
		d.after(time.Second, waited)
	}
	s := d.state
	s.Tracks = slices.Clone(s.Tracks)
	if s.Clock += time.Second; !s.turn() {
		panic("the span is not complete")
	}
	j, _ := s.index("web")
	if s.Tracks[j].Wait == 0 {
		return -1
	}
	return int(s.Rows[j].Wait[place(s.Span, 0)])
}

const second = time.Second

// TestDelay checks which sample a span has: the mean of its seconds, at most all of the time. The kernel accounts a
// wait when it ends.
func TestDelay(t *testing.T) {
	d := newDelayed()
	d.span(0, 0, 0, 0, 0)
	for _, c := range []struct {
		name  string
		waits [5]time.Duration
		want  int
	}{
		{"none", [5]time.Duration{}, 0},
		{"a tenth of the time", [5]time.Duration{second / 10, second / 10, second / 10, second / 10, second / 10}, 100},
		{"a lump", [5]time.Duration{3: 3700 * time.Millisecond}, 740},
		{"nothing of it is left", [5]time.Duration{}, 0},
		{"a lump as long as the span", [5]time.Duration{1: 5 * second}, 1000},
		{"a longer one", [5]time.Duration{1: time.Hour}, 1000},
		{"nothing of that is left", [5]time.Duration{}, 0},
		{"several tasks", [5]time.Duration{3 * second, 4 * second, 3 * second, 4 * second, 3 * second}, 1000},
		{"several tasks, for a moment", [5]time.Duration{4: 2 * second}, 400},
	} {
		if got := d.span(c.waits[:]...); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestDelayGaps checks which sums are compared.
func TestDelayGaps(t *testing.T) {
	begin := func() *delayed {
		d := newDelayed()
		d.span(0, 0, 0, 0, 0)
		if got := d.span(second/2, second/2, second/2, second/2, second/2); got != 500 {
			t.Fatalf("before: %d", got)
		}
		return d
	}
	half := []time.Duration{second / 2, second / 2, second / 2, second / 2, second / 2}

	d := begin()
	for range 5 {
		d.pass(second)
	}
	if got := d.span(); got != -1 {
		t.Errorf("no task was sampled: %d", got)
	}
	d.lacked[0].At += 5 * second
	if got := d.span(5*second/2+second/2, second/2, second/2, second/2, second/2); got != 500 {
		t.Errorf("a sample of six seconds, and four of one: %d", got)
	}

	d = begin()
	for range 15 {
		d.pass(second)
	}
	d.lacked[0].At += 15 * second
	if got := d.span(append([]time.Duration{7 * second}, half[1:]...)...); got != 500 {
		t.Errorf("after a gap: %d", got)
	}

	d = begin()
	d.lacked[0].Wait = 0
	if got := d.span(half...); got != 500 {
		t.Errorf("the sums began anew: %d", got)
	}

	d = begin()
	d.after(second, second/2)
	d.after(second/10, 4*second/10) // a round that runs early
	d.after(second*9/10, second/10)
	d.after(second, second/2)
	if got := d.span(half[:2]...); got != 500 {
		t.Errorf("a round ran early: %d", got)
	}
}

// TestDelayNames checks that a suspect is named by run-queue delay alone, and that a state that was written and read
// again decides alike.
func TestDelayNames(t *testing.T) {
	d := newDelayed()
	job := d.n.Load.Pod("job")
	for i := range 400 {
		job.CPU.Milli = 200
		waited := 20 * time.Millisecond
		if (i/20)%2 == 1 {
			job.CPU.Milli, waited = 3000, 0
			if i%4 == 3 {
				waited = 2 * second // a lump
			}
		}
		before := encode(t, &d.state)
		d.after(second, waited+time.Duration(i*7919%20)*time.Millisecond)
		var read State
		if err := json.Unmarshal(before, &read); err != nil {
			t.Fatal(err)
		}
		if _, read = Node(d.n, &d.p, d.lacked, read); !bytes.Equal(encode(t, &read), encode(t, &d.state)) {
			t.Fatalf("second %d: with the state that was read\n%s, else\n%s", i, encode(t, &read), encode(t, &d.state))
		}
		if d.last.Finding.Suspect == "job" {
			return
		}
	}
	t.Errorf("no suspect: %+v", d.last.Finding)
}
