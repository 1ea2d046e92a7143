package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// batchPod converts a pod with these containers and this annotation.
func batchPod(t *testing.T, spec, annotation string) *model.Pod {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte("spec: "+spec), &p); err != nil {
		t.Fatal(err)
	}
	p.UID = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
	if annotation != "" {
		p.Annotations = map[string]string{v1alpha1.AnnotationBatchResources: annotation}
	}
	pod, ok := Pod(&p, "")
	if !ok {
		t.Fatal("not taken")
	}
	return pod
}

// TestGrants checks the grants of cgroups for batch resources: of the pod, and then of each container with a grant. A
// grant has the request and limit of CPU in milli-cores, and the limit of memory in bytes.
func TestGrants(t *testing.T) {
	const main = `
  containers:
  - {name: main, resources: {requests: {waterline.io/batch-cpu: 2k, waterline.io/batch-memory: 1Gi}, limits: {waterline.io/batch-cpu: 2k, waterline.io/batch-memory: 1Gi}}}
`
	for _, c := range []struct{ name, spec, annotation, want string }{
		{"nothing", `{containers: [{name: main, resources: {requests: {cpu: 1}}}]}`, "", ""},
		{
			"nothing, whatever the annotation says", `{containers: [{name: main}]}`,
			`{"containers": {"main": {"limit": {"cpu": 1}}}}`, "",
		},
		{"no annotation", main, "", "pod 2000 0 1073741824; main 2000 0 1073741824"},
		{"as it came", main, `{"containers": {"main": {"request": {"cpu": 2000, "memory": 1073741824}, "limit": {"cpu": 3000, "memory": 2147483648}}}}`,
			"pod 2000 3000 2147483648; main 2000 3000 2147483648"},
		{"it came without limits", main, `{"containers": {"main": {"request": {"cpu": 2000, "memory": 1073741824}}}}`,
			"pod 2000 0 1073741824; main 2000 0 1073741824"},
		{"an entry that is not about it", main,
			`{"containers": {"main": {"request": {"cpu": 1000, "memory": 1073741824}, "limit": {"cpu": 9000, "memory": 2147483648}}}}`,
			"pod 2000 0 2147483648; main 2000 0 2147483648; BadAnnotation"},
		{"an entry of a container that is not there", main, `{"containers": {"other": {"request": {"cpu": 1}}}}`,
			"pod 2000 0 1073741824; main 2000 0 1073741824"},
		{"no JSON", main, `{"containers": `, "pod 2000 0 1073741824; main 2000 0 1073741824; BadAnnotation"},
		{"not in range", main, `{"containers": {"main": {"request": {"cpu": 2000}, "limit": {"cpu": -3}}}}`,
			"pod 2000 0 1073741824; main 2000 0 1073741824; BadAnnotation"},
		{"more than there is", main, `{"containers": {"main": {"request": {"cpu": 2000}, "limit": {"cpu": 70368744177665}}}}`,
			"pod 2000 0 1073741824; main 2000 0 1073741824; BadAnnotation"},
		{"summed as the kubelet does", `
  overhead: {cpu: 100m, memory: 10}
  initContainers:
  - {name: setup, resources: {requests: {waterline.io/batch-cpu: 3k, waterline.io/batch-memory: 500}}}
  - {name: proxy, restartPolicy: Always, resources: {requests: {waterline.io/batch-cpu: 200, waterline.io/batch-memory: 100}}}
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 200}}}
  - {name: b, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 50}}}
`, "", "pod 3100 0 510; setup 3000 0 500; proxy 200 0 100; a 1000 0 200; b 1000 0 50"},
		{"one container without a CPU limit", `
  containers:
  - {name: a, resources: {requests: {waterline.io/mid-cpu: 1k}}}
  - {name: b, resources: {requests: {waterline.io/mid-cpu: 1k}}}
`, `{"containers": {"a": {"request": {"cpu": 1000}, "limit": {"cpu": 1000}}, "b": {"request": {"cpu": 1000}}}}`, "pod 2000 0 0; a 1000 1000 0; b 1000 0 0"},
		{"a container without requests has no limit, so neither has the pod", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100}}}
  - {name: b}
`, "", "pod 1000 0 0; a 1000 0 100"},
		{"an injected sidecar with native requests", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100}}}
  - {name: side, resources: {requests: {cpu: 100m, memory: 10}, limits: {cpu: 200m, memory: 20}}}
`, `{"containers": {"a": {"request": {"cpu": 1000, "memory": 100}, "limit": {"cpu": 1500}}}}`, "pod 1100 1700 120; a 1000 1500 100"},
		{"a LimitRange added native limits", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100, cpu: 50m}, limits: {cpu: 100m, memory: 70}}}
`, `{"containers": {"a": {"request": {"cpu": 1000, "memory": 100}, "limit": {"cpu": 1500}}}}`, "pod 50 0 0; a 50 0 0"},
		{"the pod as a whole had a limit", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100}}}
  - {name: b, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100}}}
`, `{"pod": {"request": {"cpu": 2000, "memory": 200}, "limit": {"cpu": 3000, "memory": 300}}, "containers": {
			"a": {"request": {"cpu": 1000, "memory": 100}}, "b": {"request": {"cpu": 1000, "memory": 100}, "limit": {"cpu": 1500, "memory": 120}}}}`,
			"pod 2000 3000 300; a 1000 3000 0; b 1000 1500 120"},
		{"the annotation claims more than the pod requests", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, waterline.io/batch-memory: 100}}}
`, `{"pod": {"request": {"cpu": 1001, "memory": 101}, "limit": {"cpu": 3000, "memory": 300}}}`, "pod 1000 0 100; a 1000 0 100; BadAnnotation"},
		{"Koordinator's names, and its webhook's limits", `
  containers:
  - {name: a, resources: {requests: {kubernetes.io/batch-cpu: 1k, kubernetes.io/batch-memory: 100}, limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 150}}}
`, "", "pod 1000 2000 150; a 1000 2000 150; Koordinator"},
		{"Koordinator's names without limits", `
  containers: [{name: a, resources: {requests: {kubernetes.io/mid-cpu: 1k, kubernetes.io/mid-memory: 100}}}]
`, "", "pod 1000 0 100; a 1000 0 100; Koordinator"},
		{"Koordinator's names, and our webhook", `
  containers:
  - {name: a, resources: {requests: {kubernetes.io/batch-cpu: 1k}, limits: {kubernetes.io/batch-cpu: 1k}}}
`, `{"containers": {"a": {"request": {"cpu": 1000}}}}`, "pod 1000 0 0; a 1000 0 0; Koordinator"},
		{"absurd amounts", `
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 4E, waterline.io/batch-memory: 4E}}}
  - {name: b, resources: {requests: {waterline.io/batch-cpu: 4E, waterline.io/batch-memory: 4E}}}
`, "", "pod 70368744177664 0 70368744177664; a 70368744177664 0 70368744177664; b 70368744177664 0 70368744177664"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := batchPod(t, c.spec, c.annotation)
			var got []string
			note := func(name string, g model.Grant) {
				if g != (model.Grant{}) {
					got = append(got, fmt.Sprintf("%s %d %d %d", name, g.RequestMilli, g.LimitMilli, g.Memory))
				}
			}
			note("pod", pod.Grant)
			for _, container := range pod.Containers {
				note(container.Name, container.Grant)
			}
			for _, n := range pod.Annotations.Notices {
				got = append(got, string(n.Code))
			}
			if pod.Koordinator {
				got = append(got, "Koordinator")
			}
			if s := strings.Join(got, "; "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

// TestBought checks that the requests of a pod for each tier are summed over both spellings, as the scheduler does.
func TestBought(t *testing.T) {
	pod := batchPod(t, `
  initContainers: [{name: setup, resources: {requests: {waterline.io/batch-cpu: 3k}}}]
  containers:
  - {name: a, resources: {requests: {waterline.io/batch-cpu: 1k, kubernetes.io/batch-memory: 100, waterline.io/mid-cpu: 20}}}
  - {name: b, resources: {requests: {kubernetes.io/batch-cpu: 1k, waterline.io/batch-memory: 11, kubernetes.io/mid-memory: 7}}}
`, "")
	if want := (model.Amount{CPU: 4000, Memory: 111}); pod.Batch != want {
		t.Errorf("batch: %+v, want %+v", pod.Batch, want)
	}
	if want := (model.Amount{CPU: 20, Memory: 7}); pod.Mid != want || !pod.Koordinator {
		t.Errorf("mid: %+v, want %+v; Koordinator's names: %v", pod.Mid, want, pod.Koordinator)
	}
}

// FuzzGrants checks that no text of the annotation gives a pod without batch resources a grant, or any pod an amount
// out of range.
func FuzzGrants(f *testing.F) {
	came, err := json.Marshal(
		v1alpha1.BatchResources{
			Containers: map[string]v1alpha1.RequestedResources{
				"main": {Request: v1alpha1.ResourceAmounts{CPU: 2000}, Limit: v1alpha1.ResourceAmounts{CPU: 3000}},
			},
		},
	)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(came), "2k")
	f.Add(`{"pod": {"limit": {"memory": 70368744177664}}}`, "0")
	f.Fuzz(func(t *testing.T, annotation, cpu string) {
		var p corev1.Pod
		if yaml.Unmarshal(
			[]byte(fmt.Sprintf("spec: {containers: [{name: main, resources: {requests: {waterline.io/batch-cpu: %q}}}]}", cpu)),
			&p,
		) != nil {
			return
		}
		p.UID, p.Annotations = "0a", map[string]string{v1alpha1.AnnotationBatchResources: annotation}
		pod, _ := Pod(&p, "")
		for _, g := range []model.Grant{pod.Grant, pod.Containers[0].Grant} {
			for _, amount := range []int64{g.RequestMilli, g.LimitMilli, g.Memory} {
				if amount != clamp(amount) || pod.Batch.CPU <= 0 && amount != 0 {
					t.Errorf("%s with %q: %+v of %+v", cpu, annotation, g, pod.Batch)
				}
			}
		}
	})
}
