package node_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// TestFollows checks that every pod is watched whose files, or whose containers' files, a plan has written; and that
// group identities alone have none watched where the kernel has none.
func TestFollows(t *testing.T) {
	identified := 0
	for seed := range uint64(500) {
		w := randomMachine(rand.New(rand.NewPCG(seed, 60)))
		n, p := &w.node, &w.policy
		for i := range n.Pods {
			if seed%2 == 0 {
				n.Pods[i].Annotations.CPUs = "" // otherwise every pod is watched in nearly all of them
			}
		}
		follows := func(plan model.Plan, pod *model.Pod) bool {
			return model.FindDetail(plan.Observe.Pods, pod.UID).Files
		}
		plan, _ := node.Decide(*n, *p, w.state)
		without := *p
		without.Weight.Batch = model.BatchByWeight
		other, _ := node.Decide(*n, without, w.state)
		for _, pod := range n.Pods {
			dir := n.Tree.Pods[pod.UID].Dir
			for _, s := range plan.Settings {
				if s.Release || s.Dir != dir && !strings.HasPrefix(s.Dir, dir+"/") {
					continue
				}
				if s.Knob == model.Identity {
					identified++
				}
				if !follows(plan, pod) {
					t.Fatalf("seed %d: pod %s has %s in %s and is not watched", seed, pod.Name, s.Knob, s.Dir)
				}
			}
			if n.Tree.NoIdentity != "" && follows(plan, pod) != follows(other, pod) {
				t.Fatalf("seed %d: pod %s is watched for what the kernel has not", seed, pod.Name)
			}
		}
	}
	if identified == 0 {
		t.Error("no pod had an identity")
	}
}
