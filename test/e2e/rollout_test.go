package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// rolled is a cluster whose nodes have real agents, and one online pod each that a policy gives a weight.
type rolled struct {
	*managed
	nodes  map[string]*fake
	pods   map[string]string // cgroup, by node
	agents map[string]*process
	uids   map[string]string
}

// newRolled makes nodes, the first of them in pool b.
func newRolled(t *testing.T, count, inB int) *rolled {
	t.Helper()
	r := &rolled{managed: newManaged(t), nodes: map[string]*fake{}, pods: map[string]string{},
		agents: map[string]*process{}, uids: map[string]string{}}
	// Under the installation's policy nothing is sold, nor is the memory of the machine that the fake nodes share.
	kubectl(t, "patch", "colocationpolicy", "default", "--type=merge", "-p", `{"spec":{"cpu":null,"memory":null}}`)
	t.Cleanup(func() {
		kubectl(t, "patch", "colocationpolicy", "default", "--type=merge", "-p", `{"spec":{"cpu":{},"memory":{}}}`)
	})
	for i := range count {
		name, pool := fmt.Sprintf("r%d", i), "pool: a"
		if i < inB {
			pool = "pool: b"
		}
		r.machine(name, pool)
		t.Cleanup(func() { kubectl(t, "delete", "nodereport", name, "--ignore-not-found") })
		f := fakeAt(t, name)
		r.pods[name] = f.pod("web-"+name, "")
		r.agents[name] = f.start()
		r.uids[name] = string(object[corev1.Node](t, "node", name).UID)
		r.nodes[name] = f
	}
	return r
}

// state is the visible effect of a policy on a node.
type state struct {
	policy string   // in the node's report
	offers bool     // in the node's report
	stands []string // our resources are on the Node
	weighs bool     // the pod has the policy's weight in the kernel, or 2048 shares; else it has its own, 512
}

var (
	clean = state{policy: "default"}
	sold  = state{offers: true, stands: []string{"batch-cpu"}, weighs: true}
)

// by returns the state under another policy.
func (s state) by(policy string) state {
	s.policy = policy
	return s
}

// follows waits until each node has the right state. An offer is published 45 seconds after there is room for it. A
// wanted state with a weight and without an offer accepts both.
func (r *rolled) follows(when string, want map[string]state) {
	r.t.Helper()
	began := time.Now()
	eventually(r.t, when, func() (bool, string) {
		is := r.look()
		for name, w := range want {
			if w.weighs && !w.offers && (is[name].policy == w.policy && is[name].weighs) {
				continue
			}
			if d := fixture.Diff(w, is[name]); d != "" {
				return false, fmt.Sprintf("%s differs (-want +got):\n%s", name, d)
			}
		}
		return true, ""
	})
	r.t.Logf("%s: after %s", when, time.Since(began).Round(100*time.Millisecond))
}

// look returns the state of each node.
func (r *rolled) look() map[string]state {
	r.t.Helper()
	reports := map[string]v1alpha1.NodeReportStatus{}
	for _, report := range object[v1alpha1.NodeReportList](r.t, "nodereports").Items {
		reports[report.Name] = report.Status
	}
	is := map[string]state{}
	for _, node := range object[corev1.NodeList](r.t, "nodes").Items {
		f := r.nodes[node.Name]
		if f == nil {
			continue
		}
		s := state{policy: reports[node.Name].Policy, stands: remains(&node), weighs: !f.is(r.pods[node.Name], model.Shares,
			512)}
		if c := reports[node.Name].CPU; c != nil {
			s.offers = !c.Offer.Batch.IsZero() || !c.Offer.Mid.IsZero()
		}
		if s.weighs && !f.is(r.pods[node.Name], model.Shares, 2048) {
			s.stands = append(s.stands, fmt.Sprint(f.get(r.pods[node.Name], model.Shares), " shares"))
		}
		is[node.Name] = s
	}
	return is
}

// remains lists our entries on a Node. Amounts must be equal in capacity and allocatable.
func remains(node *corev1.Node) []string {
	var all []string
	for name, amount := range node.Status.Capacity {
		if !isOurs(string(name)) {
			continue
		}
		short := strings.TrimPrefix(string(name), v1alpha1.Group+"/")
		if allocatable := node.Status.Allocatable[name]; allocatable.Cmp(amount) != 0 {
			short += " uneven"
		}
		all = append(all, short)
	}
	for name := range node.Status.Allocatable {
		if _, too := node.Status.Capacity[name]; !too && isOurs(string(name)) {
			all = append(all, string(name)+" allocatable only")
		}
	}
	for _, c := range node.Status.Conditions {
		if isOurs(string(c.Type)) {
			all = append(all, string(c.Type))
		}
	}
	for _, keys := range []map[string]string{node.Labels, node.Annotations} {
		for key := range keys {
			if isOurs(key) {
				all = append(all, key)
			}
		}
	}
	slices.Sort(all)
	return all
}

// isOurs reports whether a key is ours, or one that we write under Koordinator's name.
func isOurs(key string) bool {
	return strings.Contains(key, v1alpha1.Group) || strings.HasPrefix(key, "kubernetes.io/batch-") ||
		strings.HasPrefix(key, "kubernetes.io/mid-")
}

// splitting returns a name for a policy whose roll-out to 25 % includes some nodes of pool a and excludes others. It
// also returns the included nodes.
func (r *rolled) splitting(inB int) (name string, early []string) {
	for i := 0; ; i++ {
		name, early = fmt.Sprintf("roll-%d", i), nil
		for n := inB; n < len(r.nodes); n++ {
			if node := fmt.Sprintf("r%d", n); policy.Threshold(r.uids[node], name) <= 25 {
				early = append(early, node)
			}
		}
		if len(early) > 0 && len(early) < len(r.nodes)-inB {
			return name, early
		}
	}
}

// write writes a policy that sells and gives weights, with further fields of the spec.
func (r *rolled) write(name, more string) {
	r.t.Helper()
	c := bed.Kubectl(r.t.Context(), "apply", "-f", "-")
	c.Stdin = strings.NewReader(fmt.Sprintf(`
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: %s}
spec: {%s, cpu: {method: Static, waterline: "100%%", ratio: "50%%"}, podDefaults: [{selector: {}, cpuShare: 2048}]}
`, name, more))
	if out, err := c.CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %s", name, out)
	}
}

// drop deletes both policies.
func (r *rolled) drop(name string) {
	r.t.Helper()
	kubectl(r.t, "delete", "colocationpolicy", name, "pool-b", "--ignore-not-found")
}

// TestAPIRollout rolls a policy out over nodes with real agents while another policy selects some of them too. It kills
// an agent, and deletes both policies.
func TestAPIRollout(t *testing.T) {
	const count, inB = 8, 2
	r := newRolled(t, count, inB)
	name, early := r.splitting(inB)
	t.Cleanup(func() { r.drop(name) })
	r.manager()
	want := map[string]state{}
	all := func(from int, s state) {
		for i := from; i < count; i++ {
			want[fmt.Sprintf("r%d", i)] = s
		}
	}
	r.write(name, "mode: Enforce, rollout: {nodes: 0%}")
	r.write("pool-b", "mode: Enforce, priority: 5, nodeSelector: {matchLabels: {pool: b}}")
	all(0, state{weighs: true}.by("pool-b"))
	all(inB, clean)
	r.follows("at 0 %", want)
	r.write(name, "mode: Enforce, rollout: {nodes: 25%}")
	all(0, sold.by("pool-b"))
	all(inB, clean)
	for _, node := range early {
		want[node] = sold.by(name)
	}
	r.follows("at 25 %", want)

	changes := r.admin.record(t, "/api/v1/nodes")
	r.write(name, "mode: Enforce, rollout: {nodes: 100%}")
	all(inB, state{weighs: true}.by(name))
	if soak {
		all(inB, sold.by(name))
	}
	r.follows("at 100 %", want)
	r.says("pool-b", v1alpha1.ConditionOverlaps, "True", fmt.Sprintf("governs %d nodes that %s selects too", inB, name))
	r.says(name, v1alpha1.ConditionOverlaps, "True",
		fmt.Sprintf("%d nodes are governed by pool-b, which has a higher rank", inB))
	r.says("pool-b", v1alpha1.ConditionReady, "True", fmt.Sprintf("All %d governed nodes follow the policy", inB))
	for _, c := range changes() {
		var node corev1.Node
		if err := json.Unmarshal(c.object, &node); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(early, node.Name) && !slices.Contains(remains(&node), "batch-cpu") {
			t.Errorf("%s was included, but is no longer: %v", node.Name, remains(&node))
		}
	}

	t.Log("an agent is killed, and its kubelet reports that")
	r.agents["r1"].stop(os.Kill)
	r.ready("r1", false)
	r.expectWithdrawn("r1", "AgentNotReady")
	r.says("pool-b", v1alpha1.ConditionReady, "False", fmt.Sprintf("1 of %d governed nodes may sell nothing", inB))
	if is := object[v1alpha1.NodeReport](t, "nodereport", "r1").Status.Policy; is != "pool-b" {
		t.Errorf("r1 is governed by %s", is)
	}
	r.nodes["r1"].start()
	r.ready("r1", true)
	r.expectWithdrawn("r1", "")
	if soak {
		r.follows("when its agent is back", want)
	}

	t.Log("one policy is disabled, the other deleted")
	r.write(name, `mode: Disabled`)
	all(inB, clean.by(name))
	delete(want, "r1")
	r.follows("when it is disabled", want)
	r.drop(name)
	all(0, clean)
	r.follows("when they are deleted", want)
}

// says waits until a condition of a policy has a status and text.
func (r *rolled) says(policy, kind, status, message string) {
	r.t.Helper()
	eventually(r.t, policy+" has the condition "+message, func() (bool, string) {
		c := meta.FindStatusCondition(object[v1alpha1.ColocationPolicy](r.t, "colocationpolicy", policy).Status.Conditions,
			kind)
		return c != nil && string(c.Status) == status && strings.Contains(c.Message, message), fmt.Sprintf("%+v", c)
	})
}
