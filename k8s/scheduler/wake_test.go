package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// woken collects the pods that a view wakes.
type woken struct{ names []string }

func (w *woken) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for _, p := range pods {
		w.names = append(w.names, p.Name)
	}
	slices.Sort(w.names)
}

// refusing is a cluster in which each plugin has refused a pod of its name, on nodes named for the reasons.
type refusing struct {
	t       *testing.T
	view    *view
	woken   woken
	plugins map[string]interface {
		fwk.EnqueueExtensions
		fwk.PreFilterPlugin
		fwk.FilterPlugin
	}
}

func newRefusals(t *testing.T) *refusing {
	t.Helper()
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	r := &refusing{t: t, view: v}
	v.activator = &r.woken
	s := place.DefaultSettings()
	v.started = time.Now().Add(-time.Hour) // so that agents that were never seen are gone
	v.seePolicy(policy(t, false))
	for _, node := range []string{"hot", "tight", "full", "open"} {
		v.seePod(readyAgent(node))
	}
	r.report("hot", map[string]any{"hot": "MemoryExhausted"})
	r.report("orphan", nil)
	r.report("tight", freeOf("2", 1))
	r.report("full", nil)
	r.report("open", nil)
	batch := &batchFit{view: v, settings: s, sold: soldNames()}
	batch.loads = newLoads(v)
	r.plugins = map[string]interface {
		fwk.EnqueueExtensions
		fwk.PreFilterPlugin
		fwk.FilterPlugin
	}{
		BatchFitName:     batch,
		CPUSetFitName:    &cpuSetFit{v, s, nil},
		WeightSpreadName: weightLimit{&weightSpread{view: v, settings: s}},
	}
	r.refuse(BatchFitName, batchPod(), "hot", "orphan")
	r.refuse(CPUSetFitName, exclusivePod(CPUSetFitName, 2), "tight")
	heavy := weighted("heavy")
	heavy.Spec.NodeName = "full"
	r.refuse(WeightSpreadName, weighted(WeightSpreadName), "full", heavy)
	return r
}

func (r *refusing) report(node string, change map[string]any) {
	r.view.seeReport(r.statusOf(node, change))
}

func (r *refusing) statusOf(node string, change map[string]any) *unstructured.Unstructured {
	status := reportOf(1)
	status["policy"] = "p"
	for key, value := range change {
		status[key] = value
	}
	return nodeReport(node, status)
}

// refuse has a plugin refuse a pod on nodes; a pod among them is on the node before it.
func (r *refusing) refuse(plugin string, p *corev1.Pod, on ...any) {
	r.t.Helper()
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status := r.plugins[plugin].PreFilter(ctx, state, p, nil); !status.IsSuccess() {
		r.t.Fatalf("%s: %v", plugin, status)
	}
	for i, name := range on {
		node, ok := name.(string)
		if !ok {
			continue
		}
		info := nodeInfo(node, 8)
		if i+1 < len(on) {
			if beside, is := on[i+1].(*corev1.Pod); is {
				info.AddPod(beside)
			}
		}
		if status := r.plugins[plugin].Filter(ctx, state, p, info); status.IsSuccess() {
			r.t.Fatalf("%s takes %s", node, p.Name)
		}
	}
}

func batchPod() *corev1.Pod {
	p := testPod(BatchFitName, "")
	list := corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse("1000")}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

func exclusivePod(name string, cpus int64) *corev1.Pod {
	p := testPod(name, "")
	list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	p.Annotations = map[string]string{v1alpha1.AnnotationCPUManager: "exclusive"}
	return p
}

// weighted returns a pod whose weight lets it expect six CPUs.
func weighted(name string) *corev1.Pod {
	p := testPod(name, "")
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"),
	}}
	p.Annotations = map[string]string{v1alpha1.AnnotationCPUShare: "6144"}
	return p
}

func onNode(p *corev1.Pod, node string) *corev1.Pod {
	p.Spec.NodeName = node
	return p
}

func freeOf(free string, exclusive int64) map[string]any {
	return map[string]any{"cpuSets": map[string]any{"maxExclusive": exclusive, "numaNodes": []any{
		map[string]any{"id": int64(0), "free": free, "cores": []any{"0-3/4-7"}},
	}}}
}

// TestWakes checks for each change of a report, a policy, an agent or a promise which refused pods it wakes: those that
// it helps.
func TestWakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*refusing)
		want   []string
	}{
		{"a hot node cools down", func(r *refusing) { r.report("hot", nil) }, []string{BatchFitName}},
		{"it is hot for another reason", func(r *refusing) { r.report("hot", map[string]any{"hot": "Starved"}) }, nil},
		{"it cools down, and its window is closed", func(r *refusing) {
			r.report("hot", map[string]any{"selling": "Closed"})
		}, nil},
		{"its report is deleted", func(r *refusing) { r.view.loseReport("hot") }, []string{BatchFitName, WeightSpreadName}},
		{"the report with too few CPUs is deleted", func(r *refusing) { r.view.loseReport("tight") },
			[]string{CPUSetFitName, WeightSpreadName}},
		{"the report of another node is deleted", func(r *refusing) {
			r.report("other", map[string]any{"policy": ""})
			r.view.loseReport("other")
		}, nil},
		{"a pod on a node loses its weight", func(r *refusing) {
			r.view.seeChange(onNode(weighted("heavy"), "full"), testPod("heavy", "full"))
		}, []string{WeightSpreadName}},
		{"a pod on a node gets another label", func(r *refusing) {
			p := onNode(weighted("heavy"), "full")
			p.Labels = map[string]string{"a": "b"}
			r.view.seeChange(onNode(weighted("heavy"), "full"), p)
		}, nil},
		{"the labels of a namespace change", func(r *refusing) {
			r.view.seeNamespace(&corev1.Namespace{}, &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			})
		}, []string{CPUSetFitName, WeightSpreadName}},
		{"a namespace changes otherwise", func(r *refusing) {
			r.view.seeNamespace(&corev1.Namespace{}, &corev1.Namespace{})
		}, nil},
		{"amounts change", func(r *refusing) {
			r.report("open", map[string]any{"changed": time.Now().Add(time.Minute).UTC().Format(time.RFC3339)})
		}, nil},
		{"a node that did not refuse becomes hot and cools down", func(r *refusing) {
			r.report("open", map[string]any{"hot": "MemoryExhausted"})
			r.report("open", nil)
		}, nil},
		{"the agent of a node comes back", func(r *refusing) { r.view.seePod(readyAgent("orphan")) }, []string{BatchFitName}},
		{"the agent of a hot node is replaced", func(r *refusing) {
			r.view.losePod(readyAgent("hot"))
			r.view.seePod(readyAgent("hot"))
		}, nil},
		{"enough CPUs become free", func(r *refusing) { r.report("tight", freeOf("1-2", 2)) }, []string{CPUSetFitName}},
		{"other CPUs are free", func(r *refusing) { r.report("tight", freeOf("3", 1)) }, nil},
		{"CPUs become free that must stay shared", func(r *refusing) { r.report("tight", freeOf("1-3", 1)) }, nil},
		{"CPUs may be exclusive that had to stay shared", func(r *refusing) {
			r.report("tight", freeOf("1-3", 1))
			r.report("tight", freeOf("1-3", 2))
		}, []string{CPUSetFitName}},
		{"CPUs become free on another node", func(r *refusing) { r.report("open", freeOf("1-3", 3)) }, nil},
		{"CPUs become free and are promised", func(r *refusing) {
			r.view.ledger.Promise("tight", "other", 0, model.CPUs(1))
			r.report("tight", freeOf("1-2", 2))
		}, nil},
		{"promised CPUs are not taken after all", func(r *refusing) {
			r.view.ledger.Promise("tight", "other", 0, model.CPUs(1))
			r.report("tight", freeOf("1-2", 2))
			other := testPod("other", "tight")
			other.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.ConditionCPUSet, Status: corev1.ConditionFalse}}
			r.view.seePod(other)
		}, []string{CPUSetFitName}},
		{"a pod with promised CPUs is deleted", func(r *refusing) {
			r.view.ledger.Promise("tight", "other", 0, model.CPUs(1))
			r.report("tight", freeOf("1-2", 2))
			r.view.losePod(testPod("other", "tight"))
		}, []string{CPUSetFitName}},
		{"the policy is deleted, and nothing is granted", func(r *refusing) { r.view.losePolicy("p") },
			[]string{CPUSetFitName, WeightSpreadName}},
		{"the policy is the same", func(r *refusing) { r.view.seePolicy(policy(r.t, false)) }, nil},
		{"the policy gives weights to all pods", func(r *refusing) { r.view.seePolicy(policy(r.t, true)) },
			[]string{WeightSpreadName}},
		{"another policy governs the node", func(r *refusing) { r.report("full", map[string]any{"policy": "q"}) },
			[]string{WeightSpreadName}},
		{"the node is paused", func(r *refusing) { r.report("full", map[string]any{"mode": "Disabled"}) },
			[]string{WeightSpreadName}},
		{"the policy only observes", func(r *refusing) {
			p := policy(r.t, false)
			p.Object["spec"].(map[string]any)["mode"] = "Observe"
			r.view.seePolicy(p)
		}, []string{CPUSetFitName, WeightSpreadName}},
		{"the pod gives up its CPUs", func(r *refusing) {
			r.view.seeChange(exclusivePod(CPUSetFitName, 2), testPod(CPUSetFitName, ""))
		}, []string{CPUSetFitName}},
		{"the pod requests fewer CPUs", func(r *refusing) {
			r.view.seeChange(exclusivePod(CPUSetFitName, 2), exclusivePod(CPUSetFitName, 1))
		}, []string{CPUSetFitName}},
		{"the pod's status changes", func(r *refusing) {
			p := exclusivePod(CPUSetFitName, 2)
			p.Status.Phase = corev1.PodPending
			r.view.seeChange(exclusivePod(CPUSetFitName, 2), p)
		}, nil},
		{"a pod is tried again, and its node cools down meanwhile", func(r *refusing) {
			ctx, state := context.Background(), framework.NewCycleState()
			_, _ = r.plugins[BatchFitName].PreFilter(ctx, state, batchPod(), nil)
			r.report("hot", nil)
		}, nil},
		{"a pod has a node", func(r *refusing) {
			r.view.seePod(testPod(BatchFitName, "open"))
			r.report("hot", nil)
		}, nil},
	} {
		r := newRefusals(t)
		r.woken.names = nil
		test.change(r)
		if !slices.Equal(r.woken.names, test.want) {
			t.Errorf("%s: it woke %v, and helps %v", test.name, r.woken.names, test.want)
		}
	}
}

// TestHints checks for each event that a plugin registers whether it is worth another attempt with the pod that the
// plugin refused.
func TestHints(t *testing.T) {
	on := func(node string, p *corev1.Pod) *corev1.Pod { return onNode(p, node) }
	node := func(name, cpus string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)},
		}}
	}
	owns := on("tight", testPod("owns", ""))
	owns.Status.Conditions = []corev1.PodCondition{
		{Type: v1alpha1.ConditionCPUSet, Status: corev1.ConditionTrue, Message: "1"},
	}
	smaller := weighted("x")
	smaller.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("50m")
	nominated := weighted("nominated")
	nominated.Status.NominatedNodeName = "full"
	nothing := testPod("nothing", "full")
	nothing.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	added := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}
	deleted := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}
	shrunk := fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodScaleDown}
	grown := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}
	for _, test := range []struct {
		refusal  string
		event    fwk.ClusterEvent
		name     string
		old, now any
		want     fwk.QueueingHint
	}{
		{BatchFitName, added, "that takes batch", nil, node("open", "8"), fwk.Queue},
		{BatchFitName, added, "that is hot", nil, node("hot", "8"), fwk.QueueSkip},
		{BatchFitName, added, "without an agent", nil, node("new", "8"), fwk.QueueSkip},
		{CPUSetFitName, added, "that names no CPUs", nil, node("new", "8"), fwk.Queue},
		{CPUSetFitName, added, "with too few CPUs", nil, node("tight", "8"), fwk.QueueSkip},
		{CPUSetFitName, deleted, "with CPUs of its own", owns, nil, fwk.Queue},
		{CPUSetFitName, deleted, "that wanted some", on("tight", exclusivePod("x", 1)), nil, fwk.Queue},
		{CPUSetFitName, deleted, "without", on("tight", testPod("x", "")), nil, fwk.QueueSkip},
		{CPUSetFitName, deleted, "without a node", exclusivePod("x", 1), nil, fwk.QueueSkip},
		{WeightSpreadName, added, "", nil, node("new", "8"), fwk.Queue},
		{WeightSpreadName, grown, "with more CPU", node("full", "8"), node("full", "16"), fwk.Queue},
		{WeightSpreadName, grown, "with less CPU", node("full", "8"), node("full", "4"), fwk.QueueSkip},
		{WeightSpreadName, deleted, "with a weight", on("full", weighted("x")), nil, fwk.Queue},
		{WeightSpreadName, deleted, "with a request", on("full", testPod("x", "")), nil, fwk.Queue},
		{WeightSpreadName, deleted, "that takes nothing", nothing, nil, fwk.QueueSkip},
		{WeightSpreadName, deleted, "of batch", on("full", batchPod()), nil, fwk.QueueSkip},
		{WeightSpreadName, deleted, "without a node", weighted("x"), nil, fwk.QueueSkip},
		{WeightSpreadName, deleted, "for which preemption made room", nominated, nil, fwk.Queue},
		{WeightSpreadName, shrunk, "on a node", on("full", weighted("x")), on("full", smaller), fwk.Queue},
		{WeightSpreadName, shrunk, "of memory", on("full", weighted("x")), on("full", weighted("x")), fwk.QueueSkip},
	} {
		r := newRefusals(t)
		events, err := r.plugins[test.refusal].EventsToRegister(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, e := range events {
			if e.QueueingHintFn == nil {
				t.Fatalf("%s has no hint for %v", test.refusal, e.Event)
			}
			if e.Event.Resource != test.event.Resource || e.Event.ActionType&test.event.ActionType == 0 {
				continue
			}
			found = true
			got, err := e.QueueingHintFn(klog.Background(), r.view.waiting[test.refusal].pod, test.old, test.now)
			if err != nil || got != test.want {
				t.Errorf("%s, %v %s: %v, %v, not %v", test.refusal, test.event, test.name, got, err, test.want)
			}
		}
		if !found {
			t.Errorf("%s does not register %v", test.refusal, test.event)
		}
	}
	for _, p := range []fwk.EnqueueExtensions{&loadAware{}, &weightSpread{}} {
		if events, err := p.EventsToRegister(context.Background()); len(events) > 0 || err != nil {
			t.Errorf("%s refuses nothing and registers %v: %v", p.Name(), events, err)
		}
	}
}

// TestTimeWakes checks that a pod which the free CPUs of a report refused is woken, once, when the report no longer
// counts: it is too old, or the node's agent is gone.
func TestTimeWakes(t *testing.T) {
	for name, passes := range map[string]time.Duration{"the report is old": time.Hour, "the agent is gone": time.Minute} {
		r := newRefusals(t)
		r.follow(r.view.waiting[BatchFitName].pod, r.view.waiting[CPUSetFitName].pod, r.view.waiting[WeightSpreadName].pod)
		r.view.count()
		if passes < time.Hour {
			r.view.losePod(readyAgent("tight"))
		}
		r.woken.names = nil
		r.view.started = r.view.started.Add(-passes)
		for range 2 {
			if r.view.count(); !slices.Equal(r.woken.names, []string{CPUSetFitName}) {
				t.Errorf("%s: it woke %v", name, r.woken.names)
			}
		}
	}
}

// follow gives the view the cluster's nodes and pods.
func (r *refusing) follow(pods ...*corev1.Pod) {
	index := func(objects ...any) cache.Indexer {
		all := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, o := range objects {
			if err := all.Add(o); err != nil {
				r.t.Fatal(err)
			}
		}
		return all
	}
	var all []any
	for _, p := range pods {
		all = append(all, p)
	}
	r.view.pods = corelisters.NewPodLister(index(all...))
	r.view.nodes = corelisters.NewNodeLister(index(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "tight"}}))
}

// TestGoneAreForgotten checks that a refusal is forgotten of a pod that is gone, that has a node, or whose name belongs
// to another pod now, even if the refusal came later.
func TestGoneAreForgotten(t *testing.T) {
	r := newRefusals(t)
	other := testPod(CPUSetFitName, "")
	other.UID = "other"
	r.follow(r.view.waiting[BatchFitName].pod, other, testPod(WeightSpreadName, "full"))
	r.view.refused(testPod("gone", ""), func(*waiter) {})
	r.view.count()
	if len(r.view.waiting) != 1 || r.view.waiting[BatchFitName] == nil {
		t.Errorf("%v are remembered", slices.Collect(maps.Keys(r.view.waiting)))
	}
}

// TestNewNodeIsRemembered checks that a node that was no help when it came wakes the pod once it is.
func TestNewNodeIsRemembered(t *testing.T) {
	r := newRefusals(t)
	b := r.plugins[BatchFitName].(*batchFit)
	if hint, _ := b.newNode(klog.Background(), batchPod(), nil, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "new"},
	}); hint != fwk.QueueSkip {
		t.Fatal("a node without an agent helps")
	}
	r.woken.names = nil
	if r.view.seePod(readyAgent("new")); !slices.Equal(r.woken.names, []string{BatchFitName}) {
		t.Errorf("its agent woke %v", r.woken.names)
	}
}

// TestReserveIsRemembered checks that a pod whose CPUs went to another pod between Filter and Reserve is woken when
// CPUs become free there.
func TestReserveIsRemembered(t *testing.T) {
	r := newRefusals(t)
	r.view.seePod(readyAgent("wide"))
	r.report("wide", freeOf("1-2", 2))
	c, ctx, state := r.plugins[CPUSetFitName].(*cpuSetFit), context.Background(), framework.NewCycleState()
	p := exclusivePod("late", 2)
	c.PreFilter(ctx, state, p, nil)
	if status := c.Filter(ctx, state, p, nodeInfo("wide", 8)); !status.IsSuccess() {
		t.Fatal(status)
	}
	r.view.ledger.Promise("wide", "other", 0, model.CPUs(1))
	if status := c.Reserve(ctx, state, p, "wide"); !status.IsRejected() {
		t.Fatalf("CPUs that are promised are reserved: %v", status)
	}
	r.woken.names = nil
	if r.report("wide", freeOf("1-3", 3)); !slices.Equal(r.woken.names, []string{"late"}) {
		t.Errorf("free CPUs woke %v", r.woken.names)
	}
}

// TestSignatures checks that pods are not scheduled by the result of an earlier one where weights, batch or CPU sets
// are involved.
func TestSignatures(t *testing.T) {
	signs := func(v *view, p *corev1.Pod) bool {
		for _, plugin := range []fwk.SignPlugin{
			weightLimit{&weightSpread{view: v}}, &batchFit{view: v}, &cpuSetFit{view: v}, &loadAware{view: v},
		} {
			if _, status := plugin.SignPod(context.Background(), p); !status.IsSuccess() {
				return false
			}
		}
		return true
	}
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	if !signs(v, testPod("p", "")) || signs(v, weighted("p")) || signs(v, batchPod()) || signs(v, exclusivePod("p", 1)) {
		t.Error("pods without any of them, and no others, are to be signed")
	}
	if v.seePod(onNode(weighted("heavy"), "n")); signs(v, testPod("p", "")) {
		t.Error("a pod beside weights is signed")
	}
}

// TestNodeSet checks that a set which would become large contains every node.
func TestNodeSet(t *testing.T) {
	var s nodeSet
	for i := range mostNodes {
		s.add(fmt.Sprint(i))
		s.add(fmt.Sprint(i))
	}
	if s.has("other") || !s.has("0") {
		t.Error("a small set does not have what was added")
	}
	if s.add("more"); !s.has("other") || s.names != nil {
		t.Error("a large set still has names")
	}
}
