package pools

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// unsoldRound returns a round of the pool of a case, in which nothing is sold. It has no API: a pod that is created
// is a panic.
func unsoldRound(t *testing.T, file string, sold func() bool) *round {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := strings.Cut(string(content), "---\n")
	p, read, err := kube.ParseWorkerPool([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{
		ClusterDomain: "cluster.local", Namespaces: []string{p.Namespace}, Log: slog.New(slog.DiscardHandler),
		Batch: func(pod *corev1.Pod) (*corev1.Pod, bool) { return pod, sold() },
	})
	r := &round{
		k: newKeeper(c, p.Namespace, p.Name), p: p, read: read, nodes: map[string]Node{"node-1.example": {}}, t: &problems{},
	}
	r.k.status = &p.Status
	r.list()
	r.places = r.places[:1]
	r.fill(r.places[0], nil)
	return r
}

// TestUnsold checks that no pod is made while no policy sells anything, whether that is known before the decision or
// only when the pod is made, and that the pool's condition Ready says so.
func TestUnsold(t *testing.T) {
	for name, early := range map[string]bool{"before the decision": true, "after it": false} {
		asked := 0
		sold := func() bool { asked++; return !early && asked == 1 }

		r := unsoldRound(t, "testdata/crew/trino.yaml", sold)
		c := &crewRound{round: r, kind: r.kind()}
		r.crew = c
		c.in = crew.Input{Now: r.now, Workers: []crew.Worker{{Worker: pool.Worker{
			Name: r.places[0].worker.Name, Wanted: true, Room: true, Unsold: r.places[0].worker.Unsold,
		}}}, Settings: crew.Settings{Attempts: 1}, Known: true}
		c.act(t.Context(), nil)
		if s := r.places[0].step; s.Why != crew.NothingSold || s.Verb != crew.Wait || s.Phase != crew.Stopped {
			t.Errorf("%s: a worker of one size: %+v", name, s)
		}
		readyIsFalse(t, r)

		asked = 0
		r = unsoldRound(t, "testdata/small.yaml", sold)
		w := r.places[0].worker
		w.Wanted, w.Room = true, true
		r.in = pool.Input{Now: r.now, Workers: []pool.Worker{*w}, Settings: pool.Settings{Attempts: 1}}
		r.in.RM = pool.RM{Known: true, Labels: true}
		pl := r.places[0]
		pl.step = pool.Next(&r.in)[0]
		r.all(pool.CreatePod, func(pl *place) { pl.err = r.createPod(t.Context(), pl) })
		if s := pl.step; pl.err != nil || s.Why != pool.NothingSold || s.Verb != pool.Wait || s.Phase != pool.Terminated {
			t.Errorf("%s: a NodeManager: %+v, %v", name, s, pl.err)
		}
	}
}

func readyIsFalse(t *testing.T, r *round) {
	t.Helper()
	var s v1alpha1.WorkerPoolStatus
	r.k.conditions(&s, r.p, nil, r.t)
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if c.Status != "False" || c.Reason != "NothingSold" ||
		!strings.Contains(c.Message, "no policy in mode Enforce sells") {
		t.Errorf("Ready: %+v", c)
	}
	if len(r.k.shown.steps) > 0 {
		t.Errorf("steps are counted: %v", r.k.shown.steps)
	}
}
