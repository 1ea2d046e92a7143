package pools

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
)

// goner returns the pod of a pool's worker whose guard has ended.
func goner(p *v1alpha1.WorkerPool, name, message string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, UID: types.UID("u-" + name), OwnerReferences: []metav1.OwnerReference{owner(p)},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: "other", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "other"}}},
			{Name: hadoop.GuardContainer, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: message},
			}},
		}},
	}
}

func leftLine(n int) string {
	return fmt.Sprintf(`{"at":"2026-11-25T09:00:00Z","container":"container_1_0001_01_%06d","left":true}`+"\n", n)
}

// TestGone has pods of workers go. What their guards left behind is written into ConfigMaps of the pool, one a round,
// with what the workers did before; nothing is written for a pod without a message, or of somebody else.
func TestGone(t *testing.T) {
	r, f := apiRound(t, map[string]any{})
	k, p := r.k, r.p
	pods, known := k.c.pods[p.Namespace], k.c.pools[p.Namespace]
	if err := known.Add(p); err != nil {
		t.Fatal(err)
	}
	other := *p
	other.UID = "another"
	first := goner(p, "night-0", leftLine(1)+leftLine(2)+"junk")
	second := goner(p, "night-1", strings.Repeat("x", 9000)+leftLine(3)) // more than a kubelet takes
	again := goner(p, "night-2", leftLine(4))
	again.Status.InitContainerStatuses[1].LastTerminationState = corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Message: leftLine(5)},
	}
	all := []any{first, second, again, goner(p, "night-3", ""), goner(&other, "night-4", leftLine(6))}
	if err := pods.Replace(all, ""); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"WindowClosed", "NotRegistered"} {
		k.takeGone(time.Now(), p, &v1alpha1.WorkerPoolStatus{Workers: []v1alpha1.WorkerStatus{
			{Name: "night-0", Pod: "u-night-0", Phase: "Draining", Reason: reason},
			{Name: "night-2", Pod: "u-before", Phase: "Active"},
		}})
	}
	if err := pods.Delete(first); err != nil {
		t.Fatal(err)
	}
	if err := pods.Replace(nil, ""); err != nil { // as after a watch that broke
		t.Fatal(err)
	}
	k.takeGone(time.Now(), p, &v1alpha1.WorkerPoolStatus{})
	if len(k.gone) != 2 || len(k.c.gone.all) != 0 {
		t.Fatalf("%+v; left: %+v", k.gone, k.c.gone.all)
	}
	written := map[string]guardlog.Gone{}
	for round := range 3 {
		k.writeGone(t.Context(), time.Now(), p)
		for change, body := range f.changes {
			var c corev1.ConfigMap
			if err := json.Unmarshal([]byte(body), &c); err != nil {
				t.Fatal(err)
			}
			if !controls(p, &c.ObjectMeta) || !strings.Contains(change, "/configmaps/night-gone-") {
				t.Errorf("%s: %s", change, body)
			}
			for _, g := range guardlog.ReadGone(c.Data[v1alpha1.PoolGoneKey]) {
				if c.Name != guardlog.GonePart("night", g.Worker) {
					t.Errorf("%s is in %s", g.Worker, c.Name)
				}
				written[g.Worker] = g
			}
		}
		if len(f.changes) > 1 {
			t.Errorf("round %d wrote %d ConfigMaps", round, len(f.changes))
		}
		clear(f.changes)
	}
	if g := written["night-0"]; len(written) != 2 || g.Pod != "u-night-0" || g.Node != "n1" || g.Phase != "Draining" ||
		g.Reason != "WindowClosed" || len(g.Containers) != 2 {
		t.Errorf("%+v", written)
	}
	if g := written["night-2"]; g.Phase != "" || len(g.Containers) != 2 ||
		g.Containers[1].Container != "container_1_0001_01_000005" {
		t.Errorf("%+v", g)
	}
}

// TestGoneTaken checks that a ConfigMap of somebody else is neither written nor read, and that it is not tried again in
// each round.
func TestGoneTaken(t *testing.T) {
	part := guardlog.GonePart("night", "night-0")
	r, f := apiRound(t, map[string]any{"/namespaces/yarn/configmaps/" + part: corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "yarn", Name: part}, Data: map[string]string{v1alpha1.PoolGoneKey: "theirs"},
	}})
	now := time.Now()
	r.k.gone = []guardlog.Gone{{Worker: "night-0", Pod: "u"}}
	for range 5 {
		r.k.writeGone(t.Context(), now, r.p)
	}
	if len(f.changes) != 0 || len(r.k.gone) != 1 || len(f.asked) == 0 || len(f.asked) > 2 ||
		!strings.Contains(fmt.Sprint(r.k.logged), "is not of the pool") {
		t.Errorf("%v, asked %v, logged %v", f.changes, f.asked, r.k.logged)
	}
	r.k.writeGone(t.Context(), now.Add(goneRetry), r.p)
	if len(f.asked) < 3 {
		t.Error("it was not tried again")
	}
}
