package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// TestLeaving checks the grace period of a pod, and its annotation about evictions.
func TestLeaving(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	for name, c := range map[string]struct {
		spec, deleted *int64
		leaving       bool
		want          time.Duration
	}{
		"the default":          {nil, nil, false, 30 * time.Second},
		"of the spec":          {seconds(600), nil, false, 10 * time.Minute},
		"of the deletion":      {seconds(600), seconds(5), true, 5 * time.Second},
		"at once":              {seconds(600), seconds(0), true, 0},
		"above the maximum":    {seconds(1 << 62), nil, false, 24 * time.Hour},
		"negative":             {seconds(-1), nil, false, 0},
		"of the spec, deleted": {seconds(7), nil, true, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: "0a1b2c3d-0000-4000-8000-000000000001", DeletionGracePeriodSeconds: c.deleted},
			}
			p.Spec.TerminationGracePeriodSeconds = c.spec
			if c.leaving {
				p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			got, ok := Pod(p, "")
			if !ok || got.Grace != c.want || got.Leaving != c.leaving {
				t.Errorf("grace period %v, leaving %v", got.Grace, got.Leaving)
			}
		})
	}
	for value, want := range map[string]model.EvictPreference{
		"never": model.EvictNever, "first": model.EvictFirst, "Never": model.EvictNever, "": model.EvictNever,
		"last": model.EvictNever,
	} {
		parsed := ParseAnnotations(map[string]string{v1alpha1.AnnotationEvict: value})
		if known := value == "never" || value == "first"; parsed.Evict != want || len(parsed.Notices) == 0 != known {
			t.Errorf("%q: %q, %v", value, parsed.Evict, parsed.Notices)
		}
	}
	if parsed := ParseAnnotations(nil); parsed.Evict != "" {
		t.Errorf("without an annotation: %q", parsed.Evict)
	}
}
