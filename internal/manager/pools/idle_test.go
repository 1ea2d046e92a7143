package pools

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// TestIdle lets a worker run containers and nothing. Its pod says that it may be evicted when it has run nothing for a
// minute, and takes that back with the next container. While nobody knows, it stays as it is.
func TestIdle(t *testing.T) {
	r, f := apiRound(t, nil)
	r.state.Known, r.in.RM.Known = true, true
	m := pool.Manager{State: "RUNNING"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "u", Namespace: r.p.Namespace}}
	place := func() *place {
		row := rowOf(pod)
		r.places = []*place{{worker: &pool.Worker{Pod: &pool.Pod{}, Managers: []pool.Manager{m}}, pod: &row}}
		return r.places[0]
	}
	for _, c := range []struct {
		about      string
		seconds    int
		containers int
		silent     bool
		want       string // the label that is written; "": none
	}{
		{"it is new", 0, 0, false, ""},
		{"it runs nothing", 59, 0, false, ""},
		{"for a minute", 2, 0, false, "false"},
		{"on", 100, 0, false, ""},
		{"the ResourceManager is silent", 100, 3, true, ""},
		{"it runs something", 2, 1, false, "true"},
		{"the ResourceManager is silent again", 100, 0, true, ""},
		{"it runs nothing again", 100, 0, false, ""},
		{"not for a minute", 50, 0, false, ""},
		{"for a minute again", 10, 0, false, "false"},
		{"another manager", -1, 0, false, ""},
		{"it runs something again", 2, 2, false, "true"},
	} {
		if r.now = r.now.Add(time.Duration(c.seconds) * time.Second); c.seconds < 0 {
			r.k.idle = nil
		}
		m.Containers, r.state.Known, r.in.RM.Known = c.containers, !c.silent, !c.silent
		pl := place()
		r.rest()
		pl.step.Marks = pl.pod.marks
		clear(f.changes)
		if err := r.mark(t.Context(), pl); err != nil {
			t.Fatal(err)
		}
		var patch corev1.Pod
		for _, body := range f.changes {
			if err := json.Unmarshal([]byte(body), &patch); err != nil {
				t.Fatal(err)
			}
			pod.Labels = patch.Labels
		}
		if got := patch.Labels[v1alpha1.LabelPoolBusy]; got != c.want {
			t.Errorf("%s: %q is written, want %q", c.about, got, c.want)
		}
		if c.want != "" && (patch.Annotations[safeToEvict] == "true") != (c.want == "false") {
			t.Errorf("%s: %s", c.about, patch.Annotations)
		}
	}
}

// TestBusyAreCovered checks that a new pod counts as busy, and that the PodDisruptionBudget covers those alone.
func TestBusyAreCovered(t *testing.T) {
	r, f := apiRound(t, nil)
	r.prepare(t.Context())
	covers := ""
	for path, body := range f.changes {
		if strings.Contains(path, "poddisruptionbudgets") {
			covers = body
		}
	}
	p, _ := r.newPod(&place{worker: &pool.Worker{Name: "w"}}, pool.Marks{})
	label := `"` + v1alpha1.LabelPoolBusy + `":"true"`
	if !strings.Contains(covers, label) || p.Labels[v1alpha1.LabelPoolBusy] != "true" {
		t.Errorf("the labels of a new pod are %s; the budget is %s", p.Labels, covers)
	}
}
