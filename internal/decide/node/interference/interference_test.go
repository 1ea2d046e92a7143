package interference

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// tester plays a world to the rule.
type tester struct {
	w     *world
	use   []float64
	in    Input
	state State
	last  model.Interference // returned

	waited int64 // by the victim, in milliseconds
}

func newTester(w *world, batch func(i int) bool) *tester {
	p := &tester{w: w, use: make([]float64, len(w.others)), in: Input{Acts: true, Clock: time.Hour}}
	for i := range w.others {
		p.in.Pods = append(p.in.Pods, Pod{UID: fmt.Sprintf("n%03d", i), Batch: batch(i), Online: !batch(i), Shares: 1024})
	}
	p.in.Pods = append(p.in.Pods, Pod{UID: "victim", Online: true, Shares: 1024})
	return p
}

// lack says that a pod lacked CPU for so many thousandths of the last second.
func (p *Pod) lack(now time.Duration, permille int64) {
	p.Lacked.At = now
	p.Lacked.Wait += time.Duration(permille) * time.Millisecond
}

// throttled returns a pod that is throttled; nil if it is not.
func (s *State) throttled(uid string) *Throttled {
	for i := range s.Throttled {
		if h := &s.Throttled[i]; h.UID == uid && h.Times < unthrottled {
			return h
		}
	}
	return nil
}

// second lets a second pass.
func (p *tester) second() model.Interference {
	wait, own := p.w.next(p.use)
	p.in.Clock += time.Second
	for i := range p.in.Pods {
		c := &p.in.Pods[i]
		c.UsedAt = p.in.Clock
		if i < len(p.use) {
			c.Used = int64(p.use[i])
			c.lack(p.in.Clock, 0)
		} else {
			c.Used = int64(own)
			c.lack(p.in.Clock, int64(wait))
			p.waited += int64(wait)
		}
	}
	p.last, p.state = Decide(p.in, p.state)
	return p.last
}

// first plays a world for ten minutes and returns who is named first, and in which second: of the neighbours, below 0
// if nobody.
func first(w *world) (named, second int) {
	p := newTester(w, func(i int) bool { return i%2 == 0 || i == w.guilty })
	for second := range 600 {
		if f := p.second().Finding; f.Suspect != "" {
			for i := range p.use {
				if f.Suspect == p.in.Pods[i].UID {
					return i, second
				}
			}
		}
	}
	return -1, 0
}

// tally counts who was named first in many worlds of a kind.
type tally struct {
	worlds, guilty, innocent int
	after                    []int // seconds from the guilty one's beginning until it is named
}

func count(k kind, worlds, neighbours int) tally {
	t := tally{worlds: worlds}
	for seed := range uint64(worlds) {
		w := newWorld(k, 1000+seed, neighbours)
		switch named, second := first(w); {
		case named < 0:
		case named == w.guilty:
			t.guilty++
			t.after = append(t.after, second-w.others[w.guilty].start)
		default:
			t.innocent++
		}
	}
	return t
}

// TestWorlds: with one guilty neighbour of four, it is named in nine of ten worlds, and an innocent one in one of
// twenty at most. Where the victim waits for itself nobody is.
func TestWorlds(t *testing.T) {
	cases := 500
	if testing.Short() {
		cases = 100
	}
	var guilty tally
	for k := linear; k <= quiet; k++ {
		c := count(k, cases, 4)
		t.Logf("%-12s guilty %5.1f %%, innocent %4.1f %%", names[k], 100*float64(c.guilty)/float64(c.worlds),
			100*float64(c.innocent)/float64(c.worlds))
		if c.innocent*20 > c.worlds {
			t.Errorf("%s: an innocent neighbour is named in %d of %d worlds", names[k], c.innocent, c.worlds)
		}
		if k == linear || k == saturating {
			slices.Sort(c.after)
			t.Logf("             named %d s after it began, nine of ten within %d s", c.after[len(c.after)/2],
				c.after[len(c.after)*9/10])
			guilty.worlds, guilty.guilty = guilty.worlds+c.worlds, guilty.guilty+c.guilty
		}
	}
	if guilty.guilty*10 < guilty.worlds*9 {
		t.Errorf("the guilty neighbour is named in %d of %d worlds", guilty.guilty, guilty.worlds)
	}
}

// TestManyNeighbours: the more neighbours there are, the likelier the use of one goes with the waiting by chance.
func TestManyNeighbours(t *testing.T) {
	cases := 60
	for _, neighbours := range []int{16, 40, 109} {
		c, o := count(linear, cases, neighbours), count(outside, cases, neighbours)
		t.Logf("%d neighbours: guilty %d, innocent %d; waiting from outside: %d, of %d", neighbours, c.guilty, c.innocent,
			o.innocent, cases)
		if c.guilty*4 < cases*3 || c.innocent*20 > cases || o.innocent*5 > cases {
			t.Errorf("%d neighbours: %+v, %+v", neighbours, c, o)
		}
	}
}

// TestTakesTurns checks that a pod which waits ever longer, whatever its neighbours do, does not keep the search from
// others.
func TestTakesTurns(t *testing.T) {
	w := newWorld(linear, 3, 4)
	p := newTester(w, func(int) bool { return true })
	p.in.Pods = append(p.in.Pods, Pod{UID: "waiting", Online: true, Shares: 1024})
	for second := range 600 {
		wait, own := w.next(p.use)
		p.in.Clock += time.Second
		for i := range p.in.Pods {
			c := &p.in.Pods[i]
			c.UsedAt = p.in.Clock
			switch {
			case i < len(p.use):
				c.Used = int64(p.use[i])
			case c.UID == "victim":
				c.Used = int64(own)
				c.lack(p.in.Clock, int64(wait))
			default:
				c.Used = 1000
				c.lack(p.in.Clock, min(int64(second)*2, 1000))
			}
		}
		p.last, p.state = Decide(p.in, p.state)
		if f := &p.last.Finding; f.Victim == "victim" && f.Suspect == p.in.Pods[w.guilty].UID {
			return
		}
	}
	t.Errorf("the guilty neighbour is not named: %+v", p.last.Finding)
}
