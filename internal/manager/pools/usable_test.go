package pools

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

// TestUsable edits the spec of a pool to one that cannot be used. The pool goes on by the last one that could, which a
// status has, also in another replica; without one it does nothing. The decision knows.
func TestUsable(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	r.k.status.ValidSpec = specText(&r.p.Spec)
	used, read, err := r.k.usable(r.p)
	if err != nil || used != r.p || read.Floor != r.read.Floor {
		t.Errorf("a valid spec: %+v, %v", used, err)
	}
	bad := r.p.DeepCopy()
	bad.Spec.Size.Ceiling = &v1alpha1.ResourceSpec{CPU: resource.MustParse("1m"), Memory: resource.MustParse("1")}
	bad.Spec.YARN.ResourceManagers = []string{"http://other.example:8088"}
	used, read, err = r.k.usable(bad)
	if err == nil || !strings.Contains(err.Error(), "goes on by its last valid spec") ||
		!strings.Contains(err.Error(), "spec.size.ceiling") {
		t.Errorf("the error is %v", err)
	}
	if used == nil || used.UID != r.p.UID || read.Ceiling != r.read.Ceiling ||
		used.Spec.YARN.ResourceManagers[0] != r.p.Spec.YARN.ResourceManagers[0] {
		t.Fatalf("an invalid spec: %+v, %+v", used, read)
	}
	for _, invalid := range []bool{false, true} {
		r.p, r.read, r.invalid = used, read, invalid
		if s := r.settings(); s.Invalid != invalid {
			t.Errorf("the settings are %+v", s)
		}
		if s := r.crewSettings(&olap.Kind{}); s.Invalid != invalid {
			t.Errorf("the settings of workers of one size are %+v", s)
		}
	}
	long := r.p.DeepCopy()
	long.Spec.Template.Annotations = map[string]string{"note": strings.Repeat("a", maxSpec)}
	if text := specText(&long.Spec); text != "" {
		t.Errorf("a spec of %d bytes is kept", len(text))
	}
	for _, text := range []string{"", "{", specText(&bad.Spec)} {
		r.k.status.ValidSpec = text
		if used, _, err := r.k.usable(bad); used != nil || err == nil || strings.Contains(err.Error(), "goes on") {
			t.Errorf("without a spec that can be used: %+v, %v", used, err)
		}
	}
}

// TestAbandon deletes a pool whose spec cannot be read. Its pods are told to end with the time that they were made
// with, others' pods are left alone, and when none is left, the pool goes.
func TestAbandon(t *testing.T) {
	r, f := apiRound(t, nil)
	p := r.p
	p.UID, p.Finalizers = "pool", []string{v1alpha1.FinalizerPool}
	pod := func(name string, owner types.UID, deleting bool) *corev1.Pod {
		yes := true
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name, UID: types.UID(name)}}
		o.OwnerReferences = []metav1.OwnerReference{{Kind: "WorkerPool", UID: owner, Controller: &yes}}
		if deleting {
			o.DeletionTimestamp = &metav1.Time{Time: r.now}
		}
		return o
	}
	table := r.k.c.pods[p.Namespace]
	own, leaving := pod("own", "pool", false), pod("leaving", "pool", true)
	for _, o := range []*corev1.Pod{own, leaving, pod("other", "other", false)} {
		if err := table.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.k.abandon(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	path := "DELETE /namespaces/" + p.Namespace + "/pods/own force="
	if body, found := f.changes[path]; len(f.changes) != 1 || !found || strings.Contains(body, "gracePeriodSeconds") {
		t.Errorf("the changes are %s", f.changes)
	}
	clear(f.changes)
	for _, o := range []*corev1.Pod{own, leaving} {
		if err := table.Delete(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.k.abandon(t.Context(), p); err != nil || len(f.changes) != 1 {
		t.Errorf("without pods: %v, the changes are %s", err, f.changes)
	}
}

// TestEndWithoutSpec has a pool whose spec and last valid spec cannot be read. Pods of workers whose end has come are
// told to end with the time that they were made with, also those of one size. The others stay.
func TestEndWithoutSpec(t *testing.T) {
	r, f := apiRound(t, nil)
	k, p := r.k, r.p
	p.UID, p.Finalizers = "pool", []string{v1alpha1.FinalizerPool}
	p.Spec.Size.Ceiling = &v1alpha1.ResourceSpec{CPU: resource.MustParse("1m"), Memory: resource.MustParse("1")}
	add := func(name, worker, marks string) {
		yes := true
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, UID: types.UID(name),
			Annotations:     map[string]string{v1alpha1.AnnotationPoolMarks: marks},
			OwnerReferences: []metav1.OwnerReference{{Kind: "WorkerPool", UID: p.UID, Controller: &yes}},
		}}
		o.Spec.Containers = []corev1.Container{{Name: worker}}
		if err := k.c.pods[p.Namespace].Add(o); err != nil {
			t.Fatal(err)
		}
	}
	end := func(after time.Duration) string {
		return encode(pool.Marks{Registered: true, End: time.Now().Add(after)})
	}
	add("over", "other", end(-time.Second))
	add("over-of-one-size", v1alpha1.WorkerContainer, end(-time.Second))
	add("later", "other", end(time.Hour))
	add("without-end", "other", "{}")
	used, _, err := k.usable(p)
	if used != nil || err == nil {
		t.Fatalf("the spec can be used: %v", err)
	}
	var found problems
	k.endUnread(t.Context(), time.Now(), p, &found)
	var deleted []string
	for change, body := range f.changes {
		if strings.Contains(body, "gracePeriodSeconds") {
			t.Errorf("%s: %s", change, body)
		}
		deleted = append(deleted, change)
	}
	slices.Sort(deleted)
	path := "DELETE /namespaces/" + p.Namespace + "/pods/"
	if want := []string{path + "over force=", path + "over-of-one-size force="}; !slices.Equal(deleted, want) {
		t.Errorf("the changes are %q, want %q; %v", deleted, want, found.all)
	}
}
