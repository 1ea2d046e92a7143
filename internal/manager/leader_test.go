package manager

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
)

// TestWorkerSold checks that the pod of a pool's worker is one to create only while something is sold.
func TestWorkerSold(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelQoS: "BE"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "worker"}}},
	}
	for _, rules := range []admit.Rules{{Ours: true}, {Koordinator: true}} {
		if batch, sold := worker(rules, pod); !sold || batch == pod {
			t.Errorf("%+v: sold %v, changed %v", rules, sold, batch != pod)
		}
	}
	if batch, sold := worker(admit.Rules{}, pod); sold || batch != pod {
		t.Errorf("nothing is sold, and got sold %v, changed %v", sold, batch != pod)
	}
}
