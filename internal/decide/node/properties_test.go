package node_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// randomWorld returns a node with random pods whose requests fit.
func randomWorld(r *rand.Rand) *world {
	w := newWorld()
	w.node.Allocatable.CPU = int64(1+r.IntN(128)) * 1000
	w.policy.Weight.Scope = []model.Scope{model.ScopeNode, model.ScopeClass}[r.IntN(2)]
	w.policy.Weight.Quota = []model.QuotaMode{model.QuotaKubelet, model.QuotaUnlimited}[r.IntN(2)]
	w.node.Kubelet.CFSQuota = r.IntN(4) > 0
	free := w.node.Allocatable.CPU
	for i := range r.IntN(40) {
		request := min(free, int64(r.IntN(8000)))
		args := []string{"class=" + []string{"Guaranteed", "Burstable", "BestEffort"}[r.IntN(3)]}
		switch {
		case args[0] == "class=BestEffort":
		case args[0] == "class=Guaranteed" && request == 0:
			continue
		default:
			free -= request
			args = append(args, fmt.Sprintf("request=%d", request))
			if args[0] == "class=Guaranteed" {
				args = append(args, fmt.Sprintf("limit=%d", request))
			}
		}
		if r.IntN(3) == 0 {
			args = append(args, fmt.Sprintf("weight=%d", 2+r.IntN(model.MaxShares-1)))
		}
		jobs := r.IntN(3) * r.IntN(2)
		if args[0] == "class=Guaranteed" {
			jobs = 0
		}
		for range jobs {
			args = append(args, fmt.Sprintf("job=j%d:%d:%d:%d", i, 1+r.IntN(4), r.IntN(5), r.IntN(4)))
		}
		for _, flag := range []string{"critical", "self", "idle", "ended", "quota=unlimited", "containers=0123456789aa:100"} {
			if r.IntN(12) == 0 {
				args = append(args, flag)
			}
		}
		if err := w.setPod(fmt.Sprintf("p%d", i), args); err != nil {
			panic(err)
		}
	}
	return w
}

// TestProperties checks on random nodes what must hold on every node.
func TestProperties(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := randomWorld(r)
		plan, _ := node.Decide(w.node, w.policy, w.state)
		again, _ := node.Decide(w.node, w.policy, w.state)
		if !reflect.DeepEqual(plan, again) {
			t.Fatalf("seed %d: two plans for the same node differ:\n%s", seed, fixture.Diff(plan, again))
		}
		if !slices.IsSortedFunc(plan.Settings, func(a, b model.Setting) int { return a.File.Compare(b.File) }) {
			t.Fatalf("seed %d: the settings are not ordered", seed)
		}
		var burstable int64
		for _, p := range w.node.Pods {
			if p.QoS == model.Burstable && !p.Ended {
				burstable += p.RequestMilli
			}
		}
		for i, s := range plan.Settings {
			if i > 0 && plan.Settings[i-1].File == s.File {
				t.Fatalf("seed %d: %v is decided twice", seed, s.File)
			}
			if s.Reason.Code == "" {
				t.Fatalf("seed %d: %v has no reason", seed, s.File)
			}
			if s.Knob == model.Shares && (s.Value.Number < model.MinShares || s.Value.Number > model.MaxShares) {
				t.Fatalf("seed %d: %v = %s is out of range", seed, s.File, s.Value)
			}
			if s.Dir == w.node.Tree.Burstable && s.Value.Number < model.MilliCPUToShares(burstable) {
				t.Fatalf("seed %d: the burstable class weighs %s, less than its requests", seed, s.Value)
			}
		}
		cpus := whenBusy(&w.node, &plan)
		for _, p := range w.node.Pods {
			lowered := p.Annotations.Shares != 0 && p.Annotations.Shares < model.MilliCPUToShares(p.RequestMilli)
			if p.QoS != model.Guaranteed || p.Ended || lowered || p.Self || w.node.Tree.Pods[p.UID].Idle {
				continue
			}
			// Shares are rounded down and the BestEffort class weighs 2 on top of what is allocatable.
			if got, want := cpus[p.UID], float64(p.RequestMilli)/1000; got < want*0.99-0.01 && !skewed(w, &plan) {
				t.Fatalf("seed %d: Guaranteed pod %s gets %.3f CPU, less than its request of %.3f", seed, p.Name, got, want)
			}
		}
	}
}

// skewed reports whether a Guaranteed pod's weight is out of proportion without a tenant's annotation: that of the
// agent's own pod, or of a system-critical pod. Those use little CPU, so their full use proves nothing.
func skewed(w *world, plan *model.Plan) bool {
	for _, s := range plan.Settings {
		if s.Reason.Code == model.AgentFirst || s.Reason.Code == model.CriticalPreserved {
			for _, p := range w.node.Pods {
				if p.QoS == model.Guaranteed && w.node.Tree.Pods[p.UID].Dir == s.Dir {
					return true
				}
			}
		}
	}
	return false
}

// TestEverythingIsGivenBack checks that after the last annotation is removed, every file gets the kubelet's value.
func TestEverythingIsGivenBack(t *testing.T) {
	for seed := range uint64(500) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 2)))
		w.decide()
		owned := len(w.node.Owned)
		for i, p := range w.node.Pods {
			plain := *p
			plain.Annotations, plain.Self, plain.Grant, plain.Containers = model.PodAnnotations{}, false, model.Grant{},
				slices.Clone(p.Containers)
			for j := range plain.Containers {
				plain.Containers[j].Grant = model.Grant{}
			}
			w.node.Pods[i] = &plain
		}
		plan, _ := node.Decide(w.node, w.policy, w.state)
		if len(plan.Settings) != owned {
			t.Fatalf("seed %d: %d files are owned, %d are decided", seed, owned, len(plan.Settings))
		}
		for _, s := range plan.Settings {
			if !s.Release || s.Reason.Code != model.KubeletValue && s.Reason.Code != model.RecordedValue {
				t.Fatalf("seed %d: %+v is not given back", seed, s)
			}
		}
	}
}

// TestFight checks that a writer in a loop is answered at once at first, and then once a second without end.
func TestFight(t *testing.T) {
	w := newWorld()
	if err := w.do("pod a class=Burstable request=100 weight=4096"); err != nil {
		t.Fatal(err)
	}
	w.decide()
	file := model.File{Dir: "kubepods/burstable/poda", Knob: model.Shares}
	answered := map[int64]int{} // second → writes
	for step := range int64(4000) {
		w.node.Now = w.node.Now.Add(10 * time.Millisecond)
		plan, next := node.Decide(w.node, w.policy, w.state)
		w.state, w.node.Incidents = next, nil
		i := slices.IndexFunc(plan.Settings, func(s model.Setting) bool { return s.File == file })
		if plan.Settings[i].Deferred == nil {
			answered[step/100]++
			if step < 3000 { // then it gives up
				w.node.Incidents = []model.Incident{{File: file, Kind: model.Overwritten, Value: model.Number(2)}}
			}
		} else if plan.Next.Before(w.node.Now) {
			t.Fatalf("held, but nobody would come back: %v", plan.Next)
		}
	}
	if answered[5] != 100 {
		t.Errorf("%d answers in the sixth second, want every one", answered[5])
	}
	for second := int64(15); second < 29; second++ {
		if answered[second] != 1 {
			t.Errorf("%d answers in second %d of the fight, want 1", answered[second], second)
		}
	}
	if len(w.state.Files) > 1 || len(w.state.Files) == 1 && w.state.Files[0].Fighting &&
		w.node.Now.Sub(w.state.Files[0].Last) > 11*time.Second {
		t.Errorf("the fight is over, but not forgotten: %+v", w.state)
	}
}

// TestDivide checks the share arithmetic against what it must add up to.
func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		claims := make([]model.Claim, 1+r.IntN(6))
		var limits float64
		for i := range claims {
			claims[i] = model.Claim{Weight: 1 + r.Float64()*100, Limit: r.Float64() * 4}
			limits += claims[i].Limit
		}
		amount := r.Float64() * 12
		got := model.Divide(amount, claims)
		var sum float64
		for i, g := range got {
			sum += g
			if g > claims[i].Limit+1e-9 {
				t.Fatalf("%v of %v: %v is over its limit", claims, amount, got)
			}
			for j := range got {
				// A pod below its limit has at least the other pods' amount for each unit of weight.
				if g < claims[i].Limit-1e-9 && g/claims[i].Weight < got[j]/claims[j].Weight-1e-9 {
					t.Fatalf("%v of %v: %v is unfair", claims, amount, got)
				}
			}
		}
		if math.Abs(sum-min(amount, limits)) > 1e-9 {
			t.Fatalf("%v of %v: %v adds up to %v", claims, amount, got, sum)
		}
	}
}

func BenchmarkNode250(b *testing.B) {
	w := newWorld()
	w.node.Allocatable.CPU = 128_000
	for i := range 250 {
		if err := w.setPod(fmt.Sprintf("p%03d", i),
			[]string{"class=Burstable", "request=250", fmt.Sprintf("weight=%d", 1024+i)}); err != nil {
			b.Fatal(err)
		}
	}
	w.decide()
	b.ReportAllocs()
	for b.Loop() {
		node.Decide(w.node, w.policy, w.state)
	}
}
