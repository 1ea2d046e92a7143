package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// uids returns n node UIDs in the format of the API server.
func uids(n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]string, n)
	for i := range all {
		a, b := r.Uint64(), r.Uint64()
		all[i] = fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
			a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
	}
	return all
}

// TestThresholdKnown checks the documented hash function, so that agents of all versions agree:
//
//	printf 7f3c/web | sha256sum
func TestThresholdKnown(t *testing.T) {
	if got := Threshold("7f3c", "web"); got != 26 {
		t.Errorf("got %d", got)
	}
}

// TestRolloutShares checks that each percentage of a roll-out includes about that part of 10,000 nodes: within five
// standard deviations of a binomial distribution, for three policies with similar names, and also for numbered UIDs.
func TestRolloutShares(t *testing.T) {
	const n = 10_000
	numbered := make([]string, n)
	for i := range numbered {
		numbered[i] = fmt.Sprintf("node-%d", i)
	}
	for kind, nodes := range map[string][]string{"random": uids(n), "numbered": numbered} {
		for _, name := range []string{"web-a", "web-b", "b"} {
			var in [101]int
			for _, uid := range nodes {
				threshold := Threshold(uid, name)
				if threshold < 1 || threshold > 100 {
					t.Fatalf("%s/%s: %d", uid, name, threshold)
				}
				for percent := threshold; percent <= 100; percent++ {
					in[percent]++
				}
			}
			for percent, got := range in {
				p := float64(percent) / 100
				if want := n * p; math.Abs(float64(got)-want) > 5*math.Sqrt(n*p*(1-p)) {
					t.Errorf("%s UIDs, policy %s at %d%%: %d nodes of %d", kind, name, percent, got, n)
				}
			}
		}
	}
}

// TestRolloutsDiffer checks that policies begin with different nodes, even if their names differ in one letter.
func TestRolloutsDiffer(t *testing.T) {
	const n, percent = 10_000, 25
	both := 0
	for _, uid := range uids(n) {
		if Threshold(uid, "web-a") <= percent && Threshold(uid, "web-b") <= percent {
			both++
		}
	}
	if p := 0.25 * 0.25; math.Abs(float64(both)-n*p) > 5*math.Sqrt(n*p*(1-p)) {
		t.Errorf("%d nodes are in both quarters", both)
	}
}

// random returns policies with few different priorities, selectors and percentages, so that many are equal.
func random(r *rand.Rand) []model.ClusterPolicy {
	policies := make([]model.ClusterPolicy, r.IntN(6))
	for i := range policies {
		p := &policies[i]
		p.Name, p.Priority, p.Rollout = fmt.Sprintf("p%d", i), int64(r.IntN(3)), int64(r.IntN(5)*25)
		if r.IntN(2) == 0 {
			p.Nodes = model.Selector{{Key: "pool", Op: model.In, Values: []string{[]string{"a", "b"}[r.IntN(2)]}}}
		}
	}
	r.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
	return policies
}

// TestChooseAgainstDumb compares the choice with one that checks all pairs. It also checks that the order of the
// policies does not matter, that each policy gets one verdict, and that a policy loses no node when its percentage
// grows.
func TestChooseAgainstDumb(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	nodes := uids(50)
	for range 20_000 {
		node := Node{
			UID:    nodes[r.IntN(len(nodes))],
			Labels: map[string]string{"pool": []string{"a", "b", "c"}[r.IntN(3)]},
		}
		if r.IntN(10) == 0 {
			node.OptedOut = "waterline.io/pause"
		}
		policies := random(r)
		before := slices.Clone(policies)
		got := Choose(node, policies)
		if fmt.Sprint(before) != fmt.Sprint(policies) {
			t.Fatal("the policies were changed")
		}
		if want := dumb(node, policies); got.Policy.Name != want {
			t.Fatalf("%+v\n%+v: got %q, want %q", node, policies, got.Policy.Name, want)
		}
		r.Shuffle(len(policies), func(i, j int) { policies[i], policies[j] = policies[j], policies[i] })
		if again := Choose(node, policies); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("another order, another choice: %+v, %+v", got, again)
		}
		verdicts := len(got.Others)
		if got.Policy.Name != "" {
			verdicts++
		}
		if verdicts != len(policies) {
			t.Fatalf("%d policies, %d verdicts", len(policies), verdicts)
		}
		for i := range policies {
			if policies[i].Name == got.Policy.Name {
				policies[i].Rollout += int64(r.IntN(101 - int(policies[i].Rollout)))
			}
		}
		if grown := Choose(node, policies); grown.Policy.Name != got.Policy.Name {
			t.Fatalf("%q lost the node when it was rolled out further", got.Policy.Name)
		}
	}
}

// dumb returns the policy that no other policy beats.
func dumb(node Node, policies []model.ClusterPolicy) string {
	if node.OptedOut != "" {
		return ""
	}
	holds := func(p model.ClusterPolicy) bool {
		return p.Nodes.Matches(node.Labels) && Threshold(node.UID, p.Name) <= p.Rollout
	}
	for _, p := range policies {
		beaten := slices.ContainsFunc(policies, func(q model.ClusterPolicy) bool {
			return holds(q) && (q.Priority > p.Priority || q.Priority == p.Priority && q.Name < p.Name)
		})
		if holds(p) && !beaten {
			return p.Name
		}
	}
	return ""
}

func TestDefaults(t *testing.T) {
	defaults := model.ClusterPolicy{Policy: model.DefaultPolicy()}
	if c := Choose(Node{}, nil); fmt.Sprint(c.Policy) != fmt.Sprint(defaults) {
		t.Errorf("no policies: %+v", c)
	}
	static := model.Policy{Mode: model.ModeEnforce, CPU: model.SellPolicy{Method: model.SellStatic}}
	every := []model.ClusterPolicy{{Name: "p", Rollout: 100, Policy: static}}
	c := Choose(Node{OptedOut: "waterline.io/opt-out"}, every)
	paused := model.ClusterPolicy{Paused: true, Policy: model.Policy{Mode: model.ModeEnforce}}
	if e := At(&paused, time.Unix(0, 0)); e.Policy.Mode != model.ModeDisabled {
		t.Errorf("a paused policy has mode %s", e.Policy.Mode)
	}
	if e := At(&c.Policy, time.Unix(0, 0)); e.Policy.Mode != model.ModeDisabled || e.Policy.CPU.Method != "" {
		t.Errorf("opted out: %+v", e)
	}
}

func BenchmarkChooseAndAt(b *testing.B) {
	window, err := parseWindow("night,00:00,09:00,Asia/Shanghai,15m")
	if err != nil {
		b.Fatal(err)
	}
	var policies []model.ClusterPolicy
	for i := range 5 {
		policies = append(policies, model.ClusterPolicy{
			Name: fmt.Sprint(i), Rollout: 100, Windows: []model.Window{window},
		})
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		c := Choose(Node{UID: "7f3c"}, policies)
		At(&c.Policy, now)
	}
}
