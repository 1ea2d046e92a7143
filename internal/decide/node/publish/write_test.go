package publish

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// clocked is a node whose writes take no time.
type clocked struct {
	n     model.Node
	state State
	fails bool // all writes fail
}

func newClocked() *clocked {
	c := &clocked{n: fixture.Node(model.Amount{})}
	c.n.Object = model.NodeObject{UID: "uid", Reported: true}
	return c
}

// round decides about a publication and a report, and reports whether each is written.
func (c *clocked) round(p model.Publication, r model.Report) (offer, report bool, again time.Time) {
	c.state, again = Writes(&c.n, &p, &r, c.state)
	if p.Write {
		c.n.Writes.Offer.Failed = c.fails
	}
	if r.Write {
		c.n.Writes.Report.Failed = c.fails
	}
	return p.Write, r.Write, again
}

// offer decides about a publication while this stands on the Node.
func (c *clocked) offer(wanted, stands []model.Published) bool {
	c.n.Object.Published = stands
	write, _, _ := c.round(model.Publication{Decided: true, Resources: wanted}, model.Report{})
	return write
}

// report decides about a report.
func (c *clocked) report(r model.Report) bool {
	_, write, _ := c.round(model.Publication{}, r)
	return write
}

func published(amount int64) []model.Published {
	return []model.Published{{NodeResource: model.NodeResource{Tier: model.TierBatch}, Amount: amount}}
}

// TestOffer: what stands on the Node is put right at once; the same offer is not written again before the Node can show
// it; a write that failed is tried again until it succeeds.
func TestOffer(t *testing.T) {
	c := newClocked()
	if !c.offer(published(5), nil) {
		t.Error("the offer is not written")
	}
	if c.offer(published(5), nil) {
		t.Error("it is written again before the Node can show it")
	}
	if c.offer(published(5), published(5)) {
		t.Error("it is written though it stands there")
	}
	if !c.offer(published(5), published(model.Uneven)) || !c.offer(nil, published(5)) {
		t.Error("a change by another writer is not put right, or a withdrawn offer is not removed")
	}
	if !c.offer(published(3), published(5)) {
		t.Error("another amount waits")
	}
	c.n.Now = c.n.Now.Add(echoTimeout)
	if !c.offer(published(3), published(5)) {
		t.Error("an offer that the Node never showed is not written again")
	}
	if write, _, _ := c.round(model.Publication{}, model.Report{}); write {
		t.Error("an offer is written that was not decided")
	}
	c.n.Writes.Offer.Busy = true
	if c.offer(published(2), published(5)) {
		t.Error("two writes are under way at once")
	}
	c.n.Writes.Offer.Busy = false
	c.n.Object.UID = ""
	if c.offer(published(2), published(5)) {
		t.Error("an offer is written to a Node that is not known")
	}
}

// TestOfferFails: while the API server is away, an offer is tried at growing intervals, at most longest apart, and the
// agent is woken for each.
func TestOfferFails(t *testing.T) {
	c := newClocked()
	c.fails = true
	var tries []time.Duration
	began := c.n.Now
	for c.n.Now.Sub(began) < time.Minute {
		write, _, again := c.round(model.Publication{Decided: true, Resources: published(2)}, model.Report{})
		if write {
			tries = append(tries, c.n.Now.Sub(began))
			c.n.Now = c.n.Now.Add(time.Millisecond)
			continue
		}
		if !again.After(c.n.Now) {
			t.Fatalf("%s: not written, and again at %s", c.n.Now.Sub(began), again.Sub(began))
		}
		c.n.Now = again
	}
	if len(tries) < 12 || len(tries) > 16 || tries[1]-tries[0] < minRetry ||
		tries[len(tries)-1]-tries[len(tries)-2] != maxRetry {
		t.Errorf("tries: %v", tries)
	}
	c.fails = false
	c.n.Now = c.n.Now.Add(maxRetry)
	if !c.offer(published(2), nil) || c.n.Writes.Offer.Failed {
		t.Error("after the API server came back the offer is not written")
	}
}

// enforced is a report with an offer, and with use that changes all the time.
func enforced(mode model.Mode, offer, online int64) model.Report {
	slack := &model.Slack{}
	slack.CPU.Offer.Batch, slack.CPU.Use.Online = offer, online
	return model.Report{Mode: mode, Slack: slack}
}

// TestReport: a report is written at once when something changed that is acted on, after a pause when only amounts
// differ, and whole again when it was deleted.
func TestReport(t *testing.T) {
	c := newClocked()
	if !c.report(enforced(model.ModeEnforce, 100, 1)) {
		t.Error("the first report is not written")
	}
	if c.report(enforced(model.ModeEnforce, 100, 2)) {
		t.Error("a report is written though nothing changed that is acted on")
	}
	if _, write, again := c.round(model.Publication{}, enforced(model.ModeEnforce, 200, 2)); write ||
		again != c.n.Now.Add(reportPause) {
		t.Errorf("amounts: written %v, again %s", write, again.Sub(c.n.Now))
	}
	if !c.report(enforced(model.ModeDisabled, 200, 2)) {
		t.Error("another mode is not reported at once")
	}
	c.n.Now = c.n.Now.Add(reportPause)
	if !c.report(enforced(model.ModeDisabled, 300, 2)) {
		t.Error("amounts are never reported")
	}
	r := enforced(model.ModeDisabled, 300, 2)
	r.Unsupported = []model.Code{model.NoPressure}
	if !c.report(r) || c.report(r) {
		t.Error("what the kernel does not support is not reported once")
	}
	c.n.Object.Reported = false
	if c.report(r) {
		t.Error("a report that does not show yet is written again")
	}
	c.n.Now = c.n.Now.Add(reportPause)
	if !c.report(r) {
		t.Error("a report that was deleted is not written again")
	}
	c.n.Object.Reported, c.fails = true, true
	c.n.Now = c.n.Now.Add(reportPause)
	c.report(enforced(model.ModeEnforce, 300, 2))
	c.fails = false
	if c.report(enforced(model.ModeEnforce, 300, 2)) {
		t.Error("a report that failed is written again at once")
	}
	c.n.Now = c.n.Now.Add(reportRetry)
	if !c.report(enforced(model.ModeEnforce, 300, 2)) || c.report(enforced(model.ModeEnforce, 300, 2)) {
		t.Error("a report that failed is not written once more")
	}
	c.n.Now = c.n.Now.Add(-time.Hour)
	if !c.report(enforced(model.ModeEnforce, 400, 2)) {
		t.Error("after the clock was set back amounts wait for an hour")
	}
	hot := enforced(model.ModeEnforce, 400, 2)
	hot.Hot = model.MemoryExhausted
	c.n.Now = c.n.Now.Add(signalPause)
	if !c.report(hot) {
		t.Error("after the clock was set back signals wait for longer than ever")
	}
}

// TestReportLoad: a report is written when the predicted peak of CPU or memory has moved by a twentieth of the node, a
// minute after the last report at the earliest. A second in which online pods use more is no such move.
func TestReportLoad(t *testing.T) {
	load := func(online, peak, memory int64) model.Report {
		r := enforced(model.ModeObserve, 0, online)
		r.Slack.CPU.Capacity, r.Slack.CPU.Peaks[model.Hour].Value = 10_000, peak
		r.Slack.Memory.Capacity, r.Slack.Memory.Peaks[model.Hour].Value = 1000, memory
		return r
	}
	for name, c := range map[string]struct {
		online, peak, memory int64
		want                 bool
	}{
		"the same":              {5000, 6000, 500, false},
		"less than a twentieth": {5000, 6499, 451, false},
		"a second":              {9000, 6000, 500, false},
		"a higher peak":         {5000, 6500, 500, true},
		"a lower peak":          {5000, 5500, 500, true},
		"more memory":           {5000, 6000, 550, true},
		"an unknown peak":       {5000, math.MaxInt64, 500, true},
	} {
		n := newClocked()
		n.report(load(5000, 6000, 500))
		n.n.Now = n.n.Now.Add(loadPause - time.Millisecond)
		_, write, again := n.round(model.Publication{}, load(c.online, c.peak, c.memory))
		if soon := again.Sub(n.n.Now) == time.Millisecond; write || soon != c.want {
			t.Errorf("%s: written %v before a minute, again in %s", name, write, again.Sub(n.n.Now))
		}
		n.n.Now = n.n.Now.Add(time.Millisecond)
		if got := n.report(load(c.online, c.peak, c.memory)); got != c.want {
			t.Errorf("%s: written %v after a minute", name, got)
		}
		if n.report(load(c.online, c.peak, c.memory)) {
			t.Errorf("%s: written twice", name)
		}
	}
}

// TestReportAge: a report with amounts is written again after 16 to 24 minutes, at another age on each node, and one
// without amounts is not.
func TestReportAge(t *testing.T) {
	ages := map[time.Duration]int{}
	for i := range 1000 {
		c := newClocked()
		c.n.Object.UID = fmt.Sprint("node-", i)
		began := c.n.Now
		if !c.report(enforced(model.ModeObserve, 0, 1)) {
			t.Fatal("the first report is not written")
		}
		_, write, again := c.round(model.Publication{}, enforced(model.ModeObserve, 0, 2))
		age := again.Sub(began)
		if write || age < 16*time.Minute || age > 24*time.Minute {
			t.Fatalf("written %v, again after %s", write, age)
		}
		c.n.Now = again.Add(-time.Millisecond)
		if c.report(enforced(model.ModeObserve, 0, 3)) {
			t.Fatalf("a report is written before it is %s old", age)
		}
		c.n.Now = again
		if !c.report(enforced(model.ModeObserve, 0, 3)) || c.report(enforced(model.ModeObserve, 0, 3)) {
			t.Fatalf("a report that is %s old is not written once", age)
		}
		ages[age.Truncate(20*time.Second)]++
	}
	for at, n := range ages {
		if n > 1000/24*2 {
			t.Errorf("%d of 1000 nodes write within twenty seconds, at the age of %s", n, at)
		}
	}
	c := newClocked()
	c.report(model.Report{Mode: model.ModeDisabled})
	c.n.Now = c.n.Now.Add(time.Hour)
	if c.report(model.Report{Mode: model.ModeDisabled}) {
		t.Error("a report without amounts is written again")
	}
}

// TestFreeCPUs: a report in which only free CPUs differ is written two seconds after the last one at the earliest, so
// that pods which come and go fast do not make the agent write all the time, and a scheduler still learns of them.
func TestFreeCPUs(t *testing.T) {
	c := newClocked()
	room := func(free ...int) model.Report {
		r := enforced(model.ModeEnforce, 100, 1)
		r.CPUs = &model.CPURoom{Free: model.CPUs(free...), Exclusive: len(free), Topology: &model.Topology{}}
		return r
	}
	if !c.report(room(1, 2)) || c.report(room(1, 2)) {
		t.Error("the first free CPUs are not written once")
	}
	if _, write, again := c.round(model.Publication{}, room(2)); write || again != c.n.Now.Add(cpusPause) {
		t.Errorf("other free CPUs: written %v, again in %s", write, again.Sub(c.n.Now))
	}
	c.n.Now = c.n.Now.Add(cpusPause)
	if !c.report(room(2)) || c.report(room(2)) {
		t.Error("other free CPUs are not written once, after the pause")
	}
	if !c.report(enforced(model.ModeDisabled, 100, 1)) {
		t.Error("another mode waits, because the CPUs differ too")
	}
}

// TestRenewal: an eviction request is reported at once, again every twenty seconds while it stands, and its end at
// once.
func TestRenewal(t *testing.T) {
	c := newClocked()
	seconds := func(n int, hot model.Code, evict *model.Eviction) (written int) {
		for range n {
			if c.report(model.Report{Mode: model.ModeEnforce, Hot: hot, Evict: evict}) {
				written++
			}
			c.n.Now = c.n.Now.Add(time.Second)
		}
		return written
	}
	request := func(uid string) *model.Eviction {
		return &model.Eviction{UID: uid, Reason: model.Reason{Code: model.MemoryExhausted}}
	}
	seconds(5, "", nil)
	for _, step := range []struct {
		name  string
		n     int
		hot   model.Code
		evict *model.Eviction
		want  int
	}{
		{"a request", 1, model.MemoryExhausted, request("a"), 1},
		{"the same for 100 s", 100, model.MemoryExhausted, request("a"), 5},
		{"another pod", 1, model.MemoryExhausted, request("b"), 1},
		{"no pod any more", 100, model.MemoryExhausted, nil, 1},
		{"not hot any more", 100, "", nil, 1},
	} {
		if got := seconds(step.n, step.hot, step.evict); got != step.want {
			t.Errorf("%s: %d reports, want %d", step.name, got, step.want)
		}
	}
}

// TestReportsAreYoungEnough checks that the report of a node on which nothing changes is trusted.
func TestReportsAreYoungEnough(t *testing.T) {
	if most := reportAge + spread; most >= model.ReportMaxAge {
		t.Errorf("reports are written after up to %s, and trusted for %s", most, model.ReportMaxAge)
	}
}

// TestSignalsFlap checks that signals and conditions which come and go are reported ten times in an hour at most, in
// any rhythm, and what they are in the end within minutes.
func TestSignalsFlap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		period := 1 + r.IntN(5)
		if seed%2 == 0 {
			period = 1 + r.IntN(600)
		}
		n := &model.Node{Now: time.Unix(1e9, 0), PodsKnown: true, Object: model.NodeObject{UID: "n", Reported: true}}
		var s State
		var shown model.Report
		writes := 0
		report := func(now model.Report) {
			n.Now = n.Now.Add(time.Second)
			now.Policy, now.Mode = "p", model.ModeEnforce
			if s, _ = Writes(n, &model.Publication{}, &now, s); now.Write {
				writes++
				shown = now
			}
		}
		report(model.Report{})
		writes = 0
		var now model.Report
		for i := range 3600 {
			if i%period == 0 {
				now = model.Report{
					Harm: []model.HarmSignal{"", model.HarmByDelay, model.HarmByPressure}[r.IntN(3)],
					Hot:  []model.Code{"", model.MemoryExhausted}[r.IntN(2)],
				}
				if r.IntN(2) == 0 {
					now.Starved = []string{"kubelet"}
				}
				if r.IntN(2) == 0 {
					now.Unsupported = []model.Code{model.HarmUnknown}
				}
			}
			report(now)
		}
		if writes > 10 || writes < 3 {
			t.Errorf("seed %d, each %d s: %d reports in an hour", seed, period, writes)
		}
		for range 600 {
			report(model.Report{Harm: model.HarmByDelay})
		}
		if shown.Harm != model.HarmByDelay || shown.Hot != "" || shown.Starved != nil || shown.Unsupported != nil {
			t.Errorf("seed %d, each %d s: ten minutes later the report has %v", seed, period, shown)
		}
	}
}

// TestSignalsBesideAmounts checks that signals which are part of reports that are written anyway use up no budget: when
// the amounts stand still, what has changed last is reported within minutes, and no report is too old.
func TestSignalsBesideAmounts(t *testing.T) {
	n := &model.Node{Now: time.Unix(1e9, 0), PodsKnown: true, Object: model.NodeObject{UID: "n", Reported: true}}
	var s State
	var shown model.Report
	written, writes := n.Now, 0
	report := func(offer int64, hot bool) {
		n.Now = n.Now.Add(time.Second)
		now := enforced(model.ModeEnforce, offer, 1)
		if hot {
			now.Hot = model.MemoryExhausted
		}
		if s, _ = Writes(n, &model.Publication{}, &now, s); now.Write {
			shown, written, writes = now, n.Now, writes+1
		}
		if age := n.Now.Sub(written); age > reportAge+spread {
			t.Fatalf("the report is %s old", age)
		}
	}
	for i := range int64(3 * 3600) {
		report(1000+i/60, i/60%2 == 0)
	}
	if writes > 3*60+3*10 {
		t.Errorf("%d reports in three hours, in which amounts changed each minute", writes)
	}
	for _, hot := range []bool{true, false} {
		for range int(signalPause / time.Second) {
			report(1000, hot)
		}
		if (shown.Hot != "") != hot {
			t.Errorf("hot is %v, and after %s the report has %q", hot, signalPause, shown.Hot)
		}
	}
	for i := range 3600 {
		report(1000, i%2 == 0)
	}
}
