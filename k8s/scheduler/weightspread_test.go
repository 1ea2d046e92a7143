package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// newRefusing returns a plugin that refuses nodes, in a cluster with a pod of six CPUs of weight on node a, which has
// eight CPUs.
func newRefusing(t *testing.T) (weightLimit, *framework.NodeInfo, *corev1.Pod) {
	t.Helper()
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	v.seePolicy(policy(t, false))
	heavy := onNode(weighted("heavy"), "a")
	for _, name := range []string{"a", "b"} {
		v.seeReport(nodeReport(name, map[string]any{"policy": "p"}))
	}
	v.seePod(heavy)
	return weightLimit{&weightSpread{view: v, settings: place.DefaultSettings()}}, nodeInfo("a", 8, heavy), heavy
}

// TestWeightPreemption checks that the scheduler tries preemption on a node that is refused for its weights, and that
// the node is not refused without them.
func TestWeightPreemption(t *testing.T) {
	w, info, heavy := newRefusing(t)
	p, state := weighted("new"), framework.NewCycleState()
	if _, status := w.PreFilter(t.Context(), state, p, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := w.Filter(t.Context(), state, p, info); status.Code() != fwk.Unschedulable {
		t.Errorf("the status is %s: %s", status.Code(), status.Message())
	}
	if err := info.RemovePod(klog.Background(), heavy); err != nil {
		t.Fatal(err)
	}
	if status := w.Filter(t.Context(), state, p, info); !status.IsSuccess() {
		t.Errorf("without the other pod it is refused: %s", status.Message())
	}
}

// TestMustRun checks that weights keep no pod of a DaemonSet and no system-critical pod off its node.
func TestMustRun(t *testing.T) {
	w, _, _ := newRefusing(t)
	yes, critical, high := true, scheduling.SystemCriticalPriority, scheduling.HighestUserDefinablePriority
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		skips  bool
	}{
		"of a DaemonSet": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: &yes}}
		}, true},
		"system-critical":           {func(p *corev1.Pod) { p.Spec.Priority = &critical }, true},
		"of a user's high priority": {func(p *corev1.Pod) { p.Spec.Priority = &high }, false},
	} {
		p := testPod("p", "")
		test.change(p)
		if _, status := w.PreFilter(t.Context(), framework.NewCycleState(), p, nil); status.IsSkip() != test.skips {
			t.Errorf("a pod %s: %v", name, status)
		}
	}
}

// TestDilution checks which pods without a weight are scored: those that would dilute weights on some node. A small pod
// that fits beside all weights is not, a large one is, and so are small ones while a node has no room for them, also
// right after a pod that could not use that node.
func TestDilution(t *testing.T) {
	w, info, heavy := newRefusing(t)
	heavy.Annotations[v1alpha1.AnnotationCPUShare] = "4096"
	b := nodeInfo("b", 8)
	nodes := []fwk.NodeInfo{info, b}
	w.all = func() ([]fwk.NodeInfo, error) { return nodes, nil }
	w.looked = -time.Minute
	small, large := testPod("small", ""), testPod("large", "")
	large.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("6")
	if status := w.PreScore(t.Context(), nil, small, nodes); !status.IsSkip() {
		t.Errorf("two CPUs dilute weights: %v", status)
	}
	if status := w.PreScore(t.Context(), nil, large, nodes); !status.IsSuccess() || w.scores[0] >= w.scores[1] {
		t.Errorf("%v: the scores are %v", status, w.scores)
	}
	info.AddPod(onNode(large, "a"))
	w.looked = -time.Minute
	w.PreScore(t.Context(), nil, small, []fwk.NodeInfo{b})
	if status := w.PreScore(t.Context(), nil, small, nodes); !status.IsSuccess() || w.scores[0] >= w.scores[1] {
		t.Errorf("%v: the scores are %v beside a large pod", status, w.scores)
	}
}
