package kube

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/model"
)

// TestPod checks the conversion of pods, written as a user would write them.
func TestPod(t *testing.T) {
	for _, c := range []struct {
		name, pod string
		want      model.Pod
	}{
		{"sidecar, init container and overhead", `
spec:
  overhead: {cpu: 50m}
  initContainers:
  - {name: setup, resources: {requests: {cpu: "3"}}}
  - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 200m}}}
  containers:
  - {name: main, resources: {requests: {cpu: "1"}}}
`, model.Pod{QoS: model.Burstable, RequestMilli: 3050}}, // the init container of 3 runs before the sidecar of 200m starts
		{"Guaranteed", `
spec:
  containers:
  - {name: main, resources: {requests: {cpu: "2", memory: 1Gi}, limits: {cpu: "2", memory: 1Gi}}}
`, model.Pod{QoS: model.Guaranteed, RequestMilli: 2000, LimitMilli: 2000, MemoryLimit: 1 << 30}},
		{"memory: init container, sidecar and overhead", `
spec:
  overhead: {memory: 10}
  initContainers:
  - {name: setup, resources: {limits: {memory: 500}}}
  - {name: proxy, restartPolicy: Always, resources: {limits: {memory: 100}}}
  containers:
  - {name: a, resources: {limits: {memory: 200}}}
  - {name: b, resources: {limits: {memory: 50}}}
`, model.Pod{QoS: model.Burstable, MemoryLimit: 510}}, // the init container of 500 runs before the others start
		{"one container without a memory limit", `
spec:
  containers:
  - {name: a, resources: {limits: {memory: 1Gi}}}
  - {name: b}
`, model.Pod{QoS: model.Burstable}},
		{"pod-level memory only", `
spec:
  resources: {limits: {memory: 1Gi}}
  containers:
  - {name: a, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}
  - {name: b}
`, model.Pod{QoS: model.Burstable, RequestMilli: 1000, MemoryLimit: 1 << 30}},
		{"created", `
metadata: {creationTimestamp: "2026-01-02T03:04:05Z"}
spec: {containers: [{name: a}]}
`, model.Pod{QoS: model.BestEffort, Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		{"one container without a limit", `
spec:
  containers:
  - {name: a, resources: {requests: {cpu: 100m}, limits: {cpu: 100m}}}
  - {name: b, resources: {requests: {cpu: 100m}}}
`, model.Pod{QoS: model.Burstable, RequestMilli: 200}},
		{"pod-level resources", `
spec:
  resources: {requests: {cpu: "2"}, limits: {cpu: "3"}}
  containers:
  - {name: a}
  - {name: b, resources: {requests: {cpu: 100m}}}
`, model.Pod{QoS: model.Burstable, RequestMilli: 2000, LimitMilli: 3000, PodLevelCPU: true}},
		{"a pod-level resize that is put off", `
spec:
  resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}
  containers: [{name: a, resources: {limits: {memory: 1Gi}}}]
status:
  qosClass: Burstable
  conditions: [{type: PodResizePending, status: "True", reason: Deferred}]
  allocatedResources: {cpu: "2", memory: 1Gi}
  resources: {requests: {cpu: "2", memory: 1Gi}, limits: {cpu: "3", memory: 1Gi}}
`, model.Pod{
			QoS: model.Burstable, RequestMilli: 2000, LimitMilli: 4000, PodLevelCPU: true, LimitPending: true,
			MemoryLimit: 1 << 30,
		}},
		{"BestEffort", `
spec: {containers: [{name: a}]}
`, model.Pod{QoS: model.BestEffort}},
		{"critical", `
spec: {priorityClassName: system-node-critical, containers: [{name: a}]}
`, model.Pod{QoS: model.BestEffort, Critical: true}},
		{"completed", `
spec: {containers: [{name: a}]}
status: {phase: Succeeded}
`, model.Pod{QoS: model.BestEffort, Ended: true}},
		{"being deleted, still running", `
metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {containers: [{name: a}]}
status: {phase: Running, containerStatuses: [{name: a, state: {running: {}}}]}
`, model.Pod{QoS: model.BestEffort}},
		{"being deleted, all containers ended", `
metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {containers: [{name: a}]}
status: {phase: Running, containerStatuses: [{name: a, state: {terminated: {exitCode: 0}}}]}
`, model.Pod{QoS: model.BestEffort, Ended: true}},
		{"a resize that is put off", `
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4", memory: 2Gi}}}]}
status:
  qosClass: Burstable
  conditions: [{type: PodResizePending, status: "True", reason: Deferred}]
  containerStatuses: [{name: a, allocatedResources: {cpu: "1"}, resources: {requests: {cpu: "1"}, limits: {cpu: "2", memory: 1Gi}}}]
`, model.Pod{QoS: model.Burstable, RequestMilli: 1000, LimitMilli: 2000, MemoryLimit: 1 << 30}},
		{"a resize in progress", `
spec: {containers: [{name: a, resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}}]}
status:
  qosClass: Burstable
  conditions: [{type: PodResizeInProgress, status: "True"}]
  containerStatuses: [{name: a, allocatedResources: {cpu: "4"}, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]
`, model.Pod{QoS: model.Burstable, RequestMilli: 4000, LimitMilli: 4000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(c.pod), &p); err != nil {
				t.Fatal(err)
			}
			p.UID = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
			got, ok := Pod(&p, "")
			if !ok {
				t.Fatal("not taken")
			}
			if got.QoS != c.want.QoS || got.RequestMilli != c.want.RequestMilli || got.LimitMilli != c.want.LimitMilli ||
				got.Critical != c.want.Critical || got.Ended != c.want.Ended || got.MemoryLimit != c.want.MemoryLimit ||
				got.PodLevelCPU != c.want.PodLevelCPU || got.LimitPending != c.want.LimitPending || got.Created != c.want.Created {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestContainers(t *testing.T) {
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {uid: 6016fc45-0a1b-4c2d-8e3f-123456789abc}
spec:
  resources: {limits: {cpu: "3"}}
  initContainers: [{name: setup, resources: {requests: {cpu: "1"}}}, {name: proxy, restartPolicy: Always}]
  containers:
  - {name: a, resources: {limits: {cpu: 500m, memory: 1Ki}}}
  - {name: b, resources: {requests: {cpu: 0}, limits: {cpu: "2"}}}
  - {name: c, resources: {requests: {cpu: 500m}, limits: {cpu: "2"}}}
status:
  initContainerStatuses: [{name: proxy, containerID: "containerd://0123456789aa"}]
  containerStatuses: [{name: a, containerID: "cri-o://0123456789bb"}]
`), &p); err != nil {
		t.Fatal(err)
	}
	pod, _ := Pod(&p, "")
	want := []model.Container{
		{Name: "setup", Init: true, RequestMilli: 1000, LimitMilli: 3000, LeastMilli: 3000},
		{Name: "proxy", ID: "0123456789aa", LimitMilli: 3000, LeastMilli: 3000},
		{Name: "a", ID: "0123456789bb", RequestMilli: 500, LimitMilli: 500, LeastMilli: 500, MemoryLimit: 1024},
		{Name: "b", LimitMilli: 2000, LeastMilli: 2000},
		{Name: "c", RequestMilli: 500, LimitMilli: 2000, LeastMilli: 2000},
	}
	if !slices.Equal(pod.Containers, want) {
		t.Errorf("got %+v", pod.Containers)
	}
}

// TestLeast checks the CPU limit that is in force before, during and after a resize.
func TestLeast(t *testing.T) {
	for _, c := range []struct {
		name, spec, status, pod string
		container, sum          int64
	}{
		{"not started", "{limits: {cpu: 2}}", "", "", 2000, 3000},
		{"nothing under way", "{limits: {cpu: 2}}", "{limits: {cpu: 2}}", "", 2000, 3000},
		{"to less", "{limits: {cpu: 500m}}", "{limits: {cpu: 2}}", "", 500, 1500},
		{"to more", "{limits: {cpu: 2}}", "{limits: {cpu: 500m}}", "", 500, 1500},
		{"to no limit", "{}", "{limits: {cpu: 500m}}", "", 0, 0},
		{"from no limit", "{limits: {cpu: 2}}", "{}", "", 0, 0},
		{
			"to less, which is put off", "{limits: {cpu: 500m}}", "{limits: {cpu: 2}}",
			"conditions: [{type: PodResizePending, status: 'True', reason: Deferred}]", 500, 1500,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "metadata: {uid: 6016fc45-0a1b-4c2d-8e3f-123456789abc}\nspec: {containers: [{name: a, resources: " + c.spec +
				"}, {name: b, resources: {limits: {cpu: 1}}}]}\n"
			if c.status != "" {
				text += "status:\n  containerStatuses: [{name: a, resources: " + c.status + "}]\n  " + c.pod + "\n"
			}
			var p corev1.Pod
			if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			was := p.DeepCopy()
			pod, _ := Pod(&p, "")
			if pod.Containers[0].LeastMilli != c.container || pod.LeastMilli != c.sum {
				t.Errorf("%d, of the pod %d, want %d and %d", pod.Containers[0].LeastMilli, pod.LeastMilli,
					c.container, c.sum)
			}
			if diff := cmp.Diff(was, &p); diff != "" {
				t.Errorf("the pod was changed: -before +after:\n%s", diff)
			}
		})
	}
}

func TestUIDs(t *testing.T) {
	static := &corev1.Pod{}
	static.UID = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
	static.Annotations = map[string]string{configHash: "5e2f1c8a9b7d5e2f1c8a9b7d5e2f1c8a"}
	if pod, _ := Pod(static, ""); pod.UID != string(static.UID) {
		t.Errorf("an annotation alone makes a pod static: %s", pod.UID)
	}
	static.Annotations[corev1.MirrorPodAnnotationKey] = "5e2f1c8a9b7d5e2f1c8a9b7d5e2f1c8a"
	static.Spec.NodeName = "node-7"
	static.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-8"}}
	if pod, _ := Pod(static, ""); pod.Static() {
		t.Errorf("a pod of another node's is static: %s", pod.UID)
	}
	static.OwnerReferences[0].Name = "node-7"
	pod, ok := Pod(static, string(static.UID))
	if !ok || pod.UID != "5e2f1c8a9b7d5e2f1c8a9b7d5e2f1c8a" || pod.APIUID != string(static.UID) || !pod.Self {
		t.Errorf("a static pod is read as %+v", pod)
	}
	for _, uid := range []string{"", "..", "../../etc", "a/b", "x\x00"} {
		static.Annotations[configHash] = uid
		if _, ok := Pod(static, ""); ok {
			t.Errorf("UID %q was taken", uid)
		}
		bad := &corev1.Pod{}
		bad.UID = types.UID(uid)
		if _, ok := Pod(bad, ""); ok {
			t.Errorf("UID %q was taken", uid)
		}
	}
}
