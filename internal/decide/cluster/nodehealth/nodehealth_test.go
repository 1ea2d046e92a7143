package nodehealth

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/test/fixture"
)

// cluster is a cluster with random changes.
type cluster struct {
	*rand.Rand
	at    time.Duration
	nodes []Node
}

func (c *cluster) step() Input {
	c.at += time.Duration(c.IntN(4000)) * time.Millisecond
	if c.IntN(200) == 0 {
		c.at += time.Hour
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		if c.IntN(3) > 0 {
			n.Lease += int64(c.IntN(2))
		}
		if c.IntN(40) == 0 {
			n.Agent = AgentState(c.IntN(3))
		}
		if c.IntN(200) == 0 {
			n.Report, n.Own, n.Koordinator, n.Gone = c.IntN(4) > 0, c.IntN(2) > 0, c.IntN(3) == 0, c.IntN(20) == 0
			n.Withdrawn = n.Report && n.Withdrawn
		}
	}
	return Input{At: c.at, Fresh: c.IntN(15) > 0, Nodes: slices.Clone(c.nodes), Settings: DefaultSettings()}
}

// TestInvariants checks on random clusters: no action without fresh data, no new withdrawal in a manager's first
// minute, at most one action per node and round, no lift of a lost node, and the limit of the brake.
func TestInvariants(t *testing.T) {
	for seed := range fixture.Times(uint64(300)) {
		c := &cluster{Rand: rand.New(rand.NewPCG(seed, 7))}
		for i := range 1 + c.IntN(30) {
			c.nodes = append(c.nodes, Node{Name: fmt.Sprintf("n%02d", i), Agent: AgentReady, Report: true, Lease: 1})
		}
		var s State
		var counted time.Duration // upper bound of the counted time
		last, wasFresh := time.Duration(0), false
		var withdrawals []time.Duration
		for range 400 {
			in := c.step()
			actions, sum, next := Round(in, s)
			again, _, same := Round(in, s)
			if d := cmp.Diff(actions, again); d != "" || !reflect.DeepEqual(next, same) {
				t.Fatalf("seed %d: two equal decisions differ:\n%s%s", seed, d, fixture.Diff(next, same))
			}
			if !in.Fresh && len(actions) > 0 {
				t.Fatalf("seed %d: %v on old data", seed, actions)
			}
			if in.Fresh && wasFresh {
				counted += min(in.At-last, maxRoundGap)
			}
			last, wasFresh = in.At, in.Fresh
			about := map[string]bool{}
			fresh := 0
			for _, a := range actions {
				if about[a.Node] {
					t.Fatalf("seed %d: two actions on %s: %v", seed, a.Node, actions)
				}
				about[a.Node] = true
				i := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == a.Node })
				seen := in.Nodes[i]
				switch a.Verb {
				case Withdraw:
					if counted < in.Settings.LostAfter {
						t.Fatalf("seed %d: withdrawn after %v", seed, counted)
					}
					if before, known := s.nodes[a.Node]; !known || !before.withdrawn {
						fresh++
					}
				case Lift:
					if before := s.nodes[a.Node]; !before.lifting && (seen.Agent != AgentReady || seen.Gone) {
						t.Fatalf("seed %d: %s is lifted: %+v", seed, a.Node, seen)
					}
				case Tidy:
					if !seen.Withdrawn {
						t.Fatalf("seed %d: %s is tidied: %+v", seed, a.Node, seen)
					}
				case Forget:
					if !seen.Gone && (seen.Agent != AgentAbsent || seen.Own || seen.Koordinator) {
						t.Fatalf("seed %d: %s is forgotten: %+v", seed, a.Node, seen)
					}
				}
				if c.IntN(4) > 0 { // otherwise the action fails
					n := &c.nodes[i]
					switch a.Verb {
					case Withdraw:
						n.Report, n.Withdrawn = true, true
					case Lift:
						n.Withdrawn = false
					case Tidy:
						n.Own = false
					case Forget:
						n.Report, n.Withdrawn = false, false
					}
				}
			}
			for range fresh {
				withdrawals = append(withdrawals, counted)
			}
			if sum.Braked && fresh > 0 {
				recent := 0
				for _, at := range withdrawals {
					if counted-at < brakedEvery/2 { // counted is an upper bound of the brake's clock
						recent++
					}
				}
				if recent > fresh || fresh > 1 {
					t.Fatalf("seed %d: braked, and %d nodes withdrawn within half a minute", seed, recent)
				}
			}
			s = next
		}
	}
}

// BenchmarkRound measures a round of 5,000 nodes, which happens every two seconds.
func BenchmarkRound(b *testing.B) {
	var nodes []Node
	for i := range 5000 {
		nodes = append(nodes, Node{
			Name: fmt.Sprintf("node-%04d", i), Agent: AgentReady, Report: true, Own: true, Lease: 1,
		})
	}
	var s State
	at := time.Duration(0)
	for b.Loop() {
		at += 2 * time.Second
		for i := range nodes {
			if i%5 == int(at/(2*time.Second))%5 {
				nodes[i].Lease++
			}
		}
		_, _, s = Round(Input{At: at, Fresh: true, Nodes: nodes, Settings: DefaultSettings()}, s)
	}
}

// fleet is a cluster of nodes with an agent, whose kubelets renew their Leases.
type fleet struct {
	*rand.Rand
	in    Input
	state State
	next  []time.Duration // of each node's next renewal
	dead  int             // the last nodes are dead
}

func newFleet(nodes int) *fleet {
	f := &fleet{Rand: rand.New(rand.NewPCG(1, 9)), in: Input{Fresh: true, Settings: DefaultSettings()}}
	for i := range nodes {
		f.in.Nodes = append(f.in.Nodes, Node{Name: fmt.Sprintf("n%04d", i), Agent: AgentReady, Report: true, Lease: 1})
		f.next = append(f.next, time.Duration(f.IntN(10_000))*time.Millisecond)
	}
	return f
}

// run lets nodes renew their Leases after random intervals, and returns which were withdrawn and when.
func (f *fleet) run(length time.Duration, interval func() time.Duration) map[string]time.Duration {
	lost := map[string]time.Duration{}
	for end := f.in.At + length; f.in.At < end; {
		f.in.At += 2 * time.Second
		f.in.Nodes = slices.Clone(f.in.Nodes)
		for i := range f.in.Nodes {
			if f.in.At >= f.next[i] && i < len(f.next)-f.dead {
				f.in.Nodes[i].Lease++
				f.next[i] = f.in.At + interval()
			}
		}
		var actions []Action
		actions, _, f.state = Round(f.in, f.state)
		for _, a := range actions {
			if _, known := lost[a.Node]; a.Verb == Withdraw && !known {
				lost[a.Node] = f.in.At
			}
		}
	}
	return lost
}

// TestLateCluster checks that no living node is withdrawn where many renewals arrive late, that a dead one is there
// too, and that dead nodes are withdrawn after the usual time where renewals are in time, also a tenth of all nodes at
// once.
func TestLateCluster(t *testing.T) {
	inTime := func() time.Duration { return 10 * time.Second }
	for _, nodes := range []int{30, 1000} {
		f := newFleet(nodes)
		if lost := f.run(5*time.Minute, inTime); len(lost) > 0 {
			t.Fatalf("%d nodes, in time: %d were withdrawn", nodes, len(lost))
		}
		f.dead = nodes / 10
		died := f.in.At
		lost := f.run(3*time.Minute, inTime)
		if len(lost) != f.dead {
			t.Errorf("%d nodes: of %d dead ones %d were withdrawn", nodes, f.dead, len(lost))
		}
		for name, at := range lost {
			if took := at - died; took > 75*time.Second {
				t.Errorf("%d nodes: %s was withdrawn after %v", nodes, name, took)
			}
		}

		// One renewal in ten takes up to 90 s, one in a hundred a little more.
		f = newFleet(nodes)
		late := func() time.Duration {
			switch f.IntN(100) {
			case 0:
				return 100 * time.Second
			case 1, 2, 3, 4, 5, 6, 7, 8, 9, 10:
				return time.Duration(20+f.IntN(70)) * time.Second
			}
			return 10 * time.Second
		}
		slower := 0
		begin := func() time.Duration { // it becomes late within some minutes
			if slower++; f.in.At < 5*time.Minute {
				return 10*time.Second + time.Duration(f.Int64N(1+int64(f.in.At)/8))
			}
			return late()
		}
		if lost := f.run(30*time.Minute, begin); len(lost) > 0 {
			t.Errorf("%d nodes, late: %d living ones were withdrawn", nodes, len(lost))
		}
		f.dead = 1
		died = f.in.At
		lost = f.run(15*time.Minute, late)
		if at, found := lost[f.in.Nodes[nodes-1].Name]; !found || at-died > 6*time.Minute || len(lost) != 1 {
			t.Errorf("%d nodes, late: of one dead node %d were withdrawn, it after %v", nodes, len(lost), at-died)
		}
	}
}
