package rebalance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// random returns a random cluster. weighted is the number of pods out of ten with a weight.
func random(r *rand.Rand, weighted int) Input {
	in := Input{Settings: DefaultSettings()}
	in.Settings.All, in.Settings.PerNode, in.Settings.PerOwner = 1+r.IntN(12), 1+r.IntN(4), 1+r.IntN(3)
	in.Settings.Margin = int64(10 + r.IntN(50))
	for i := range 2 + r.IntN(7) {
		cpu := int64(4+r.IntN(29)) * 1000
		n := Node{
			Name: fmt.Sprintf("n%d", i), CPU: cpu, Ceiling: cpu * int64(50+r.IntN(40)) / 100, System: int64(r.IntN(1000)),
			Allocatable: model.Amount{CPU: cpu - 500, Memory: int64(16+r.IntN(64)) << 30}, Slots: 5 + r.IntN(40),
			Age: time.Duration(r.IntN(32*60)) * time.Second,
		}
		if r.IntN(8) == 0 {
			n.Absent = NodeNotReady
		}
		if r.IntN(8) == 0 {
			n.Closed = Unschedulable
		}
		n.Online, n.Peak = r.Int64N(cpu), r.Int64N(cpu)
		in.Nodes = append(in.Nodes, n)
		for j := range r.IntN(12) {
			in.Pods = append(in.Pods, randomPod(r, n.Name, fmt.Sprintf("p%d-%d", i, j), weighted))
		}
	}
	for i := range 3 {
		in.Budgets = append(in.Budgets, Budget{Name: fmt.Sprint("b", i), Room: r.IntN(3)})
	}
	return in
}

func randomPod(r *rand.Rand, node, name string, weighted int) Pod {
	p := Pod{
		UID: name, Name: name, Namespace: "x", Node: node, Owner: fmt.Sprint("o", r.IntN(12)), Online: r.IntN(10) > 0,
		Ready: r.IntN(10) > 0, Age: time.Duration(r.IntN(120)) * time.Minute, Priority: int32(r.IntN(3)),
		Request: model.Amount{CPU: int64(r.IntN(40)) * 100, Memory: int64(r.IntN(4)) << 30},
	}
	if r.IntN(10) < weighted {
		p.Weight = 1024 << r.IntN(6)
	}
	if r.IntN(5) == 0 {
		p.Limit = p.Request.CPU + 1
	}
	if r.IntN(6) == 0 {
		p.Kept = NoController
	}
	if r.IntN(4) == 0 {
		p.Budget = fmt.Sprint("b", r.IntN(4)) // b3 does not exist
	}
	if r.IntN(5) == 0 {
		p.Where = []string{"n0", "n1", "n2"}
	}
	return p
}

// ledger follows a plan move by move with plain arithmetic over the input.
type ledger struct {
	in        Input
	load      map[string]int64
	weight    map[string]int64
	requested map[string]model.Amount
	pods      map[string]int
	at        map[string]string // pod → node
}

func newLedger(in Input) *ledger {
	l := &ledger{
		in: in, load: map[string]int64{}, weight: map[string]int64{}, requested: map[string]model.Amount{},
		pods: map[string]int{}, at: map[string]string{},
	}
	for _, n := range in.Nodes {
		l.load[n.Name] = n.System + max(n.Online, n.Peak)
	}
	for _, p := range in.Pods {
		l.add(&p, p.Node, 1, 0)
	}
	return l
}

func (l *ledger) add(p *Pod, node string, sign int, load int64) {
	l.load[node] += int64(sign) * load
	l.weight[node] += int64(sign) * p.Weight
	l.pods[node] += sign
	r := l.requested[node]
	l.requested[node] = model.Amount{
		CPU: r.CPU + int64(sign)*p.Request.CPU, Memory: r.Memory + int64(sign)*p.Request.Memory,
	}
	if sign > 0 {
		l.at[p.UID] = node
	}
}

func (l *ledger) node(name string) *Node {
	i := slices.IndexFunc(l.in.Nodes, func(n Node) bool { return n.Name == name })
	return &l.in.Nodes[i]
}

// takesPart reports whether pods may be moved from a node.
func (l *ledger) takesPart(n *Node) bool { return n.Absent == "" && n.Age <= l.in.Settings.MaxAge }

func (l *ledger) pressure(n *Node) float64 {
	return float64(l.weight[n.Name]) / 1.024 / float64(n.CPU)
}

// potential is what every move must lower: the load above the waterlines and then, from the highest on, the pressures.
func (l *ledger) potential() []float64 {
	heat, pressures := 0.0, []float64{}
	for i := range l.in.Nodes {
		if n := &l.in.Nodes[i]; l.takesPart(n) {
			heat += float64(max(0, l.load[n.Name]-n.Ceiling))
			pressures = append(pressures, -l.pressure(n))
		}
	}
	slices.Sort(pressures)
	all := []float64{heat}
	for _, p := range pressures {
		all = append(all, -p)
	}
	return all
}

// TestInvariants checks random plans against plain arithmetic: budgets, the rules about which pods stay, the room on
// the node that a pod goes to, and that each move lowers the potential. The potential goes on from one plan to the
// next, and no move raises it, so no sequence of plans moves pods in a circle.
func TestInvariants(t *testing.T) {
	moves := map[Code]int{}
	for seed := range fixture.Times(uint64(3000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := random(r, int(seed%8))
		before := Landed(in, &Move{}, "", "") // a copy
		plan := Decide(in)
		if d := fixture.Diff(plan, Decide(in)) + fixture.Diff(before.Pods, in.Pods) +
			fixture.Diff(before.Nodes, in.Nodes); d != "" {
			t.Fatalf("seed %d: two equal decisions differ, or the input was changed:\n%s", seed, d)
		}
		check(t, seed, in, &plan)
		for _, m := range plan.Moves {
			moves[m.Reason]++
		}
	}
	if least := fixture.Times(500); moves[CoolsNode] < least || moves[SpreadsWeight] < least {
		t.Errorf("only %v moves", moves)
	}
}

func check(t *testing.T, seed uint64, in Input, plan *Plan) {
	t.Helper()
	l := newLedger(in)
	var from, to, owner, budget = map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	moved := map[string]bool{}
	for i := range plan.Moves {
		m := &plan.Moves[i]
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, move %d %+v: %s", seed, i, m, fmt.Sprintf(format, args...))
		}
		p := in.Pods[slices.IndexFunc(in.Pods, func(p Pod) bool { return p.UID == m.UID })]
		a, b := l.node(m.From), l.node(m.To)
		if l.at[p.UID] != m.From || moved[p.UID] {
			fail("the pod is on %s; moved before: %v", l.at[p.UID], moved[p.UID])
		}
		ready := 0
		for _, other := range in.Pods {
			if other.Owner == p.Owner && other.Ready {
				ready++
			}
		}
		if p.Kept != "" || !p.Online || !p.Ready || p.Age < in.Settings.MinAge || ready < 2 {
			fail("the pod must stay: %+v, %d are ready", p, ready)
		}
		if p.Budget != "" {
			budget[p.Budget]++
			i := slices.IndexFunc(in.Budgets, func(b Budget) bool { return b.Name == p.Budget })
			if i < 0 || budget[p.Budget] > in.Budgets[i].Room {
				fail("its PodDisruptionBudget has no room")
			}
		}
		from[m.From]++
		to[m.To]++
		owner[p.Owner]++
		if i >= in.Settings.All || max(from[m.From], to[m.To]) > in.Settings.PerNode ||
			owner[p.Owner] > in.Settings.PerOwner {
			fail("the budgets are exceeded")
		}
		if !l.takesPart(a) || !l.takesPart(b) || b.Closed != "" || p.Where != nil && !slices.Contains(p.Where, m.To) {
			fail("a node takes no part, or does not accept it")
		}
		potential, pressed := l.potential(), l.pressure(a)
		l.add(&p, m.From, -1, m.Estimate)
		l.add(&p, m.To, 1, m.Estimate)
		if r := l.requested[m.To]; r.CPU > b.Allocatable.CPU || r.Memory > b.Allocatable.Memory || l.pods[m.To] > b.Slots {
			fail("its requests do not fit")
		}
		if l.load[m.To] > b.Ceiling-b.CPU*in.Settings.Margin/1000 {
			fail("its new node is at %d of %d", l.load[m.To], b.Ceiling)
		}
		if p.Weight > 0 && l.pressure(b) > pressed*1.001+0.001 {
			fail("its weight goes from pressure %g to %g", pressed, l.pressure(b))
		}
		if slices.Compare(l.potential(), potential) >= 0 {
			fail("the potential goes from %v to %v", potential, l.potential())
		}
		if code := Harm(in, m, m.To); code != "" && i == 0 {
			fail("as planned it does harm: %s", code)
		}
		if m.ToAfter.Load != l.load[m.To] || m.FromAfter.Load != l.load[m.From] {
			fail("the loads are %d and %d", l.load[m.From], l.load[m.To])
		}
		moved[p.UID] = true
	}
}

// TestEnds carries plans out until nothing is left to do. The last plan is empty, after a number of moves that the pods
// bound; and then brute force finds no move either that would cool a node by the margin.
func TestEnds(t *testing.T) {
	most := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		in := random(r, int(seed%8))
		moves := 0
		for round := 0; ; round++ {
			plan := Decide(in)
			if len(plan.Moves) == 0 {
				break
			}
			check(t, seed, in, &plan)
			for i := range plan.Moves {
				m := &plan.Moves[i]
				in = Landed(in, m, m.To, m.UID)
				moves++
			}
			for i := range in.Pods {
				in.Pods[i].Age += time.Hour
			}
			if in.Spent = (Spent{}); round > 100 {
				t.Fatalf("seed %d: %d moves, and the next plan is %+v", seed, moves, Decide(in))
			}
		}
		most = max(most, moves)
		if p, to := bruteForce(in); p != "" {
			t.Fatalf("seed %d: nothing is planned, but %s could go to %s", seed, p, to)
		}
	}
	t.Logf("at most %d moves", most)
}

// bruteForce finds a move that cools a node by the margin.
func bruteForce(in Input) (pod, to string) {
	l := newLedger(in)
	for _, p := range in.Pods {
		a := l.node(p.Node)
		share := func(p *Pod) int64 { return max(p.Request.CPU, leastRequest) }
		var sum int64
		ready := 0
		for _, other := range in.Pods {
			if other.Node == p.Node && other.Online {
				sum += share(&other)
			}
			if other.Owner == p.Owner && other.Ready {
				ready++
			}
		}
		room := p.Budget == "" || slices.ContainsFunc(in.Budgets, func(b Budget) bool {
			return b.Name == p.Budget && b.Room > 0
		})
		if !l.takesPart(a) || p.Kept != "" || !p.Online || !p.Ready || p.Age < in.Settings.MinAge || ready < 2 || !room {
			continue
		}
		estimate := max(a.Online, a.Peak) * share(&p) / sum
		if p.Limit > 0 {
			estimate = min(estimate, p.Limit)
		}
		if min(estimate, l.load[a.Name]-a.Ceiling) < max(1, a.CPU*in.Settings.Margin/1000) {
			continue
		}
		for i := range in.Nodes {
			b := &in.Nodes[i]
			r := l.requested[b.Name].Plus(p.Request)
			if b.Name != a.Name && l.takesPart(b) && b.Closed == "" && l.pods[b.Name] < b.Slots &&
				r.CPU <= b.Allocatable.CPU && r.Memory <= b.Allocatable.Memory &&
				(p.Where == nil || slices.Contains(p.Where, b.Name)) &&
				l.load[b.Name]+estimate <= b.Ceiling-b.CPU*in.Settings.Margin/1000 &&
				(p.Weight == 0 || (l.weight[b.Name]+p.Weight)*a.CPU < l.weight[a.Name]*b.CPU) {
				return p.UID, b.Name
			}
		}
	}
	return "", ""
}

// TestNoPingPong lets the load of each node change at random by less than half of the margin, round after round. No pod
// that was moved goes back to the node that it has just left.
func TestNoPingPong(t *testing.T) {
	moves := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := random(r, 0)
		factor := 300 + r.Int64N(1000) // use per request, in thousandths: the same for all pods
		for i := range in.Pods {
			p := &in.Pods[i]
			p.Online, p.Limit, p.Request.CPU = true, 0, max(p.Request.CPU, leastRequest)
		}
		left := map[string]string{} // pod → the node that it left last
		for round := range 40 {
			seen := in
			seen.Nodes = slices.Clone(in.Nodes)
			for i := range seen.Nodes {
				n := &seen.Nodes[i]
				var sum int64
				for _, p := range in.Pods {
					if p.Node == n.Name {
						sum += p.Request.CPU * factor / 1000
					}
				}
				noise := n.CPU * in.Settings.Margin / 1000 / 2
				n.Online, n.Peak, n.System = max(0, sum+r.Int64N(2*noise)-noise), 0, 200
			}
			for _, m := range Decide(seen).Moves {
				if moves++; left[m.UID] == m.To {
					t.Fatalf("seed %d, round %d: %s goes from %s back to %s", seed, round, m.UID, m.From, m.To)
				}
				left[m.UID] = m.From
				in = Landed(in, &m, m.To, m.UID)
			}
			for i := range in.Pods {
				in.Pods[i].Age += time.Hour
			}
			in.Spent = Spent{}
		}
	}
	if moves < 300 {
		t.Errorf("only %d moves", moves)
	}
}

// TestDocumented checks that docs/rebalance.md explains each code, and that a golden case shows it.
func TestDocumented(t *testing.T) {
	code, err := os.ReadFile("rebalance.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../../../docs/rebalance.md")
	if err != nil {
		t.Fatal(err)
	}
	var golden strings.Builder
	files, _ := filepath.Glob("testdata/*.case")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden.Write(content)
	}
	found := regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(string(code), -1)
	if len(found) < 30 {
		t.Fatalf("found %d codes", len(found))
	}
	for _, m := range found {
		if !strings.Contains(string(docs), "| `"+m[1]+"` |") {
			t.Errorf("docs/rebalance.md does not explain %s", m[1])
		}
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(golden.String()) {
			t.Errorf("no golden case shows %s", m[1])
		}
	}
}

// BenchmarkDecide measures a plan for 1,000 nodes with 40 pods each, of which a tenth are hot.
func BenchmarkDecide(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 4))
	in := Input{Settings: DefaultSettings()}
	for i := range 1000 {
		n := Node{Name: fmt.Sprintf("n%04d", i), CPU: 64000, Ceiling: 44800, Online: 30000 + r.Int64N(17000), Slots: 110,
			Allocatable: model.Amount{CPU: 63000, Memory: 256 << 30}}
		in.Nodes = append(in.Nodes, n)
		for j := range 40 {
			in.Pods = append(in.Pods, Pod{
				UID: fmt.Sprintf("%d-%d", i, j), Name: "p", Node: n.Name, Owner: fmt.Sprint(r.IntN(4000)), Online: true,
				Ready: true,
				Age:   time.Hour, Request: model.Amount{CPU: cmp.Or(r.Int64N(4)*500, 100), Memory: 1 << 30},
				Weight: 1024 * r.Int64N(2) * r.Int64N(9),
			})
		}
	}
	for b.Loop() {
		if plan := Decide(in); len(plan.Moves) != in.Settings.All {
			b.Fatal(len(plan.Moves))
		}
	}
}
