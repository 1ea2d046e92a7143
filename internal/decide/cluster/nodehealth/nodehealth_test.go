package nodehealth

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/fixture"
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
	for seed := range uint64(300) {
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
				counted += min(in.At-last, lateRound)
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
