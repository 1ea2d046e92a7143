package pools

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// oneRound decides about the worker w of a pool of one node, of which the round before left this status. pod is its
// pod; nil: it has none. It returns the place with its step, and the status that follows.
func oneRound(
	t *testing.T, at time.Time, before *v1alpha1.WorkerPoolStatus, pod *corev1.Pod, edit func(r *round),
) (pl *place, after *v1alpha1.WorkerPoolStatus, gone bool) {
	t.Helper()
	r := poolRound(t, "testdata/small.yaml", nil)
	r.now, r.k.status = at, before
	r.nodes["n1"] = Node{Node: pool.Node{Selling: true}}
	r.opening.Open, r.state.Known = true, true
	if edit != nil {
		edit(r)
	}
	r.in = pool.Input{Now: at, Settings: r.settings(), RM: pool.RM{Known: r.state.Known, Labels: true}}
	r.places = []*place{{worker: &pool.Worker{Name: "w"}, node: "n1"}}
	if pl = r.places[0]; pod != nil {
		row := rowOf(pod)
		pl.pod = &row
	}
	if r.p.DeletionTimestamp != nil {
		pl.index, r.in.Deleted, r.opening.Open = -1, r.p.DeletionTimestamp.Time, false
	}
	r.recall()
	r.fill(pl, map[string]int{})
	pl.worker.Room, pl.worker.Label = true, r.in.Settings.Label
	r.in.Workers = []pool.Worker{*pl.worker}
	pl.worker, pl.step = &r.in.Workers[0], pool.Next(&r.in)[0]
	next := *before
	gone = r.summarize(&next)
	return pl, &next, gone
}

// workerPod returns the pod of the worker w, made at a time, with a status.
func workerPod(uid string, made time.Time, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "w", UID: types.UID(uid), CreationTimestamp: metav1.NewTime(made)},
		Status:     status,
	}
}

// TestOverPodIsDeleted has a pod that the kubelet evicted, of a pool that was deleted since, also with a silent
// ResourceManager, and of one that goes on. The pod is deleted; then the deleted pool goes.
func TestOverPodIsDeleted(t *testing.T) {
	now := time.Now()
	pod := workerPod("u", now.Add(-time.Hour), corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"})
	for about, edit := range map[string]func(r *round){
		"a pool":                      func(*round) {},
		"a pool whose window is over": func(r *round) { r.opening.Open = false },
		"a deleted pool": func(r *round) {
			at := metav1.NewTime(now.Add(-time.Hour))
			r.p.DeletionTimestamp = &at
		},
		"a deleted pool whose ResourceManager is silent": func(r *round) {
			at := metav1.NewTime(now.Add(-time.Hour))
			r.p.DeletionTimestamp, r.state.Known = &at, false
		},
	} {
		before := &v1alpha1.WorkerPoolStatus{Workers: []v1alpha1.WorkerStatus{{Name: "w", Pod: "u", Attempts: 1}}}
		pl, after, gone := oneRound(t, now, before, pod, edit)
		if s := pl.step; s.Verb != pool.DeletePod || s.Why != pool.PodEnded || s.Phase != pool.Terminated || gone {
			t.Errorf("%s: %+v, gone %v", about, s, gone)
		}
		if len(after.Workers) != 1 || after.Workers[0].Ended == nil || after.Workers[0].Attempts != 1 {
			t.Fatalf("%s: %+v", about, after.Workers)
		}
		deleted := false
		pl, _, gone = oneRound(t, now.Add(farewell), after, nil, func(r *round) {
			edit(r)
			deleted = r.p.DeletionTimestamp != nil
		})
		if pl.step.Verb == pool.DeletePod || deleted && !gone {
			t.Errorf("%s: the pod is gone: %+v, the pool too: %v", about, pl.step, gone)
		}
	}
}

// farewell is longer than a deleted pool waits for a silent ResourceManager.
const farewell = 3 * time.Minute

// TestRefusedPod has a pod that the kubelet refuses: its status has no container. Its worker rests from then on, and
// not anew in each round, also while the pod cannot be deleted.
func TestRefusedPod(t *testing.T) {
	made := time.Now().Truncate(time.Second)
	refused := made.Add(10 * time.Second)
	for about, c := range map[string]struct {
		conditions []corev1.PodCondition
		want       time.Time
	}{
		"without conditions": {nil, made},
		"scheduled": {[]corev1.PodCondition{{
			Type: corev1.PodScheduled, LastTransitionTime: metav1.NewTime(refused),
		}}, refused},
	} {
		pod := workerPod("u", made, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "OutOfwaterline.io/batch-cpu", Conditions: c.conditions,
		})
		status := &v1alpha1.WorkerPoolStatus{}
		for i := range 3 {
			var pl *place
			at := made.Add(time.Duration(i) * 20 * time.Second)
			if pl, status, _ = oneRound(t, at, status, pod, nil); !pl.worker.Ended.Equal(c.want) {
				t.Errorf("%s: round %d: it ended at %s, want %s", about, i, pl.worker.Ended, c.want)
			}
		}
		pl, status, _ := oneRound(t, refused.Add(50*time.Second), status, nil, nil)
		if about == "scheduled" && pl.step.Why != pool.CoolingDown {
			t.Errorf("%s: %+v", about, pl.step)
		}
		if pl, _, _ = oneRound(t, refused.Add(70*time.Second), status, nil, nil); pl.step.Verb != pool.CreatePod {
			t.Errorf("%s: no other pod is made: %+v", about, pl.step)
		}
	}
}
