package node_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestBatchProperties checks on random nodes what must hold for batch pods on every node.
func TestBatchProperties(t *testing.T) {
	for seed := range uint64(2000) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 3)))
		plan, _ := node.Decide(w.node, w.policy, w.state)
		settings := map[model.File]model.Setting{}
		for _, s := range plan.Settings {
			settings[s.File] = s
		}
		for _, p := range w.node.Pods {
			dir := w.node.Tree.Pods[p.UID].Dir
			var shares, count int64
			for _, c := range p.Containers {
				file := func(k model.Knob) model.File { return model.File{Dir: dir + "/" + c.ID, Knob: k} }
				if s, set := settings[file(model.Shares)]; set {
					shares, count = shares+s.Value.Number, count+1
				}
				if s, set := settings[file(model.MemoryMax)]; set != (c.Grant.Memory > 0 && !p.Ended) ||
					set && s.Value.Number != c.Grant.Memory {
					t.Fatalf("seed %d: container %s of %s has the memory limit %+v, its grant is %+v", seed, c.Name, p.Name, s,
						c.Grant)
				}
				// On v1 a quota that does not fit into the pod's would be refused.
				pod, whole := settings[model.File{Dir: dir, Knob: model.Quota}]
				s, set := settings[file(model.Quota)]
				if set && whole && pod.Value.Number != model.Unlimited &&
					(s.Value.Number == model.Unlimited || s.Value.Number > pod.Value.Number) {
					t.Fatalf("seed %d: %s has the quota %s in a pod with %s", seed, c.Name, s.Value, pod.Value)
				}
			}
			s, set := settings[model.File{Dir: dir, Knob: model.Shares}]
			if batch := set && s.Reason.Code == model.BatchWeight; batch {
				if s.Value != model.Number(model.MilliCPUToShares(p.Grant.RequestMilli)) || p.QoS != model.BestEffort {
					t.Fatalf("seed %d: %s weighs %s, its grant is %+v", seed, p.Name, s.Value, p.Grant)
				}
				// Of a pod whose containers all have a weight these add up to the pod's, but for what is rounded down.
				if count == int64(len(p.Containers)) && count > 1 && math.Abs(float64(s.Value.Number-shares)) > float64(count) {
					t.Fatalf("seed %d: %s weighs %s, its containers %d together", seed, p.Name, s.Value, shares)
				}
			}
			if s, set := settings[model.File{Dir: dir, Knob: model.MemoryMax}]; set != (p.Grant.Memory > 0 && !p.Ended) ||
				set && s.Value.Number != p.Grant.Memory {
				t.Fatalf("seed %d: %s has the memory limit %+v, its grant is %+v", seed, p.Name, s, p.Grant)
			}
			if s, set := settings[model.File{Dir: dir, Knob: model.Quota}]; set && s.Reason.Code == model.BatchQuota &&
				(p.Grant.LimitMilli == 0 || p.Annotations.Quota == model.QuotaUnlimited) {
				t.Fatalf("seed %d: %s has the quota %s, its grant is %+v", seed, p.Name, s.Value, p.Grant)
			}
		}
		if s, set := settings[model.File{Dir: w.node.Tree.BestEffort, Knob: model.Shares}]; set {
			t.Fatalf("seed %d: batch raises its class to %+v", seed, s)
		}
	}
}

// TestNoBatch checks that nothing of a pod is touched for batch's sake that asks for no batch resources, whoever else
// does.
func TestNoBatch(t *testing.T) {
	for seed := range uint64(500) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 4)))
		plan, _ := node.Decide(w.node, w.policy, w.state)
		for _, p := range w.node.Pods {
			if p.Grant != (model.Grant{}) {
				continue
			}
			dir := w.node.Tree.Pods[p.UID].Dir
			for _, s := range plan.Settings {
				mine := s.Dir == dir || strings.HasPrefix(s.Dir, dir+"/")
				if mine && (s.Knob == model.MemoryMax || s.Reason.Code == model.BatchWeight || s.Reason.Code == model.BatchQuota) {
					t.Fatalf("seed %d: %s asks for nothing: %+v", seed, p.Name, s)
				}
			}
		}
	}
}

// TestNoLimitBelowUse lets what pods use go up and down beside an agent that may be late, or started anew: no limit
// that is below what its group uses is written more than once in ten seconds (where the host, which looks, does not
// write it), and each stands soon after it is not.
func TestNoLimitBelowUse(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	w := newWorld()
	for _, line := range []string{"pod a class=BestEffort job=x:1::2 job=y:1::1", "pod b class=BestEffort job=x:1::4"} {
		if err := w.do(line); err != nil {
			t.Fatal(err)
		}
	}
	stands := map[model.File]bool{}
	tried, fits := map[model.File]time.Time{}, map[model.File]time.Time{}
	for range 20000 {
		w.node.Now = w.node.Now.Add(time.Duration(r.IntN(3000)) * time.Millisecond)
		plan, next := node.Decide(w.node, w.policy, w.state)
		w.state, w.node.Incidents = next, nil
		if r.IntN(500) == 0 {
			w.state = node.State{}
			clear(tried)
		}
		for _, s := range plan.Settings {
			if s.Knob != model.MemoryMax {
				continue
			}
			used, found := w.uses[s.Dir]
			if !found || !stands[s.File] && r.IntN(20) == 0 {
				used = r.Int64N(2 * s.Value.Number)
				w.uses[s.Dir] = used
				fits[s.File] = w.node.Now
			}
			switch {
			case stands[s.File] && r.IntN(50) == 0: // somebody lifts it, and the group grows
				stands[s.File], w.uses[s.Dir], fits[s.File] = false, 2*s.Value.Number, w.node.Now
			case s.Deferred != nil:
			case used > s.Value.Number:
				if last := tried[s.File]; w.node.Now.Sub(last) < 10*time.Second {
					t.Fatalf("%v is tried %s after it was too low", s.File, w.node.Now.Sub(last))
				}
				tried[s.File] = w.node.Now
				w.node.Incidents = append(w.node.Incidents, model.Incident{
					File: s.File, Kind: model.Exceeded, Value: s.Value, Use: used,
				})
			default:
				stands[s.File] = true
			}
			if !stands[s.File] && used <= s.Value.Number && w.node.Now.Sub(fits[s.File]) > 15*time.Second {
				t.Fatalf("%v does not stand %s after it was no longer too low: %+v", s.File, w.node.Now.Sub(fits[s.File]), s)
			}
		}
	}
}
