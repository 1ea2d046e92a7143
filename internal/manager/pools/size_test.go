package pools

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// poolRound returns a round of the pool of a case of testdata, as it is after an edit.
func poolRound(t *testing.T, file string, edit func(*v1alpha1.WorkerPool)) *round {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	given, _, _ := strings.Cut(string(content), "---\n")
	p, read, err := kube.ParseWorkerPool([]byte(given))
	if err == nil && edit != nil {
		edit(p)
		read, err = kube.ReadWorkerPool(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{
		ClusterDomain: "cluster.local", Namespaces: []string{p.Namespace}, Log: slog.New(slog.DiscardHandler),
		GuardImage: "waterline/guard:dev", ExcludeDir: "/exclude",
		Batch: func(pod *corev1.Pod) (*corev1.Pod, bool) {
			batch, _ := admit.Rules{Ours: true}.Mutate(pod, nil)
			return batch, true
		},
	})
	r := &round{
		k: newKeeper(c, p.Namespace, p.Name), now: time.Now(), p: p, read: read, nodes: map[string]Node{}, t: &problems{},
	}
	r.k.status = &p.Status
	r.in.Settings = r.settings()
	return r
}

// TestPodKeepsItsSize edits the pool while a pod of it runs. The worker is decided about with what the pod requests and
// its limits leave, and the pod counts as one of an earlier spec, except after edits that need no new pod.
func TestPodKeepsItsSize(t *testing.T) {
	const gib = 1 << 30
	for _, file := range []string{"testdata/full.yaml", "testdata/guard.yaml"} {
		r := poolRound(t, file, nil)
		r.nodes["n1"] = Node{Labels: map[string]string{"pool": "web"}}
		r.list()
		r.fill(r.places[0], nil)
		made, _ := r.newPod(r.places[0], pool.Marks{})
		made.Spec.NodeName = "n1"
		was := r.settings()
		for about, c := range map[string]struct {
			edit     func(*v1alpha1.WorkerPool)
			outdated bool
		}{
			"nothing": {func(*v1alpha1.WorkerPool) {}, false},
			"floor": {func(p *v1alpha1.WorkerPool) {
				p.Spec.Size.Floor = v1alpha1.ResourceSpec{CPU: resource.MustParse("8"), Memory: resource.MustParse("16Gi")}
			}, true},
			"ceiling": {func(p *v1alpha1.WorkerPool) {
				p.Spec.Size.Ceiling = &v1alpha1.ResourceSpec{CPU: resource.MustParse("64"), Memory: resource.MustParse("256Gi")}
			}, true},
			"overhead": {func(p *v1alpha1.WorkerPool) {
				p.Spec.YARN.Overhead = v1alpha1.ResourceSpec{CPU: resource.MustParse("500m"), Memory: resource.MustParse("8Gi")}
			}, true},
			"image": {func(p *v1alpha1.WorkerPool) { p.Spec.Template.Spec.Containers[0].Image = "other" }, true},
			"step":  {func(p *v1alpha1.WorkerPool) { p.Spec.Size.Step.CPU = resource.MustParse("1") }, false},
			"label": {func(p *v1alpha1.WorkerPool) { p.Spec.YARN.Label.Name = "other" }, false},
			"secret": {func(p *v1alpha1.WorkerPool) {
				p.Spec.YARN.AuthSecret = &v1alpha1.ObjectReference{Name: "other"}
			}, false},
		} {
			r := poolRound(t, file, c.edit)
			r.nodes["n1"] = Node{Node: pool.Node{Selling: true, Offer: model.Amount{CPU: 100_000, Memory: 200 * gib}}}
			row := rowOf(made)
			pl := place{worker: &pool.Worker{Name: "w"}, node: "n1", index: -1, pod: &row}
			r.watch()
			r.fill(&pl, map[string]int{"n1": 1})
			got := pl.worker.Pod
			if got.Floor != was.Floor || got.Ceiling.MemoryMiB != was.Ceiling.MemoryMiB || got.Outdated != c.outdated {
				t.Errorf("%s, %s changed: %+v, the pod was made for %s to %s", file, about, got, was.Floor, was.Ceiling)
			}
			if want := was.Floor.MemoryMiB + 200<<10; pl.worker.Allowance.MemoryMiB != want {
				t.Errorf("%s, %s changed: the allowance is %s, want %d MiB", file, about, pl.worker.Allowance, want)
			}
		}
	}
}

// TestPodLies has a pod whose variables say more than it requests: they count for no more.
func TestPodLies(t *testing.T) {
	r := poolRound(t, "testdata/small.yaml", nil)
	floor, _ := r.bounds(&podRow{
		start: pool.Size{MemoryMiB: 1 << 30, VCores: 1000}, request: model.Amount{CPU: 1100, Memory: 3 << 30},
	})
	if want := (pool.Size{MemoryMiB: 3 << 10, VCores: 1}); floor != want {
		t.Errorf("%s, want %s", floor, want)
	}
}
