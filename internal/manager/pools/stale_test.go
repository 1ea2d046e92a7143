package pools

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/test/poll"
)

// TestEndWithoutNodes has a manager to which the API server does not show the nodes, as while one of its watches is
// refused. Pods of workers whose end has come are deleted, once the pods are up to date. The others stay.
func TestEndWithoutNodes(t *testing.T) {
	yes := true
	pod := func(name string, owner types.UID, end time.Time) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "yarn", Name: name, UID: types.UID(name),
			Annotations:     map[string]string{v1alpha1.AnnotationPoolMarks: encode(pool.Marks{Registered: true, End: end})},
			OwnerReferences: []metav1.OwnerReference{{Kind: "WorkerPool", UID: owner, Controller: &yes}},
		}}
	}
	over, later := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	r, f := apiRound(t, map[string]any{"/namespaces/yarn/pods": corev1.PodList{Items: []corev1.Pod{
		pod("over", "u1", over), pod("later", "u1", later), pod("without-end", "u1", time.Time{}), pod("other", "u2", over),
	}}})
	k := r.k
	k.c.o.Nodes = func() (map[string]Node, bool) { return nil, false }
	if err := k.c.pools["yarn"].Add(r.p); err != nil {
		t.Fatal(err)
	}
	changes := func() (all []string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for change := range f.changes {
			all = append(all, change)
		}
		return all
	}
	if !k.round(t.Context()) || len(changes()) > 0 {
		t.Errorf("without pods that are up to date, the changes are %q", changes())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { k.c.pods["yarn"].Poll(ctx, k.c.o.Core, "pods", "yarn", time.Second, &corev1.PodList{}) })
	defer following.Wait()
	defer cancel()
	poll.Until(time.Minute, 100*time.Millisecond, func() bool { return k.round(t.Context()) && len(changes()) > 0 })
	if got := changes(); !slices.Equal(got, []string{"DELETE /namespaces/yarn/pods/over force="}) {
		t.Errorf("the changes are %s", strings.Join(got, ", "))
	}
}
