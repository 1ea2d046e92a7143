package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/model"
)

// sparkOnKoordinator is a driver and two executors as Spark makes them for Koordinator: with its labels, its
// PriorityClass and its resource names. %s is the namespace.
const sparkOnKoordinator = `
apiVersion: v1
kind: Pod
metadata:
  name: pi-driver
  namespace: %[1]s
  labels: {spark-app-selector: spark-1, spark-role: driver, koordinator.sh/qosClass: BE, koordinator.sh/priority: "1000"}
spec:
  automountServiceAccountToken: false
  priorityClassName: koord-batch
  containers:
    - name: spark-kubernetes-driver
      image: none
      resources:
        requests: {kubernetes.io/batch-cpu: "250", kubernetes.io/batch-memory: 64Mi}
        limits: {kubernetes.io/batch-cpu: "250", kubernetes.io/batch-memory: 64Mi}
` + sparkExecutor + `
metadata: {name: pi-exec-1, namespace: %[1]s, labels: {spark-app-selector: spark-1, spark-role: executor, spark-exec-id: "1", koordinator.sh/qosClass: BE}}
` + sparkExecutor + `
metadata: {name: pi-exec-2, namespace: %[1]s, labels: {spark-app-selector: spark-1, spark-role: executor, spark-exec-id: "2", koordinator.sh/qosClass: BE}}
`

const sparkExecutor = `
---
apiVersion: v1
kind: Pod
spec:
  automountServiceAccountToken: false
  priorityClassName: koord-batch
  containers:
    - name: spark-kubernetes-executor
      image: none
      resources:
        requests: {kubernetes.io/batch-cpu: "125", kubernetes.io/batch-memory: "100000001"}
        limits: {kubernetes.io/batch-cpu: "125", kubernetes.io/batch-memory: "100000001"}
`

// TestAPISpark runs a Koordinator manifest of Spark without changes. It is admitted as written, placed by the stock
// scheduler, and has its weight and limits on its node.
func TestAPISpark(t *testing.T) {
	const half = `"method":"Static","waterline":"100%","ratio":"50%"`
	m := newManaged(t, "--set-json",
		`policy={"mode":"Enforce","priority":-1000,"cpu":{`+half+`,"suppression":"None"},"memory":{`+half+`}}`,
		"--set", "resourceNames=Koordinator")
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-batch}, value: 5000}`)
	m.machine("spark", "")
	t.Cleanup(func() { kubectl(t, "delete", "nodereport", "spark", "--ignore-not-found") })
	f := fakeAt(t, "spark")
	f.serves = []string{"--listen=", "--local=127.0.0.1:19465", "--koordinator-names"}
	// The offer exists already: an agent would wait 45 seconds before it sells.
	const has = `{"pods":"110","memory":"8Gi","kubernetes.io/batch-cpu":"2000","kubernetes.io/batch-memory":"2Gi"}`
	m.patch(nodes+"spark/status",
		`{"status":{"allocatable":`+has+`,"capacity":`+has+`,"conditions":[{"type":"Ready","status":"True",`+
			`"reason":"Test"}]}}`)
	m.manager("--koordinator-names")
	m.answering()

	m.namespace("spark", "", "")
	asWritten := map[string]corev1.Pod{}
	c := bed.Kubectl(t.Context(), "create", "--dry-run=server", "-o", "json", "-f", "-")
	c.Stdin = strings.NewReader(fmt.Sprintf(sparkOnKoordinator, "waterline-system")) // in a namespace without the webhook
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range documents[corev1.Pod](t, out) {
		asWritten[p.Name] = p
	}
	apply(t, fmt.Sprintf(sparkOnKoordinator, "spark"))
	for _, p := range object[corev1.PodList](t, "pods", "-n", "spark").Items {
		want := asWritten[p.Name]
		p.Spec.NodeName = "" // the scheduler may have placed it already
		if d := cmp.Diff(want.Spec, p.Spec) + cmp.Diff(want.Labels, p.Labels); d != "" {
			t.Errorf("%s was changed by its admission (-written +is):\n%s", p.Name, d)
		}
	}

	t.Log("the pods are placed, and with an agent, the kernel limits them to their requests")
	dirs := map[string]string{}
	all := []struct {
		name                  string
		shares, quota, memory int64
	}{
		{"pi-driver", 256, 25_000, 64 << 20},
		{"pi-exec-1", 128, 12_500, 100_000_001},
		{"pi-exec-2", 128, 12_500, 100_000_001},
	}
	for _, want := range all {
		var pod corev1.Pod
		eventually(t, want.name+" is placed", func() (bool, string) {
			pod = object[corev1.Pod](t, "pod", want.name, "-n", "spark")
			return pod.Spec.NodeName == "spark", fmt.Sprintf("%+v", pod.Status.Conditions)
		})
		if pod.Spec.SchedulerName != corev1.DefaultSchedulerName || pod.Status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("%s is %s, placed by %s", want.name, pod.Status.QOSClass, pod.Spec.SchedulerName)
		}
		dir := f.layout.Pod(model.BestEffort, string(pod.UID))
		f.mkdir(dir)
		f.set(t, dir, model.Shares, model.MinShares)
		dirs[want.name] = dir
	}
	f.start()
	for _, want := range all {
		dir := dirs[want.name]
		f.expect(t, dir, model.Shares, want.shares)
		f.expect(t, dir, model.Quota, want.quota)
		f.expect(t, dir, model.MemoryMax, want.memory-want.memory%int64(os.Getpagesize()))
	}
	m.expectAmount("spark", koordinators, "500") // the bound amount stays on the Node
	explains(t, []string{"pod", "pi-driver", "-n", "spark", "--agent", "127.0.0.1:19465"},
		[]string{"BestEffort", "BatchWeight"})
}
