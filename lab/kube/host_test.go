package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestIdle checks what the agent reads from the idle pods.
func TestIdle(t *testing.T) {
	h := &Host{cfg: HostConfig{Image: DefaultIdleImage}, node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelHostname: "n"}},
	}}
	for _, tc := range []struct {
		pod   Pod
		class model.Class
		qos   model.QoSClass
	}{
		{Pod{Name: "redis", RequestMilli: 1000}, model.ClassLS, model.Burstable},
		{Pod{Name: "stress-ng"}, model.ClassLS, model.BestEffort},
		{Pod{Name: "ffmpeg", BatchMilli: 500}, model.ClassBE, model.BestEffort},
	} {
		t.Run(tc.pod.Name, func(t *testing.T) {
			pod := h.idle(tc.pod)
			pod.UID = "u"
			got, ok := kube.Pod(pod, "")
			if !ok || got.Class != tc.class || got.QoS != tc.qos || got.RequestMilli != tc.pod.RequestMilli ||
				got.Grant.RequestMilli != tc.pod.BatchMilli || len(got.Annotations.Notices) > 0 {
				t.Errorf("%+v", got)
			}
			if pod.Spec.NodeSelector[corev1.LabelHostname] != "n" {
				t.Errorf("%s may run on any node", pod.Name)
			}
		})
	}
}

// TestUnharmed checks that a pod counts as lost that failed, is being deleted, or was started again.
func TestUnharmed(t *testing.T) {
	for change, spoil := range map[string]func(*corev1.Pod){
		"":              func(*corev1.Pod) {},
		"evicted":       func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" },
		"to be deleted": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"started again": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 },
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}}}
		spoil(p)
		if got := unharmed(p); got != (change == "") {
			t.Errorf("%q: unharmed is %v", change, got)
		}
	}
}
