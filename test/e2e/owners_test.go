package e2e_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestAPIWebhookOwners makes half of the Deployments batch. A new revision, another owner or a changed label makes no
// online pod batch and no batch pod online. A dry run leaves nothing behind.
func TestAPIWebhookOwners(t *testing.T) {
	m := newManaged(t, "--set-json",
		`policy={"mode":"Enforce","priority":-1000,"cpu":{},"memory":{},`+
			`"batchPods":[{"selector":{"matchLabels":{"app":"half"}},"owners":"50%"}]}`)
	m.manager()
	m.answering()
	const count = 6
	var all strings.Builder
	for i := range count {
		fmt.Fprintf(&all, `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: half-%[1]d, namespace: owners}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: half, one: "%[1]d"}}
  template:
    metadata: {labels: {app: half, one: "%[1]d"}}
    spec: {schedulerName: none, terminationGracePeriodSeconds: 0, containers: [{name: c, image: none, resources: {requests: {cpu: 1}}}]}
`, i)
	}
	m.namespace("owners", "waterline.io/colocation: enabled", all.String())
	pods := func(selector string) []corev1.Pod {
		return object[corev1.PodList](t, "pods", "-n", "owners", "-l", selector).Items
	}
	// revision waits until each Deployment has one pod of a revision, and returns which are batch, and their ReplicaSets.
	revision := func(env int) (batch map[string]bool, from map[string]string) {
		t.Helper()
		eventually(t, "a pod of each", func() (bool, string) {
			batch, from = map[string]bool{}, map[string]string{}
			for _, p := range pods("app=half") {
				if len(p.Spec.Containers[0].Env) == env && p.DeletionTimestamp == nil {
					n := p.Labels["one"]
					batch[n], from[n] = requestsOf(&p) == "c(batch-cpu=1000)" && p.Labels[v1alpha1.LabelQoS] == "BE",
						p.OwnerReferences[0].Name
				}
			}
			return len(batch) == count && len(pods("app=half")) == count, fmt.Sprint(batch)
		})
		return batch, from
	}
	first, old := revision(0)
	in, out := "", ""
	for n, is := range first {
		if is {
			in = n
		} else {
			out = n
		}
	}
	if in == "" || out == "" {
		t.Fatalf("of %d Deployments, these are batch: %v", count, first)
	}

	t.Log("each Deployment is rolled: new ReplicaSets, the same half")
	kubectl(t, "set", "env", "deployment", "--all", "-n", "owners", "A=b")
	second, from := revision(1)
	for n := range from {
		if from[n] == old[n] {
			t.Errorf("the pod of %s is still from %s", n, from[n])
		}
	}
	if !maps.Equal(first, second) {
		t.Errorf("batch are %v, were %v", second, first)
	}

	for _, n := range []string{in, out} {
		pod := pods("one=" + n)[0]
		look := func(when string) {
			t.Helper()
			now := object[corev1.Pod](t, "pod", pod.Name, "-n", "owners")
			if now.UID != pod.UID {
				t.Errorf("%s the pod of %s was replaced", when, n)
			}
			if d := cmp.Diff(pod.Spec, now.Spec); d != "" {
				t.Errorf("%s the spec of the pod of %s changed (-before +after):\n%s", when, n, d)
			}
			const key = v1alpha1.AnnotationBatchResources
			if was, is := pod.Annotations[key], now.Annotations[key]; is != was {
				t.Errorf("%s the pod of %s is annotated %q, was %q", when, n, is, was)
			}
		}
		if out, err := tryKubectl("label", "pod", pod.Name, "-n", "owners", "--overwrite",
			"waterline.io/qos="+map[string]string{in: "LS", out: "BE"}[n]); err == nil || !strings.Contains(out,
			"cannot be changed") {
			t.Errorf("the label of a running pod of %s was changed: %v: %s", n, err, out)
		}
		kubectl(t, "label", "pod", pod.Name, "-n", "owners", "touched=yes")
		look("with another label")
		t.Log("its owner releases it and makes another pod like the first")
		kubectl(t, "label", "pod", pod.Name, "-n", "owners", "--overwrite", "one=nobody-"+n)
		eventually(t, "it has no owner", func() (bool, string) {
			owners := object[corev1.Pod](t, "pod", pod.Name, "-n", "owners").OwnerReferences
			return len(owners) == 0, fmt.Sprint(owners)
		})
		look("without an owner")
		eventually(t, "another", func() (bool, string) { return len(pods("one="+n)) == 1, "" })
		if other := pods("one=" + n)[0]; (requestsOf(&other) == "c(batch-cpu=1000)") != first[n] {
			t.Errorf("its successor requests %s", requestsOf(&other))
		}
	}

	t.Log("a dry run changes no object that the manager may write about a pod")
	// Controllers may still write about the pods before: the status of their owners, and events.
	written := func() string {
		return kubectl(t, "get", "-A", "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.generation}`+
			`{.metadata.labels}{.metadata.annotations}{.spec}{.data}{.webhooks}{.source.component} {end}`,
			"pods,deployments,replicasets,configmaps,secrets,colocationpolicies,nodereports,mutatingwebhookconfigurations")
	}
	warnings := func() string {
		return kubectl(t, "get", "events", "-A", "-o",
			`jsonpath={range .items[?(@.source.component=="waterline-manager")]}{.metadata.name}={.count} {end}`)
	}
	before, warned := written(), warnings()
	pod, message := m.try("owners",
		`metadata: {name: dry, labels: {waterline.io/qos: BE}}, spec: {containers: [{name: c, image: none, `+
			`resources: {requests: {cpu: 1}}}]}`, "--dry-run=server")
	if pod == nil || requestsOf(pod) != "c(batch-cpu=1000)" {
		t.Fatal(message)
	}
	if d := cmp.Diff(before, written()); d != "" {
		t.Errorf("a dry run changed objects (-before +after):\n%s", d)
	}
	if d := cmp.Diff(warned, warnings()); d != "" {
		t.Errorf("a dry run made events (-before +after):\n%s", d)
	}
}
