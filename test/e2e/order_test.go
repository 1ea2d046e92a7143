package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// condition returns a condition of a pod, an empty one if it has none of the type.
func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// TestAPIOrder has Kubernetes' scheduler choose between batch pods that the webhook admits and online pods without a
// class, on a node that takes one pod. The online pod is placed before a batch pod that waits for longer, and preempts
// one that runs. No batch pod preempts another.
func TestAPIOrder(t *testing.T) {
	m := newManaged(t)
	m.manager()
	m.answering()
	apply(t, `{apiVersion: v1, kind: Node, metadata: {name: order, labels: {order: "true"}}}`)
	const has = `{"pods":"1","cpu":"4","memory":"8Gi","waterline.io/batch-cpu":"4000","waterline.io/mid-cpu":"4000"}`
	m.patch(nodes+"order/status", `{"status":{"capacity":`+has+`,"allocatable":`+has+`}}`)
	pod := func(name, labels, class string) {
		apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {%s}}
spec:
  priorityClassName: %q
  nodeSelector: {order: "true"}
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: none, resources: {requests: {cpu: 100m}, limits: {cpu: 100m}}}]
`, name, labels, class))
	}
	get := func(name string) *corev1.Pod {
		p := object[corev1.Pod](t, "pod", name)
		return &p
	}
	placed := func(name string) {
		t.Helper()
		eventually(t, name+" is placed", func() (bool, string) {
			p := get(name)
			return p.Spec.NodeName == "order", fmt.Sprint(p.Status.Conditions)
		})
	}
	// The scheduler tries to preempt before it reports that a pod cannot be placed.
	waits := func(name string) *corev1.Pod {
		t.Helper()
		eventually(t, name+" waits", func() (bool, string) {
			c := condition(get(name), corev1.PodScheduled)
			return c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "Too many pods"), fmt.Sprint(c)
		})
		return get(name)
	}
	const be = v1alpha1.LabelQoS + ": BE"

	control(t, "stop", "scheduler")
	t.Cleanup(func() { control(t, "restart", "scheduler") })
	pod("spill", be, "")
	pod("web", "", "")
	if p := get("spill").Spec.Priority; *p != v1alpha1.PriorityBatch {
		t.Errorf("the batch pod has the priority %d", *p)
	}
	control(t, "start", "scheduler")
	placed("web")
	if p := waits("spill"); p.Status.NominatedNodeName != "" || leaves(t, "web") {
		t.Errorf("the batch pod preempts: %+v", p.Status)
	}

	kubectl(t, "delete", "pod", "web", "--grace-period=0", "--force")
	placed("spill")
	pod("worker", be, v1alpha1.PriorityClassWorker)
	pod("mid", be, v1alpha1.PriorityClassMid)
	for name, priority := range map[string]int32{"worker": v1alpha1.PriorityWorker, "mid": v1alpha1.PriorityMid} {
		p := waits(name)
		if *p.Spec.Priority != priority || p.Status.NominatedNodeName != "" || leaves(t, "spill") {
			t.Errorf("%s, with the priority %d, preempts another batch pod: %+v", name, *p.Spec.Priority, p.Status)
		}
	}

	pod("web-2", "", "")
	eventually(t, "the online pod preempts the batch pod", func() (bool, string) {
		c := condition(get("spill"), corev1.DisruptionTarget)
		return leaves(t, "spill") && c.Reason == "PreemptionByScheduler", fmt.Sprint(get("web-2").Status)
	})
}
