package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

func nodeInfo(name string, cpu int64, pods ...*corev1.Pod) *framework.NodeInfo {
	n := framework.NewNodeInfo(pods...)
	n.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(cpu, resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("64Gi"),
		}},
	})
	return n
}

// TestScoresInAnyOrder checks that each node gets its own score, whatever the order in which the framework asks.
func TestScoresInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(1, seed))
		var nodes []fwk.NodeInfo
		for i := range r.IntN(9) {
			nodes = append(nodes, nodeInfo(fmt.Sprintf("n%d", i), 8))
		}
		var s nodeScores
		s.begin(nodes)
		var list fwk.NodeScoreList
		for i, n := range nodes {
			s.scores[i] = int64(i)
			list = append(list, fwk.NodeScore{Name: n.Node().Name})
		}
		if seed%2 == 0 {
			r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		}
		list = list[:len(list)-r.IntN(len(list)+1)/2]
		s.NormalizeScore(t.Context(), nil, nil, list)
		for _, got := range list {
			if got.Name != fmt.Sprintf("n%d", got.Score) {
				t.Fatalf("%s got the score of n%d", got.Name, got.Score)
			}
		}
	}
}

// TestSlots checks that a node keeps its value when its object changes, and that values of nodes that are gone do not
// stay.
func TestSlots(t *testing.T) {
	var s slots[int]
	a := nodeInfo("a", 8)
	value, isNew := s.find(a)
	if *value = 7; !isNew || s.named("a") == nil || s.named("b") != nil {
		t.Error("a new node is not new, or not found")
	}
	if value, isNew = s.find(a); isNew || *value != 7 {
		t.Errorf("found %d, new: %v", *value, isNew)
	}
	if value, isNew = s.find(nodeInfo("a", 8)); isNew || *value != 7 {
		t.Errorf("by another object found %d, new: %v", *value, isNew)
	}
	for i := range 1000 {
		s.find(nodeInfo(fmt.Sprint(i), 8))
		s.prune(1)
	}
	if len(s.values) > 200 || len(s.objects) > 200 {
		t.Errorf("%d values of one node", len(s.values))
	}
}

// TestSums compares what is kept of the weights on a node with all of its pods, over random changes of pods and
// policies.
func TestSums(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(2, seed))
		v := newView(v1alpha1.Namespace)
		v.namespaces = noNamespaces()
		info := nodeInfo("a", 8)
		w := &weightSpread{view: v}
		var pods []*corev1.Pod
		for step := range 30 {
			switch r.IntN(6) {
			case 0:
				v.seePolicy(policy(t, r.IntN(3) == 0))
			case 1:
				v.seeReport(nodeReport("a", map[string]any{"policy": []string{"p", "q"}[r.IntN(2)]}))
			case 2:
				if len(pods) > 0 {
					i := r.IntN(len(pods))
					if err := info.RemovePod(klog.Background(), pods[i]); err != nil {
						t.Fatal(err)
					}
					pods = slices.Delete(pods, i, i+1)
				}
			default:
				p := randomPod(r, fmt.Sprintf("pod%d", step))
				pods = append(pods, p)
				info.AddPod(p)
			}
			on := w.sumsOn(info)
			of, _ := v.policyOf("a")
			var want place.Sums
			var all []place.Weight
			for _, i := range info.GetPods() {
				weight := v.weightOf(i.GetPod(), of)
				all, want = append(all, weight), want.Add(&weight)
			}
			// The kubelet's shares are rounded, and no pod has fewer than two.
			if off := on.sums.Plain - want.Plain; on.sums.Weights != want.Weights || max(off, -off) > int64(3*len(pods)+2) {
				t.Fatalf("seed %d, step %d: the sums are %+v, not %+v", seed, step, on.sums, want)
			}
			if r.IntN(2) == 0 {
				if got := v.weightsOn(info).pods(v, info); !slices.Equal(got, all) {
					t.Fatalf("seed %d, step %d: the weights are %v, not %v", seed, step, got, all)
				}
			}
		}
	}
}

// TestBestEffortWeight checks that the weight of a pod that requests nothing costs its node nothing and refuses nobody.
func TestBestEffortWeight(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	v.seePolicy(policy(t, false))
	for _, name := range []string{"a", "b"} {
		v.seeReport(nodeReport(name, map[string]any{"policy": "p"}))
	}
	pod := func(name string) *corev1.Pod {
		p := weighted(name)
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		p.Annotations[v1alpha1.AnnotationCPUShare] = "262144"
		return p
	}
	w := weightLimit{&weightSpread{view: v, settings: place.DefaultSettings()}}
	nodes := []fwk.NodeInfo{nodeInfo("a", 8, weighted("first"), pod("best-effort")), nodeInfo("b", 8, weighted("first"))}
	ctx := context.Background()
	for _, p := range []*corev1.Pod{pod("new"), weighted("new")} {
		state := framework.NewCycleState()
		if _, status := w.PreFilter(ctx, state, p, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		if p.Annotations[v1alpha1.AnnotationCPUShare] == "262144" {
			if status := w.Filter(ctx, state, p, nodes[0]); !status.IsSuccess() {
				t.Errorf("a BestEffort pod is refused: %s", status.Message())
			}
		}
		if w.PreScore(ctx, state, p, nodes); w.scores[0] != w.scores[1] {
			t.Errorf("the weight of a BestEffort pod counts: scores %v", w.scores)
		}
	}
}

// randomPod returns a pod that may have a weight, sidecars, or no request.
func randomPod(r *rand.Rand, uid string) *corev1.Pod {
	p := testPod(uid, "a")
	if p.Spec.Containers[0].Resources = (corev1.ResourceRequirements{}); r.IntN(4) > 0 {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(r.Int64N(3000), resource.DecimalSI),
		}
	}
	if r.IntN(3) == 0 {
		p.Annotations = map[string]string{v1alpha1.AnnotationCPUShare: fmt.Sprint(1024 + r.IntN(8192))}
	}
	if r.IntN(3) == 0 {
		p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
	}
	if r.IntN(4) == 0 {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(r.Int64N(9000), resource.DecimalSI)},
		}}}
	}
	if r.IntN(6) == 0 {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	}
	return p
}

// TestRequests compares the requests of pods with those that Kubernetes counts.
func TestRequests(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 1000 {
		p := randomPod(r, "p")
		if r.IntN(5) == 0 {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("7"),
			}}
		}
		list := helpers.PodRequests(p, helpers.PodResourcesOptions{})
		want := model.Amount{CPU: list.Cpu().MilliValue(), Memory: list.Memory().Value()}
		if got := requests(p); got != want {
			t.Fatalf("%+v, not %+v, of %+v", got, want, p.Spec)
		}
	}
}

// TestSold checks that batch counts in whichever container it is requested.
func TestSold(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, move := range map[string]func(*corev1.PodSpec){
		"container":      func(*corev1.PodSpec) {},
		"init container": func(s *corev1.PodSpec) { s.InitContainers, s.Containers = s.Containers, nil },
		"sidecar": func(s *corev1.PodSpec) {
			s.InitContainers, s.Containers = s.Containers, nil
			s.InitContainers[0].RestartPolicy = &always
		},
	} {
		p := batchPod()
		move(&p.Spec)
		if batch, mid := sold(p); batch != (model.Amount{CPU: 1000}) || mid != (model.Amount{}) || !isBatch(p) {
			t.Errorf("%s: %+v of batch and %+v of mid", name, batch, mid)
		}
	}
	if p := testPod("p", ""); isBatch(p) {
		t.Error("a pod without batch is batch")
	}
}

// TestLoadScores checks that the plugin gives each node the score of the rule.
func TestLoadScores(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(4, seed))
		v := newView(v1alpha1.Namespace)
		l := &loadAware{view: v, settings: place.DefaultSettings()}
		l.loads = newLoads(v)
		var nodes []fwk.NodeInfo
		for i := range 6 {
			nodes = append(nodes, nodeInfo(fmt.Sprintf("n%d", i), 8))
		}
		p := randomPod(r, "new")
		for range 40 {
			name := fmt.Sprintf("n%d", r.IntN(6))
			switch r.IntN(5) {
			case 0:
				v.seeReport(nodeReport(name, reportOf(r.IntN(8))))
			case 1:
				v.loseReport(name)
			case 2:
				v.seePod(readyAgent(name))
			default:
				v.assume(name, testPod(fmt.Sprint("p", r.IntN(20)), ""), model.Amount{CPU: r.Int64N(1000)})
			}
			if r.IntN(2) == 0 { // or the same pod as before
				p = randomPod(r, "new")
			}
			if l.PreScore(context.Background(), nil, p, nodes).IsSkip() {
				continue
			}
			for i, info := range nodes {
				n, _ := lookup(v, info.Node().Name)
				nodeOf(info, &n)
				want, _ := place.LoadScore(&n, podOf(p), &l.settings)
				if got := l.scores[i]; got != want {
					t.Fatalf("seed %d: %s has the score %d, not %d", seed, info.Node().Name, got, want)
				}
			}
		}
	}
}

// TestBatchFollows checks, over random changes, that the plugin refuses and scores each node as the rule does.
func TestBatchFollows(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(5, seed))
		v := newView(v1alpha1.Namespace)
		v.activator = &woken{}
		v.started = time.Now().Add(-time.Hour)
		plugin, err := newBatchFit(v, BatchFitArgs{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := plugin.(*batchFit)
		var nodes []fwk.NodeInfo
		for i := range 6 {
			nodes = append(nodes, nodeInfo(fmt.Sprintf("n%d", i), 8))
		}
		p := batchPod()
		for step := range 40 {
			name := fmt.Sprintf("n%d", r.IntN(6))
			status := reportOf(r.IntN(8))
			switch r.IntN(7) {
			case 6:
				bound := batchPod()
				bound.Name, bound.UID = fmt.Sprint("bound", step), types.UID(fmt.Sprint("bound", step))
				nodes[r.IntN(6)].(*framework.NodeInfo).AddPod(bound)
			case 0:
				status["hot"] = "MemoryExhausted"
				v.seeReport(nodeReport(name, status))
			case 1:
				v.seeReport(nodeReport(name, status))
			case 2:
				v.loseReport(name)
			case 3:
				v.losePod(readyAgent(name))
			default:
				v.seePod(readyAgent(name))
			}
			if r.IntN(2) == 0 { // or the same pod as before
				p = batchPod()
				p.Spec.Containers[0].Resources.Requests[v1alpha1.ResourceBatchCPU] =
					*resource.NewQuantity(1000*(1+r.Int64N(3)), resource.DecimalSI)
			}
			ctx, state := context.Background(), framework.NewCycleState()
			if _, status := b.PreFilter(ctx, state, p, nodes); !status.IsSuccess() {
				t.Fatal(status.Message())
			}
			if status := b.PreScore(ctx, state, p, nodes); !status.IsSuccess() {
				t.Fatal(status.Message())
			}
			for i, info := range nodes {
				n, _ := lookup(v, info.Node().Name)
				nodeOf(info, &n)
				n.Sold = soldOn(info, soldNames())
				want := place.BatchFilter(&n, &b.settings)
				if got := b.Filter(ctx, state, p, info); got.IsSuccess() != (want.Code == "") {
					t.Fatalf("seed %d, %s: %v, and the rule says %q", seed, info.Node().Name, got, want.Code)
				}
				if score, _ := place.BatchScore(&n, podOf(p), &b.settings); score != b.scores[i] {
					t.Fatalf("seed %d, %s: score %d, not %d", seed, info.Node().Name, b.scores[i], score)
				}
			}
		}
	}
}

// TestBatchLosesAgent checks that a node without a report takes no batch once its agent is gone for longer than the
// grace.
func TestBatchLosesAgent(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	v.activator = &woken{}
	plugin, err := newBatchFit(v, BatchFitArgs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, nodes := plugin.(*batchFit), []fwk.NodeInfo{nodeInfo("a", 8)}
	takes := func(after time.Duration) bool {
		t.Helper()
		v.started = v.started.Add(-after)
		ctx, state, p := context.Background(), framework.NewCycleState(), batchPod()
		if _, status := b.PreFilter(ctx, state, p, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		status := b.Filter(ctx, state, p, nodes[0])
		b.PreScore(ctx, state, p, nodes)
		return status.IsSuccess()
	}
	v.seePod(readyAgent("a"))
	if !takes(time.Hour) || !takes(2*time.Second) {
		t.Fatal("a node with an agent is refused")
	}
	v.losePod(readyAgent("a"))
	for range 2 { // before and after it was scored without its agent
		if !takes(2 * time.Second) {
			t.Error("the node is refused within the grace")
		}
	}
	if takes(time.Minute) {
		t.Error("the node still takes batch")
	}
}

// policy returns the policy p. It gives a weight to all pods, or to none.
func policy(t *testing.T, weights bool) *unstructured.Unstructured {
	t.Helper()
	text := `{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: p}, spec: {mode: Enforce,
  weight: {max: 262144}, privileges: [{namespaceSelector: {}, allow: [ShareCPUs, ExclusiveCPUs]}]}}`
	if weights {
		text = strings.Replace(text, "mode: Enforce",
			"mode: Enforce, podDefaults: [{selector: {}, cpuShare: 3072}]", 1)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func noNamespaces() corelisters.NamespaceLister {
	return corelisters.NewNamespaceLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
}

// readyAgent returns the pod of a node's agent.
func readyAgent(node string) *corev1.Pod {
	p := testPod("agent-"+node, node)
	p.Namespace = v1alpha1.Namespace
	p.Labels = map[string]string{"app.kubernetes.io/name": "waterline-agent"}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	return p
}

// reportOf returns the status of a report of a node of 16 CPUs, of which online pods use some.
func reportOf(online int) map[string]any {
	account := func(capacity string, online int) map[string]any {
		zero := map[string]any{"mid": "0", "batch": "0"}
		return map[string]any{
			"offer": zero, "bound": zero, "allowance": capacity, "capacity": capacity, "ceiling": capacity,
			"system": "0", "online": strconv.Itoa(online), "peaks": map[string]any{"hour": "0", "day": "0"},
		}
	}
	return map[string]any{
		"policy": "bench", "mode": "Enforce", "selling": "Open", "changed": time.Now().UTC().Format(time.RFC3339),
		"cpu": account("16", online), "memory": account("64Gi", 0),
	}
}
