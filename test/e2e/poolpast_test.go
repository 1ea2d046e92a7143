package e2e_test

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// podPast is what earlier versions of a pod said. The marks of the latest one may lack it: once the ResourceManager
// answers again and shows that everything fits, a deadline for which the pod was deleted is over.
type podPast struct {
	deleted pool.Marks // when it was deleted, or was given less time; zero: it was not
	grace   *int64     // that it got then
	until   time.Time  // the last deadline of a shrink
	marked  time.Time  // when that was written, by the API server's clock
}

// pastStore is the store of a yard's pods. Unlike its rounds, it sees each version of a pod.
type pastStore struct {
	cache.Store
	y *yard
}

// Add implements [cache.ReflectorStore].
func (s pastStore) Add(o any) error {
	s.y.remember(o.(*corev1.Pod))
	return s.Store.Add(o)
}

// Update implements [cache.ReflectorStore].
func (s pastStore) Update(o any) error {
	s.y.remember(o.(*corev1.Pod))
	return s.Store.Update(o)
}

// Replace implements [cache.ReflectorStore].
func (s pastStore) Replace(all []any, version string) error {
	for _, o := range all {
		s.y.remember(o.(*corev1.Pod))
	}
	return s.Store.Replace(all, version)
}

// remember keeps what a version of a pod says.
func (y *yard) remember(pod *corev1.Pod) {
	y.mu.Lock()
	defer y.mu.Unlock()
	past, m := y.pasts[pod.UID], marksOf(pod)
	if g := pod.DeletionGracePeriodSeconds; g != nil && (past.grace == nil || *g < *past.grace) {
		past.deleted, past.grace = m, g
	}
	if !m.Until.IsZero() && !m.Until.Equal(past.until) {
		past.until, past.marked = m.Until, markedAt(pod)
	}
	y.pasts[pod.UID] = past
}

// markedAt returns when the marks of a pod were written, to the second.
func markedAt(pod *corev1.Pod) (at time.Time) {
	for _, f := range pod.ManagedFields {
		if f.Subresource == "" && f.Time != nil && f.FieldsV1 != nil && f.Time.After(at) &&
			bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:`+v1alpha1.AnnotationPoolMarks+`"`)) {
			at = f.Time.Time
		}
	}
	return at
}
