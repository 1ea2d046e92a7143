package pools

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestAttempts counts pods that failed, and not the rounds until they are seen to end, nor the requests to delete them
// that fail. A pod that is gone is forgotten.
func TestAttempts(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	other := *r
	other.crew = &crewRound{round: &other}
	var row v1alpha1.WorkerStatus
	round := func(uid string, err error, failed, deleting bool) {
		pl := place{
			worker: &pool.Worker{Pod: &pool.Pod{}, Attempts: int(row.Attempts)}, pod: &podRow{uid: uid, deleting: deleting},
			step: pool.Step{Phase: pool.Lost, Verb: pool.DeletePod, Failed: failed}, err: err,
		}
		row = r.row(&pl, &row)
		one := pl
		one.pod = &podRow{uid: "one" + uid, deleting: deleting}
		if got := other.row(&one, &v1alpha1.WorkerStatus{}).Attempts; got != row.Attempts {
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

// TestGivenUp edits the spec of a pool with a worker in quarantine: it is tried again, and known as one that failed
// before, until it works.
func TestGivenUp(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	r.k.status = &v1alpha1.WorkerPoolStatus{ObservedGeneration: 1}
	round := func(generation int64, phase pool.Phase, attempts int, givenUp bool) {
		t.Helper()
		r.p.Generation = generation
		pl := place{worker: &pool.Worker{Name: "w"}, node: "n1"}
		pl.row = v1alpha1.WorkerStatus{Name: "w", Phase: v1alpha1.WorkerPhase(phase), Attempts: 2}
		r.fill(&pl, nil)
		if w := pl.worker; w.Attempts != attempts || w.GivenUp != givenUp {
			t.Errorf("generation %d, %s: %d attempts, given up %v", generation, phase, w.Attempts, w.GivenUp)
		}
		r.k.status.ObservedGeneration = generation
	}
	round(1, pool.Quarantined, 2, false)
	round(2, pool.Quarantined, 0, true)
	round(2, pool.Provisioning, 2, true)
	round(2, pool.Quarantined, 2, true)
	round(2, pool.Active, 2, false)
	round(3, pool.Active, 0, false)

	r.tally.Outdated = 3
	var s v1alpha1.WorkerPoolStatus
	r.opening.Open, s.Wanted, s.Active = true, 9, 9
	r.k.conditions(&s, r.p, r, r.t)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c == nil ||
		c.Message != "All 9 workers that are to run now are active; pods of an earlier spec that wait to be replaced: 3." {
		t.Errorf("%+v", c)
	}
}
