package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestNodeSell sells the slack of a real node. Ordinary pods request it, and the stock scheduler places them. Whatever
// happens to the offer afterwards, the kubelet fails none of them, also when it restarts meanwhile. With -short, a pod
// only buys and runs.
func TestNodeSell(t *testing.T) {
	oneNode(t, "offers are the same there, and level 3 sets the clock")
	n := seller(t)
	n.sub("First", (*node).testFirstOffer)
	if testing.Short() {
		n.sub("FirstInstruction", (*node).testFirstInstruction)
		n.sub("Bought", func(n *node) { n.buy(false) })
		return
	}
	if *on == "vm" {
		n.sub("Clock", (*node).testClock)
	}
	n.sub("Size", (*node).testSize)
	n.sub("Lost", (*node).testLost)
	n.sold(false, "the node offers something", func(cpu int64) bool { return cpu >= 200 })
	n.sub("Ours", func(n *node) { n.testSold(false, (*node).fall) })
	if *on == "vm" {
		n.sub("Windows", (*node).testWindows)
		n.sub("Koordinator", func(n *node) { n.testSold(true, (*node).fall) })
		return
	}
	n.sub("Race", (*node).testRace)
	if soak { // Race uses Koordinator's names too
		n.sub("Koordinator", func(n *node) { n.testSold(true, (*node).fallAway) })
	}
}

// seller returns a node with a manager, whose policy sells.
func seller(t *testing.T) *node {
	t.Helper()
	// The manager is a pod like any other, and slow where the machine is emulated. So it runs on this machine's node.
	values := []string{"--set", "manager.enabled=true", "--set-json",
		fmt.Sprintf(`manager.nodeSelector={"kubernetes.io/hostname": %q}`, cluster.NodeName)}
	if !soak {
		values = append(values, "--set", "manager.extraArgs={--back-after=5s}")
	}
	n := install(t, values...)
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	n.policy(selling("Enforce", "Static"))
	return n
}

// testFirstOffer checks that a node that has not sold since mode Disabled offers all that method Static sells at once:
// 100 % of its CPUs. An offer that grows begins with a tenth of them.
func (n *node) testFirstOffer() {
	n.policy(selling("Disabled", "Static"))
	eventually(n.t, "the node reports mode Disabled", func() (bool, string) {
		mode := object[v1alpha1.NodeReport](n.t, "nodereport", n.name).Status.Mode
		return mode == v1alpha1.ModeDisabled, string(mode)
	})
	n.sold(false, "the node sells nothing", func(cpu int64) bool { return cpu == 0 })
	admin := newUser(n.t, bed.Kubeconfig())
	onNode, reported := admin.record(n.t, "/api/v1/nodes"), admin.record(n.t, strings.TrimSuffix(reports, "/"))
	n.policy(selling("Enforce", "Static"))
	n.sold(false, "the node makes an offer", func(cpu int64) bool { return cpu > 0 })
	capacity := int64(0)
	eventually(n.t, "the node reports its offer", func() (bool, string) {
		status := object[v1alpha1.NodeReport](n.t, "nodereport", n.name).Status
		if status.CPU != nil {
			capacity = status.CPU.Capacity.MilliValue()
		}
		return status.CPU != nil && status.CPU.Offer.Batch.Sign() > 0, fmt.Sprintf("%+v", status)
	})
	first := func(of string, changes func() []change, offer func(content []byte) int64) {
		n.t.Helper()
		is := int64(0)
		// A watch may be behind what a GET shows.
		eventually(n.t, "a change of the "+of+" has an offer", func() (bool, string) {
			all := changes()
			for _, c := range all {
				if c.name != n.name {
					continue
				}
				if is = offer(c.object); is > 0 {
					return true, ""
				}
			}
			return false, fmt.Sprintf("none of %d has one", len(all))
		})
		if is != capacity {
			n.t.Errorf("the first offer in the %s is %d of %d mCPU, not the whole", of, is, capacity)
		}
	}
	first("Node", onNode, func(content []byte) int64 {
		status := decoded[corev1.Node](n.t, content).Status
		return status.Allocatable.Name(v1alpha1.ResourceBatchCPU, resource.DecimalSI).Value()
	})
	first("NodeReport", reported, func(content []byte) int64 {
		status := decoded[v1alpha1.NodeReport](n.t, content).Status
		if status.CPU == nil {
			return 0
		}
		return status.CPU.Offer.Batch.MilliValue()
	})
}

// testSold walks one batch pod through all changes of an offer. Function fall makes the offer fall to the bound amount.
func (n *node) testSold(koordinator bool, fall func(n *node, koordinator bool, bound int64)) {
	n.names(koordinator)
	name, cpu := n.buy(koordinator)
	lives := n.living(name)

	n.t.Log("online pods need the node: only the bound amount is left")
	fall(n, koordinator, cpu)
	n.mustRestart("kubelet")
	n.ready()
	n.steady(koordinator, cpu)
	lives("the kubelet restarts while the offer is small")

	n.t.Log("another writer changes the Node")
	key := v1alpha1.SlackResource("batch", false, koordinator)
	patch := fmt.Sprintf(`{"status":{"capacity":{%q:"0"},"allocatable":{%q:"77"}}}`, key, key)
	kubectl(n.t, "patch", "node", n.name, "--subresource=status", "--type=merge", "-p", patch)
	n.sold(koordinator, "the agent restores the Node", func(sold int64) bool { return sold == cpu })

	n.t.Log("the policy is disabled")
	left := int64(0)
	if koordinator {
		left = cpu // with these names, a restarting kubelet fails pods that request more than the Node has
	}
	n.policy(selling("Disabled", "Realtime"))
	n.sold(koordinator, "the offer is withdrawn", func(sold int64) bool { return sold == left })
	n.mustRestart("kubelet")
	n.ready()
	n.steady(koordinator, left)
	lives("the kubelet restarts after the offer was withdrawn")

	kubectl(n.t, "delete", "pod", "online", name, "--grace-period=0", "--force", "--wait")
	n.sold(koordinator, "the Node has no batch CPU", func(sold int64) bool { return sold == 0 })
	eventually(n.t, "the node reports mode Disabled", func() (bool, string) {
		report := object[v1alpha1.NodeReport](n.t, "nodereport", n.name)
		owners := report.OwnerReferences
		return report.Status.Mode == v1alpha1.ModeDisabled && len(owners) == 1 && owners[0].Name == n.name,
			fmt.Sprintf("%+v", report)
	})
}

// buy makes a batch pod, which the stock scheduler places on the node and the kubelet admits and runs.
func (n *node) buy(koordinator bool) (name string, cpu int64) {
	n.t.Helper()
	name, cpu = "batch", 100
	n.policy(selling("Enforce", "Static")) // independent of other load on this machine
	n.sold(koordinator, "the node has an offer", func(free int64) bool { return free >= 2*cpu })
	n.sold(!koordinator, "the other names are gone", func(free int64) bool { return free == 0 })
	apply(n.t, n.batch(name, koordinator, cpu, 64<<20))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	pod := object[corev1.Pod](n.t, "pod", name)
	if pod.Spec.NodeName != n.name || pod.Spec.SchedulerName != corev1.DefaultSchedulerName {
		n.t.Fatalf("the pod is on %q, placed by %q", pod.Spec.NodeName, pod.Spec.SchedulerName)
	}
	return name, cpu
}

// fall makes the offer fall to the bound amount, by an online pod that uses all CPUs.
func (n *node) fall(koordinator bool, bound int64) {
	n.policy(selling("Enforce", "Realtime"))
	n.run("online", "", "requests: {cpu: 50m}", true)
	started := time.Now()
	n.sold(koordinator, "only the bound amount", func(sold int64) bool { return sold == bound })
	n.t.Logf("%s after the online pod was ready", time.Since(started).Round(10*time.Millisecond))
}

// selling returns the spec of a policy that sells CPU by a method. It does not suppress batch, so that a pod has what
// it requested, independent of other load on the machine.
func selling(mode, method string) string {
	ratio := ""
	if method == "Static" {
		ratio = `, "ratio": "100%"`
	}
	return fmt.Sprintf(`{"mode": %q, "cpu": {"method": %q, "waterline": "100%%", "suppression": "None"%s}, `+
		`"memory": {"method": "Realtime", "waterline": "90%%"}}`, mode, method, ratio)
}

// names has agent and manager sell under Koordinator's names, or under ours. They restart if that is a change.
func (n *node) names(koordinator bool) {
	n.t.Helper()
	names := "Waterline"
	if koordinator {
		names = "Koordinator"
	}
	helm(n.t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values",
		"--set", "resourceNames="+names)
	for _, what := range []string{"daemonset/waterline-agent", "deployment/waterline-manager"} {
		kubectl(n.t, "rollout", "status", what, "-n", "waterline-system", ready)
	}
}

// policy writes the spec of a policy that governs the node, and that allows every pod what it requests. It stays until
// the test that wrote the first one ends. A subtest that does not change it need not wait for the settling time until
// something is sold again.
func (n *node) policy(spec string) {
	n.t.Helper()
	if kubectl(n.t, "get", "colocationpolicy", "test", "--ignore-not-found") == "" {
		n.t.Cleanup(func() { kubectl(n.t, "delete", "colocationpolicy", "test") })
	}
	c := bed.Kubectl(n.t.Context(), "apply", "-f", "-")
	c.Stdin = strings.NewReader(fmt.Sprintf(`{"apiVersion": "waterline.io/v1alpha1", "kind": "ColocationPolicy", `+
		`"metadata": {"name": "test"}, "spec": %s}`, strings.Replace(spec, "{", "{"+allowAll+", ", 1)))
	if out, err := c.CombinedOutput(); err != nil {
		n.t.Fatalf("applying: %v: %s", err, out)
	}
}

// batch returns the manifest of a pod that requests slack and sleeps.
func (n *node) batch(name string, koordinator bool, cpu, memory int64) string {
	resources, err := json.Marshal(map[string]string{
		v1alpha1.SlackResource("batch", false, koordinator): fmt.Sprint(cpu),
		v1alpha1.SlackResource("batch", true, koordinator):  fmt.Sprint(memory),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	both := fmt.Sprintf("requests: %s, limits: %s", resources, resources)
	return strings.Replace(n.manifest(name, "", both, false), "annotations: {}", "labels: {"+v1alpha1.LabelQoS+": BE}", 1)
}

// published returns the amount of a resource on the Node; -1 if capacity and allocatable differ.
func (n *node) published(memory bool, tier model.Tier, koordinator bool) int64 {
	n.t.Helper()
	status := object[corev1.Node](n.t, "node", n.name).Status
	name := corev1.ResourceName(v1alpha1.SlackResource(string(tier), memory, koordinator))
	capacity, allocatable := status.Capacity[name], status.Allocatable[name]
	if capacity.Cmp(allocatable) != 0 {
		return -1
	}
	return capacity.Value()
}

// sold waits until the batch CPU on the Node is right.
func (n *node) sold(koordinator bool, what string, right func(int64) bool) {
	n.t.Helper()
	eventually(n.t, what, func() (bool, string) {
		is := n.published(false, model.TierBatch, koordinator)
		return right(is), fmt.Sprint(is)
	})
}

// steady checks for some time that the Node has at least the bound amount of batch CPU, which a starting kubelet
// requires.
func (n *node) steady(koordinator bool, least int64) {
	n.t.Helper()
	for range 20 {
		time.Sleep(200 * time.Millisecond)
		if is := n.published(false, model.TierBatch, koordinator); is >= 0 && is < least {
			n.t.Logf("for a moment the Node had %d of %d", is, least)
		}
	}
	n.sold(koordinator, "the bound amount is published", func(is int64) bool { return is >= least })
}

// ready waits until the kubelet reports the node as ready, which it does again after a start.
func (n *node) ready() {
	n.t.Helper()
	kubectl(n.t, "wait", "--for=condition=Ready", "node/"+n.name, ready)
}
