package pools

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestAttempts counts pods that failed, and not the rounds until they are seen to end, nor the requests to delete them
// that fail. A pod that is gone is forgotten.
func TestAttempts(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	c := &crewRound{round: r}
	var row v1alpha1.WorkerStatus
	round := func(uid string, err error, failed, deleting bool) {
		pl := place{
			worker: &pool.Worker{Pod: &pool.Pod{}, Attempts: int(row.Attempts)}, pod: &podRow{uid: uid, deleting: deleting},
			step: pool.Step{Phase: pool.Lost, Verb: pool.DeletePod, Failed: failed}, err: err,
		}
		row = r.row(&pl, &row)
		pl.crew.step = crew.Step{Phase: crew.Lost, Verb: crew.DeletePod, Failed: failed}
		one := pl
		one.pod = &podRow{uid: "one" + uid, deleting: deleting}
		if got := c.row(&one, &v1alpha1.WorkerStatus{}).Attempts; got != row.Attempts {
			t.Errorf("a worker of one size has %d attempts, a NodeManager %d", got, row.Attempts)
		}
	}
	want := func(n int32) {
		t.Helper()
		if row.Attempts != n {
			t.Errorf("%d attempts, want %d", row.Attempts, n)
		}
	}
	refused := errors.New("the API server answers 503")
	round("a", refused, true, false)
	round("a", refused, true, false)
	want(0)
	for range 5 { // the pod is not seen to end yet
		round("a", nil, true, false)
		want(1)
	}
	round("a", nil, true, true)
	want(1)
	round("b", nil, true, false)
	round("b", nil, true, false)
	want(2)

	yes := true
	if err := r.k.c.pods[r.p.Namespace].Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.p.Namespace, Name: "w", UID: types.UID("b"),
		OwnerReferences: []metav1.OwnerReference{{Kind: "WorkerPool", UID: r.p.UID, Controller: &yes}},
	}}); err != nil {
		t.Fatal(err)
	}
	if r.list(); !r.k.counted["b"] || len(r.k.counted) != 1 {
		t.Errorf("the pod b is there, and those that are known are %v", r.k.counted)
	}
}
