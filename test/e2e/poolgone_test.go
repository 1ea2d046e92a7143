package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// testGone replaces the pod of a worker whose guard wrote down who left it, and a tenant other lines. What the guard
// wrote is explained after the pod is gone, and nothing else of its message.
func (y *yard) testGone(t *testing.T) {
	p := y.rm(t, "gone", "elastic", quick, 60*time.Second, 30*time.Minute)
	y.offer(t, "gone-0", "gone", cpuMemory(9, 17))
	y.create(t, strings.Replace(specOf("gone", p.address, `, identity: {coolDown: 1s}`), "label:",
		"guard: {image: guard}, label:", 1))
	y.active(t, "gone", 1)
	pod := y.podOf("gone-gone-0")
	will := strings.Join([]string{
		`{"at":"2026-11-25T09:00:21Z","container":"container_1_0001_01_000004","user":"alice","left":true,` +
			`"tried":[{"at":"2026-11-25T09:00:10Z","signal":"TERM","reason":"DeadlineMissed"}]}`,
		`{"at":"2026-11-25T09:00:02Z","container":"container_1_0003_01_000002","user":"carol","left":true,"exit":-106}`,
		`{"at":"2026-11-25T09:00:02Z","container":"forged_1_0003_01_000002","left":true}`, "forged", `{"container":`,
	}, "\n")
	err := y.patchPod(t.Context(), &pod, corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "guard", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: will}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	status := y.request(http.MethodPatch, poolPath+"gone", `{"spec":{"yarn":{"guard":null}}}`)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	explains(t, []string{"worker", pod.Name, "-n", poolNamespace, "--kubeconfig", bed.Kubeconfig()}, []string{
		"an earlier pod, on node gone-0, was gone at ", "container_1_0003_01_000002 of application_1_0003, user carol",
		"2026-11-25 09:00:02Z  left, ended by the ResourceManager\n",
		"container_1_0001_01_000004 of application_1_0001, user alice",
		"2026-11-25 09:00:10Z  SIGTERM DeadlineMissed\n  2026-11-25 09:00:21Z  left\n",
	})
	y.becomes(t, "gone", "another pod runs", func(p *v1alpha1.WorkerPool) bool {
		w := p.Status.Workers
		return p.Status.Active == 1 && len(w) == 1 && w[0].Pod != "" && w[0].Pod != string(pod.UID)
	})
	shows(t, "explain worker "+pod.Name+" -n "+poolNamespace, "of pool gone on node gone-0", "it has no guard",
		"an earlier pod", "forged\x00")
	y.check(t, p)
}
