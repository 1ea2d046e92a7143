package pools

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCrewPod shows the pod and the configuration of the first worker of each pool of testdata/crew. The first document
// of a case is the pool, and the test writes the others.
func TestCrewPod(t *testing.T) { golden.Each(t, crewCase, "testdata/crew/*.yaml") }

func crewCase(t *testing.T, content string) string {
	given, _, _ := strings.Cut(content, "---\n")
	p, read, err := kube.ParseWorkerPool([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{
		ClusterDomain: "cluster.local", Namespaces: []string{p.Namespace}, Log: slog.New(slog.DiscardHandler),
		Batch: func(pod *corev1.Pod) (*corev1.Pod, bool) {
			batch, _ := admit.Rules{Ours: true}.Mutate(pod, nil)
			return batch, true
		},
	})
	r := &round{
		k: newKeeper(c, p.Namespace, p.Name), p: p, read: read, nodes: map[string]Node{"node-1.example": {}}, t: &problems{},
	}
	r.k.status = &p.Status
	crewed := &crewRound{round: r, kind: r.kind()}
	r.list()
	pl := r.places[0]
	r.fill(pl, nil)
	made, _ := crewed.newCrewPod(pl, pool.Marks{End: time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)})
	if row := rowOf(made); !row.crew || row.request != read.Floor.Plus(read.Beside) || row.marks.End.IsZero() {
		t.Errorf("the pod is read as %+v", row)
	}
	pod, err := yaml.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	files, err := yaml.Marshal(crewed.kind.OwnFiles())
	if err != nil {
		t.Fatal(err)
	}
	return given + "---\n" + string(pod) + "---\n" + string(files)
}

// TestTightPods checks that of the workers of one size on a node that offers too little, the youngest is to give way,
// of whatever pool, and that a NodeManager is not, nor a pod that nobody's pool made.
func TestTightPods(t *testing.T) {
	c := New(Options{Namespaces: []string{"a", "b"}, Log: slog.New(slog.DiscardHandler)})
	pod := func(namespace, name string, minute int, change func(*corev1.Pod)) {
		yes := true
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, UID: types.UID(name),
				OwnerReferences: []metav1.OwnerReference{{Kind: "WorkerPool", UID: "pool", Controller: &yes}},
			},
			Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
				Name: v1alpha1.WorkerContainer, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					v1alpha1.ResourceBatchCPU: resource.MustParse("1000"), v1alpha1.ResourceBatchMemory: resource.MustParse("1Gi"),
				}},
			}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: v1alpha1.WorkerContainer, State: corev1.ContainerState{
					Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(int64(60*minute), 0)},
				},
			}}},
		}
		change(p)
		if err := c.pods[namespace].Add(p); err != nil {
			t.Fatal(err)
		}
	}
	none := func(*corev1.Pod) {}
	pod("a", "old", 1, none)
	pod("b", "young", 2, none)
	pod("a", "manager", 3, func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: hadoop.VCoresVariable, Value: "1"}}
	})
	pod("a", "stranger", 4, func(p *corev1.Pod) { p.OwnerReferences = nil })
	pod("a", "over", 5, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pod("a", "elsewhere", 6, func(p *corev1.Pod) { p.Spec.NodeName = "other" })
	if on := c.workersOn(); on["node"] != 1 || on["other"] != 0 {
		t.Errorf("NodeManagers share what nobody requests with workers of one size: %v", on)
	}
	offering := func(cpus int64, selling bool) map[string]Node {
		n := Node{}
		n.Selling, n.Offer = selling, model.Amount{CPU: cpus * 1000, Memory: cpus << 30}
		n.Bound = model.Amount{CPU: 3000, Memory: 3 << 30} // the manager too
		return map[string]Node{"node": n}
	}
	for _, test := range []struct {
		nodes map[string]Node
		want  []string
	}{
		{offering(3, true), nil},
		{offering(2, true), []string{"young"}},
		{offering(1, true), []string{"old", "young"}},
		{offering(0, true), []string{"old", "young"}},
		{offering(2, false), nil}, // nothing is known of what it could offer
	} {
		if got := sortedKeys(c.tight(test.nodes)); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q give way, want %q", test.nodes, got, test.want)
		}
	}
}
