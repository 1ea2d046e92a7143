package kube

import (
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestPause checks that the annotation disables a policy, also one whose object has a mistake, and that a mistake keeps the
// newest valid content, not that of the last list.
func TestPause(t *testing.T) {
	c := NewCluster(nil, nil, "n", "", false, slog.New(slog.DiscardHandler))
	policy := func(mode string, priority int32, pause map[string]string) *v1alpha1.ColocationPolicy {
		return &v1alpha1.ColocationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: pause},
			Spec:       v1alpha1.ColocationPolicySpec{Mode: mode, Priority: priority},
		}
	}
	paused, not := map[string]string{v1alpha1.AnnotationPause: "true"}, map[string]string{v1alpha1.AnnotationPause: "false"}
	for _, step := range []struct {
		name     string
		object   *v1alpha1.ColocationPolicy
		mode     model.Mode
		priority int64
	}{
		{"enforcing", policy("Enforce", 1, nil), model.ModeEnforce, 1},
		{"paused", policy("Enforce", 1, paused), model.ModeDisabled, 1},
		{"not paused", policy("Enforce", 2, not), model.ModeEnforce, 2},
		{"with a mistake", policy("enforce", 3, nil), model.ModeEnforce, 2},
		{"with a mistake, and paused", policy("enforce", 3, paused), model.ModeDisabled, 2},
		{"corrected", policy("Enforce", 4, nil), model.ModeEnforce, 4},
	} {
		c.setPolicy(step.object)
		if got := c.policies["p"]; got.Policy.Mode != step.mode || got.Priority != step.priority {
			t.Errorf("%s: mode %s, priority %d, want %s, %d", step.name, got.Policy.Mode, got.Priority, step.mode, step.priority)
		}
	}
}
