package e2e_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	decide "github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// scheduledNode installs the chart with the scheduler, on a node with a policy that sells. The scheduler's pod is an
// ordinary one: the agent treats system-critical pods differently, and the scheduler's arithmetic leaves them out.
func scheduledNode(t *testing.T) *node {
	t.Helper()
	n := install(t, "--set", "scheduler.enabled=true,scheduler.replicas=1,scheduler.image.repository=waterline/scheduler,"+
		"scheduler.priorityClassName=")
	n.policy(selling("Enforce", "Static")) // independent of other load on this machine
	kubectl(t, "rollout", "status", "deployment/waterline-scheduler", "-n", v1alpha1.Namespace, ready)
	n.sold(false, "the node sells", func(is int64) bool { return is > 0 })
	return n
}

// scheduled makes a pod that chooses our scheduler.
func (n *node) scheduled(name, metadata, resources, script string) {
	n.t.Helper()
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, %s}
spec:
  schedulerName: waterline-scheduler
  terminationGracePeriodSeconds: 0
  containers:
    - name: c
      image: "%s"
      imagePullPolicy: Never
      command: [sh, -c, "%s"]
      resources: {%s}
`, name, metadata, cluster.BusyboxImage, script, resources))
}

// arithmetic returns the node and its pods as the scheduler's arithmetic sees them, without the agent's pod.
func (n *node) arithmetic() (place.Hierarchy, []corev1.Pod, []place.Weight) {
	n.t.Helper()
	written := object[v1alpha1.ColocationPolicy](n.t, "colocationpolicy", "test")
	policy, err := kube.Policy(&written)
	if err != nil {
		n.t.Fatal(err)
	}
	var pods []corev1.Pod
	var weights []place.Weight
	for _, p := range object[corev1.PodList](n.t, "pods", "-A", "--field-selector",
		"status.phase=Running,spec.nodeName="+n.name).Items {
		pod, ok := kube.Pod(&p, "")
		if !ok || p.Labels["app.kubernetes.io/name"] == "waterline-agent" {
			continue
		}
		ask := decide.AskOf(pod, &policy.Policy)
		pods = append(pods, p)
		weights = append(weights, place.Weight{QoS: pod.QoS, Request: pod.RequestMilli, Limit: pod.LimitMilli,
			Shares: ask.Shares, Unlimited: ask.Unlimited && ask.Shares > 0})
	}
	of := object[corev1.Node](n.t, "node", n.name)
	return place.Hierarchy{CPU: of.Status.Allocatable.Cpu().MilliValue()}, pods, weights
}

// expectShares waits until pods have the shares that the scheduler's arithmetic expects, and returns those of the
// Burstable class. Where weights do not fill the node, the class has the agent's request besides.
func (n *node) expectShares(names ...string) (burstable int64) {
	n.t.Helper()
	tree, pods, weights := n.arithmetic()
	shares, burstable := place.Effective(&tree, weights)
	found := map[string]bool{}
	for i := range pods {
		found[pods[i].Name] = true
		n.expect(n.t, n.dirOf(&pods[i]), model.Shares, shares[i])
	}
	for _, name := range names {
		if !found[name] {
			n.t.Errorf("the pod %s does not run", name)
		}
	}
	return burstable
}

// TestNodeScheduler installs the scheduler with the chart, on a node that sells. Pods that name it run: one on the CPUs
// that it chose, one with a weight, and one on batch CPU. Their cgroups have the CPUs and the shares that it expected.
// It says why a pod does not run, and lets the pod run when another one leaves its CPUs.
func TestNodeScheduler(t *testing.T) {
	oneNode(t, "the scheduler sees an agent only by its report")
	n := scheduledNode(t)
	by := func(name, metadata, resources string) {
		n.scheduled(name, metadata, resources, "grep Cpus_allowed_list /proc/self/status; sleep 1000000")
	}
	runs := func(name string) {
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	}
	const alone, one = "annotations: {waterline.io/cpu-manager: exclusive}", "requests: {cpu: 1}, limits: {cpu: 1}"
	by("own", alone, one)
	runs("own")
	hint := object[corev1.Pod](t, "pod", "own").Annotations[v1alpha1.AnnotationCPUSetHint]
	if is := n.began("own"); hint == "" || is != hint {
		t.Errorf("the pod began on the CPUs %s, and the scheduler chose %q", is, hint)
	}
	n.cpuCondition("own", corev1.ConditionTrue, model.CPUsExclusive)

	by("weighted", `annotations: {waterline.io/cpu-share: "20480"}`, "requests: {cpu: 50m}")
	runs("weighted")
	n.expect(n.t, n.layout.Class(model.Burstable), model.Shares, n.expectShares("own", "weighted"))
	const batch = "{waterline.io/batch-cpu: 100, waterline.io/batch-memory: 16Mi}"
	by("sold", "labels: {waterline.io/qos: BE}", "requests: "+batch+", limits: "+batch)
	runs("sold")

	by("refused", alone, one)
	eventually(t, "the scheduler says why a pod does not run", func() (bool, string) {
		status := object[corev1.Pod](t, "pod", "refused").Status
		for _, c := range status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				t.Log(c.Message)
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", status)
	})
	kubectl(t, "delete", "pod", "own", "--now")
	began := time.Now()
	runs("refused")
	t.Logf("the refused pod runs %.1f s after another has left its CPUs", time.Since(began).Seconds())
	second := object[corev1.Pod](t, "pod", "refused").Annotations[v1alpha1.AnnotationCPUSetHint]
	if is := n.began("refused"); second == "" || is != second {
		t.Errorf("the second pod began on the CPUs %s, and the scheduler chose %q", is, second)
	}
}
