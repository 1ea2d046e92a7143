package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestNodeCoexist runs a pod of another system on a real node, which requests what that system's manager published on
// the Node. Waterline observes, with its manager and webhook: the resource and the pod stay as they are, and so does
// every file of the pod's cgroups. TestAPICoexist has the other modes.
func TestNodeCoexist(t *testing.T) {
	oneNode(t, "objects and pods are the same there, and level 4 has every step")
	n := install(t, "--set", "manager.enabled=true", "--set-json", `policy={"mode": "Observe", "cpu": {}, "memory": {}}`)
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tryKubectl("get", "nodereport", n.name, "-o", "yaml"))
		}
	})
	const cpu, memory = v1alpha1.ResourceKoordinatorBatchCPU, v1alpha1.ResourceKoordinatorBatchMemory
	publish := func(amounts string) {
		t.Helper()
		kubectl(t, "patch", "node", n.name, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status": {"capacity": %[1]s, "allocatable": %[1]s}}`, amounts))
	}
	publish(fmt.Sprintf(`{%q: "8000", %q: "16Gi"}`, cpu, memory))
	t.Cleanup(func() { publish(fmt.Sprintf(`{%q: null, %q: null}`, cpu, memory)) })
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-batch}, value: 5000}`)
	pod := strings.Replace(n.batch("theirs", true, 1000, 64<<20), "labels: {"+v1alpha1.LabelQoS+": BE}",
		"labels: {"+v1alpha1.LabelQoSAlias+": BE}", 1)
	apply(t, strings.Replace(pod, "spec:\n", "spec:\n  priorityClassName: koord-batch\n", 1))
	kubectl(t, "wait", "--for=condition=Ready", "pod/theirs", ready)
	container, _ := n.container("theirs")
	dirs := []string{n.dir("theirs"), container}
	before := n.files(dirs)

	eventually(t, "the node reports that it observes", func() (bool, string) {
		r := object[v1alpha1.NodeReport](t, "nodereport", n.name).Status
		return r.Mode == string(model.ModeObserve), fmt.Sprintf("%+v", r)
	})
	time.Sleep(3 * time.Second) // whatever Waterline would write, it had the time
	node := object[corev1.Node](t, "node", n.name)
	for name, want := range map[corev1.ResourceName]string{cpu: "8k", memory: "16Gi"} {
		capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		if capacity.String() != want || allocatable.String() != want {
			t.Errorf("the Node has %s and %s of %s, want %s", &capacity, &allocatable, name, want)
		}
	}
	if record := node.Annotations[v1alpha1.AnnotationPublished]; record != "" {
		t.Errorf("the Node has the record %s", record)
	}
	p := object[corev1.Pod](t, "pod", "theirs")
	requests := p.Spec.Containers[0].Resources.Requests
	if len(requests) != 2 || requests.Name(cpu, "").Value() != 1000 || p.Spec.PriorityClassName != "koord-batch" ||
		p.Annotations[v1alpha1.AnnotationBatchResources] != "" || p.Status.Phase != corev1.PodRunning {
		t.Errorf("their pod requests %v, has class %s and annotations %v, and is %s", requests,
			p.Spec.PriorityClassName, p.Annotations, p.Status.Phase)
	}
	now := n.files(dirs)
	var wrong []string
	for file, was := range before {
		if now[file] != was {
			wrong = append(wrong, fmt.Sprintf("%s is %q, was %q", file, now[file], was))
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 || len(now) != len(before) || len(before) < 10 {
		t.Errorf("of %d files\n%s", len(before), strings.Join(wrong, "\n"))
	}
}
