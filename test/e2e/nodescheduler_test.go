package e2e_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestNodeScheduler installs the scheduler with the chart, on a node that sells. Pods that name it run: one on the CPUs
// that it chose, one with a weight, and one on batch CPU. It says why a pod does not run, and lets the pod run when
// another one leaves its CPUs.
func TestNodeScheduler(t *testing.T) {
	oneNode(t, "the scheduler sees an agent only by its report")
	n := install(t, "--set", "scheduler.enabled=true,scheduler.replicas=1,scheduler.image.repository=waterline/scheduler")
	n.policy(selling("Enforce", "Static")) // independent of other load on this machine
	t.Cleanup(n.dropPolicy)
	kubectl(t, "rollout", "status", "deployment/waterline-scheduler", "-n", v1alpha1.Namespace, ready)
	n.sold(false, "the node sells", func(is int64) bool { return is > 0 })

	by := func(name, metadata, resources string) {
		apply(t, fmt.Sprintf(`
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
      command: [sh, -c, "grep Cpus_allowed_list /proc/self/status; sleep 1000000"]
      resources: {%s}
`, name, metadata, cluster.BusyboxImage, resources))
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
	eventually(t, "more shares than its request gives, up to what other pods' requests leave", func() (bool, string) {
		shares := n.get(n.dir("weighted"), model.Shares)
		return shares > 51, fmt.Sprint(shares)
	})
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
