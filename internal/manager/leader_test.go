package manager

import (
	"strings"
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

// TestSlippedText checks that the event about a slipped pod names each cause.
func TestSlippedText(t *testing.T) {
	got := slippedText("job")
	for _, cause := range []string{"nothing was sold when it was created", "unreachable", "not batch yet"} {
		if !strings.Contains(got, cause) {
			t.Errorf("%q lacks %q", got, cause)
		}
	}
}
