package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/internal/experiment"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// The agent must take the pods for what they are.
func TestIdle(t *testing.T) {
	h := &Host{cfg: HostConfig{Image: DefaultIdleImage}, node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelHostname: "n"}}}}
	for _, c := range []struct {
		asked experiment.NodePod
		class model.Class
		qos   model.QoSClass
	}{
		{experiment.NodePod{Name: "redis", RequestMilli: 1000}, model.ClassLS, model.Burstable},
		{experiment.NodePod{Name: "stress-ng"}, model.ClassLS, model.BestEffort},
		{experiment.NodePod{Name: "ffmpeg", BatchMilli: 500}, model.ClassBE, model.BestEffort},
	} {
		pod := h.idle(c.asked)
		pod.UID = "u"
		got, ok := kube.Pod(pod, "")
		if !ok || got.Class != c.class || got.QoS != c.qos || got.RequestMilli != c.asked.RequestMilli || got.Grant.RequestMilli != c.asked.BatchMilli || len(got.Annotations.Notices) > 0 {
			t.Errorf("%+v became %+v", c.asked, got)
		}
		if pod.Spec.NodeSelector[corev1.LabelHostname] != "n" {
			t.Errorf("%s may run anywhere", pod.Name)
		}
	}
}

// A pod that failed, is to go or was started again is one that did not last.
func TestUnharmed(t *testing.T) {
	for what, spoil := range map[string]func(*corev1.Pod){
		"":              func(*corev1.Pod) {},
		"evicted":       func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted" },
		"to be deleted": func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
		"started again": func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 },
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}}}
		spoil(p)
		if got := unharmed(p); got != (what == "") {
			t.Errorf("%q: unharmed is %v", what, got)
		}
	}
}
