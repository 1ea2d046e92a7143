package kube

import (
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestPause checks that the annotation pauses a policy, also one whose object has a mistake, and that a mistake keeps
// the newest valid content in force, not that of the last list.
func TestPause(t *testing.T) {
	c := NewCluster(nil, nil, "n", "", false, slog.New(slog.DiscardHandler))
	policy := func(mode v1alpha1.PolicyMode, priority int32, pause string) *v1alpha1.ColocationPolicy {
		p := &v1alpha1.ColocationPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.ColocationPolicySpec{Mode: mode, Priority: priority},
		}
		if pause != "" {
			p.Annotations = map[string]string{v1alpha1.AnnotationPause: pause}
		}
		return p
	}
	for _, step := range []struct {
		name     string
		object   *v1alpha1.ColocationPolicy
		paused   bool
		priority int64
	}{
		{"enforcing", policy("Enforce", 1, ""), false, 1},
		{"paused", policy("Enforce", 1, "true"), true, 1},
		{"not paused", policy("Enforce", 2, "false"), false, 2},
		{"with a mistake", policy("enforce", 3, ""), false, 2},
		{"with a mistake, and paused", policy("enforce", 3, "true"), true, 2},
		{"with a mistake, and no longer paused", policy("enforce", 3, ""), false, 2},
		{"corrected", policy("Enforce", 4, ""), false, 4},
	} {
		c.setPolicy(step.object)
		if got := c.policies["p"]; got.Paused != step.paused || got.Priority != step.priority {
			t.Errorf("%s: paused %t, priority %d, want %t, %d", step.name, got.Paused, got.Priority, step.paused,
				step.priority)
		}
	}
}
