package pools

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestClockOfNode has NodeManagers on nodes whose clocks are behind or ahead. Each has the time to register, and not
// much more, whether or not this manager saw it start.
func TestClockOfNode(t *testing.T) {
	made := time.Now().Truncate(time.Second)
	starts := made.Add(10 * time.Minute) // its image is large
	for about, off := range map[string]time.Duration{
		"right": 0, "behind": -5 * time.Minute, "a day behind": -24 * time.Hour, "ahead": time.Hour,
	} {
		status := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: v1alpha1.WorkerContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(starts.Add(off)),
			}},
		}}}
		var known map[string]start // to the manager
		verb := func(at time.Time, status corev1.PodStatus) pool.Verb {
			t.Helper()
			pl, _, _ := oneRound(t, at, &v1alpha1.WorkerPoolStatus{}, workerPod("u", made, status), func(r *round) {
				if known == nil {
					known = map[string]start{}
				}
				r.k.starts = known
			})
			return pl.step.Verb
		}
		for after, want := range map[time.Duration]pool.Verb{
			time.Second: pool.Wait, registerWithin - time.Second: pool.Wait, registerWithin + 10*time.Second: pool.DeletePod,
		} {
			known = nil
			verb(starts.Add(-time.Second), corev1.PodStatus{Phase: corev1.PodPending})
			verb(starts.Add(time.Second), status)
			if got := verb(starts.Add(after), status); got != want {
				t.Errorf("a clock that is %s: %s after the start: %s, want %s", about, after, got, want)
			}
		}
		known = nil // the next manager sees it first when it runs
		verb(starts.Add(time.Second), status)
		if got := verb(starts.Add(registerWithin+10*time.Second), status); got != pool.DeletePod {
			t.Errorf("a clock that is %s: the next manager never gives up the NodeManager: %s", about, got)
		}
	}
}

// TestEndsAgainAndAgain has a NodeManager that crashes: the time to register counts from when its pod was made.
func TestEndsAgainAndAgain(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	p := &podRow{uid: "u", created: r.now.Add(-time.Hour)}
	if got := r.startOf(p); !got.IsZero() {
		t.Errorf("it has not started, and started at %s", got)
	}
	if p.started = p.created; !r.startOf(p).Equal(p.created) {
		t.Errorf("it waits to be started again, and started at %s, want %s", r.startOf(p), p.created)
	}
}
