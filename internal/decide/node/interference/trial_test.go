package interference

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// obey lets the world's neighbours use no more than they may.
func (p *tester) obey() {
	p.w.caps = make([]float64, len(p.use))
	for i := range p.use {
		for j := range p.last.Throttles {
			if p.last.Throttles[j].UID == p.in.Pods[i].UID {
				p.w.caps[i] = float64(p.last.Throttles[j].Milli)
			}
		}
	}
}

// outcome is what came of twenty minutes in which the rule was obeyed, or not.
type outcome struct {
	wait             float64 // of the victim, summed over the second half
	guilty, innocent int     // seconds for which they were throttled
	tried, undone    int     // trials, and those of them that did not help
}

func govern(w *world, obey bool) outcome {
	p := newTester(w, func(int) bool { return true })
	var o outcome
	for second := range 1200 {
		waited := p.waited
		before := p.state.Trials
		b := p.second()
		if before != p.state.Trials {
			o.tried++
		}
		if b.Undone.UID != "" {
			o.undone++
		}
		if obey {
			p.obey()
		}
		for i := range b.Throttles {
			if w.guilty >= 0 && b.Throttles[i].UID == p.in.Pods[w.guilty].UID {
				o.guilty++
			} else {
				o.innocent++
			}
		}
		if second >= 600 {
			o.wait += float64(p.waited - waited)
		}
	}
	return o
}

// TestRelief: who is guilty is throttled for long and the victim waits less; who is innocent is throttled for half a
// minute, and seldom.
func TestRelief(t *testing.T) {
	const worlds = 100
	for _, k := range []kind{linear, saturating, selfSquare, outside} {
		var sum outcome
		plain := 0.0
		for seed := range uint64(worlds) {
			o := govern(newWorld(k, 5000+seed, 4), true)
			sum.wait, sum.guilty, sum.innocent = sum.wait+o.wait, sum.guilty+o.guilty, sum.innocent+o.innocent
			sum.tried, sum.undone = sum.tried+o.tried, sum.undone+o.undone
			plain += govern(newWorld(k, 5000+seed, 4), false).wait
		}
		const each = worlds
		t.Logf("%-12s waits %.0f instead of %.0f of 1000; throttled for %d s guilty, %d s innocent; %.1f trials, %.2f "+
			"undone, each of %d worlds",
			names[k], sum.wait/600/each, plain/600/each, sum.guilty/each, sum.innocent/each, float64(sum.tried)/each,
			float64(sum.undone)/each, each)
		switch {
		case sum.innocent > 60*each:
			t.Errorf("%s: innocent neighbours are throttled for %d s of 1200", names[k], sum.innocent/each)
		case k == linear && sum.wait > plain*8/10:
			t.Errorf("%s: the victim waits for %.0f, and would for %.0f", names[k], sum.wait, plain)
		}
	}
}

// TestBounded: whatever is measured, what is done is bounded: in any hour six times somebody is given less, and no more
// than eighteen times anything changes; one trial at a time; no pod that is not batch is throttled, and none for
// itself.
//
// The noise is made to mislead: every ten minutes all wait for somebody else, or for nobody.
func TestBounded(t *testing.T) {
	trials, most := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 9))
		var p bounded
		p.pods(r)
		high := make([]int64, len(p.in.Pods))
		guilty, obeyed := 0, r.IntN(4) > 0
		for second := range 4 * 3600 {
			if second%600 == 0 {
				guilty = r.IntN(len(high) + 2)
			}
			p.use(r, high, obeyed)
			for i := range p.in.Pods {
				wait := r.Int64N(100)
				if guilty < len(high) {
					wait = min(wait+p.in.Pods[guilty].Used/15, 1000)
				}
				p.in.Pods[i].lack(p.in.Clock+time.Second, wait)
			}
			p.second(t, seed)
			most = max(most, len(p.changed))
		}
		trials += p.trials
	}
	t.Logf("%d trials in 160 hours, %d changes in an hour at most", trials, most)
	if trials < 160 {
		t.Errorf("%d trials in 160 hours show little", trials)
	}
}

// use says what all use: a little, or a lot for a while.
func (p *bounded) use(r *rand.Rand, high []int64, obeyed bool) {
	for i := range p.in.Pods {
		c := &p.in.Pods[i]
		c.UsedAt = p.in.Clock + time.Second
		if r.IntN(40) == 0 {
			high[i] = 1 - high[i]
		}
		c.Used = r.Int64N(500) + high[i]*(4000+r.Int64N(1000))
		for j := range p.last {
			if obeyed && p.last[j].UID == c.UID {
				c.Used = min(c.Used, p.last[j].Milli)
			}
		}
	}
}

// bounded checks what is bounded.
type bounded struct {
	in               Input
	state            State
	last             []model.Throttle
	tighter, changed []time.Duration
	trials           int
}

func (p *bounded) pods(r *rand.Rand) {
	p.in.Clock, p.in.Acts = time.Hour, true
	for i := range 2 + r.IntN(8) {
		batch := r.IntN(3) > 0
		p.in.Pods = append(p.in.Pods, Pod{
			UID: fmt.Sprintf("p%02d", i), Batch: batch && i > 0, Online: !batch || i == 0, Shares: 2 + r.Int32N(4096),
		})
	}
}

func (p *bounded) second(t *testing.T, seed uint64) {
	t.Helper()
	p.in.Clock += time.Second
	var b model.Interference
	b, p.state = Decide(p.in, p.state)
	tried := 0
	for i := range b.Throttles {
		h := &b.Throttles[i]
		if h.Code == model.ThrottleTried {
			tried++
		}
		was := int64(1000)
		for j := range p.last {
			if p.last[j].UID == h.UID {
				was = p.last[j].Times
			}
		}
		if h.Times < was {
			p.tighter = append(p.tighter, p.in.Clock)
			p.trials++
		}
		if h.Times != was {
			p.changed = append(p.changed, p.in.Clock)
		}
		for _, c := range p.in.Pods {
			if c.UID == h.UID && !c.Batch || h.UID == h.Victim || h.Milli < model.MinBatchPart ||
				h.Times < deepestThrottle || h.Times >= 1000 {
				t.Fatalf("seed %d: %+v is throttled as %+v", seed, c, h)
			}
		}
	}
	for j := range p.last {
		if p.state.throttled(p.last[j].UID) == nil {
			p.changed = append(p.changed, p.in.Clock)
		}
	}
	p.last = append(p.last[:0], b.Throttles...)
	for len(p.tighter) > 0 && p.in.Clock-p.tighter[0] >= time.Hour {
		p.tighter = p.tighter[1:]
	}
	for len(p.changed) > 0 && p.in.Clock-p.changed[0] >= time.Hour {
		p.changed = p.changed[1:]
	}
	if tried > 1 || len(b.Throttles) > maxThrottled || len(p.tighter) > trialsPerHour || len(p.changed) > 3*trialsPerHour {
		t.Fatalf("seed %d: %d trials at once, %d throttled; in an hour %d times less, %d changes", seed, tried,
			len(b.Throttles), len(p.tighter), len(p.changed))
	}
}

// TestRestart: what is throttled outlives the agent, and so does what bounds it. What another boot left counts for
// nothing.
func TestRestart(t *testing.T) {
	p := governed(t)
	text, err := json.Marshal(p.state.Kept())
	if err != nil {
		t.Fatal(err)
	}
	throttle, trials := p.state.Throttled[0].Throttle, p.state.Trials
	p.state = State{}
	if err := json.Unmarshal(text, &p.state); err != nil {
		t.Fatal(err)
	}
	b := p.second()
	if len(b.Throttles) != 1 || b.Throttles[0].UID != throttle.UID || b.Throttles[0].Milli != throttle.Milli ||
		p.state.Trials != trials {
		t.Errorf("%+v, %+v", b.Throttles, throttle)
	}
	p.in.Clock = time.Minute
	if b = p.second(); len(b.Throttles) != 0 || len(p.state.Throttled) != 0 {
		t.Errorf("after a boot: %+v", b)
	}
}

// governed returns a world in which the guilty one is kept to less.
func governed(t *testing.T) *tester {
	t.Helper()
	p := newTester(newWorld(linear, 3, 4), func(int) bool { return true })
	for range 1200 {
		p.second()
		p.obey()
		if h := p.last.Throttles; len(h) == 1 && h[0].Code == model.ThrottleKept {
			return p
		}
	}
	t.Fatal("nobody is kept to less")
	return nil
}

// TestLetGo: without the victim, its measurements, or the pod that is throttled, nothing stays as it is.
func TestLetGo(t *testing.T) {
	for name, change := range map[string]func(p *tester){
		"the victim is gone":    func(p *tester) { p.in.Pods = p.in.Pods[:len(p.use)] },
		"the pod is online now": func(p *tester) { p.in.Pods[p.w.guilty].Batch = false },
		"the victim is not measured for a minute": func(p *tester) {
			p.in.Pods[len(p.in.Pods)-1].Lacked.At = 0
		},
	} {
		p := governed(t)
		for range 70 {
			p.in.Clock += time.Second
			for i := range p.in.Pods {
				p.in.Pods[i].UsedAt = p.in.Clock
				p.in.Pods[i].lack(p.in.Clock, 300)
			}
			change(p)
			p.last, p.state = Decide(p.in, p.state)
		}
		if len(p.last.Throttles) != 0 {
			t.Errorf("%s: %+v", name, p.last.Throttles)
		}
	}
}
