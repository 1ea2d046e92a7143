package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/poll"
)

// TestNodeStall lets a batch pod run into a memory.high of its own, as a kubelet's MemoryQoS sets it, while the node
// has room. The kernel kills nobody and lets the pod have hardly any more memory. After a minute its owner has an
// event, and after five minutes the manager evicts it for this reason. A pod beside it, with the same limit, stays.
func TestNodeStall(t *testing.T) {
	if *on != "vm" || !soak {
		t.Skip("it needs cgroup v2 and takes seven minutes: level 3 has the agent's part, TestStalled")
	}
	n := install(t, "--set", "manager.enabled=true,manager.webhook.enabled=false", "--set-json",
		fmt.Sprintf(`manager.nodeSelector={"kubernetes.io/hostname": %q}`, cluster.NodeName))
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	n.policy(`{"mode": "Enforce", "cpu": {"suppression": "None"}, "protect": {"eviction": {}}}`)
	// A process above memory.high still gets a page now and then: the way to memory.max is so long that it takes longer.
	const limit = 256 << 20
	for name, script := range map[string]string{
		"stalls": "until [ -e /tmp/go ]; do sleep 0.2; done; tail /dev/zero", // keeps all that it reads
		"holds":  "sleep 1000000",
	} {
		manifest := n.manifest(name, "", fmt.Sprintf("limits: {memory: %d}", limit), false)
		apply(t, strings.NewReplacer("annotations: {}", "labels: {"+v1alpha1.LabelQoS+": BE}", "sleep 1000000",
			script).Replace(manifest))
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, ready)
		dir, _ := n.container(name)
		if err := n.writeFile(filepath.Join(n.Path, dir, "memory.high"), fmt.Append(nil, limit/10*9)); err != nil {
			t.Fatal(err)
		}
	}
	stays := n.living("holds")
	uid := object[corev1.Pod](t, "pod", "stalls").UID
	changes := newUser(t, bed.Kubeconfig()).record(t, "/api/v1/namespaces/default/pods")
	kubectl(t, "exec", "stalls", "--", "touch", "/tmp/go")

	var order []string // of what happens
	note := func(what string, happened bool) {
		if happened && !slices.Contains(order, what) {
			order = append(order, what)
			t.Log(what)
		}
	}
	var status v1alpha1.NodeReportStatus
	poll.Until(15*time.Minute, time.Second, func() bool {
		for _, e := range object[corev1.EventList](t, "events").Items {
			note("event", e.InvolvedObject.UID == uid && e.Reason == string(model.MemoryStalled))
		}
		status = object[v1alpha1.NodeReport](t, "nodereport", n.name).Status
		e := status.Eviction
		note("request", e != nil && e.UID == string(uid) && e.Reason == string(model.MemoryStalled))
		gone := !slices.ContainsFunc(object[corev1.PodList](t, "pods").Items, func(p corev1.Pod) bool {
			return p.UID == uid && p.DeletionTimestamp == nil
		})
		note("eviction", gone)
		return gone
	})
	if want := []string{"event", "request", "eviction"}; !slices.Equal(order, want) {
		t.Errorf("there were %q, want %q; the report: %+v", order, want, status)
	}
	for _, c := range changes() {
		was := decoded[corev1.Pod](t, c.object)
		for _, s := range was.Status.ContainerStatuses {
			if was.UID == uid && was.DeletionTimestamp == nil && (s.RestartCount > 0 || s.State.Terminated != nil) {
				t.Fatalf("before it was evicted, its container ended: %+v", s)
			}
		}
	}
	if n.pressed() {
		t.Error("the node is short of memory")
	}
	stays("another pod stalled")
}

// pressed reports whether the kubelet says that memory of the node is short.
func (n *node) pressed() bool {
	n.t.Helper()
	return slices.ContainsFunc(object[corev1.Node](n.t, "node", n.name).Status.Conditions,
		func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeMemoryPressure && c.Status != corev1.ConditionFalse
		})
}
