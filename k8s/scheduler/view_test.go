package scheduler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

func nodeReport(name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion, "kind": "NodeReport", "metadata": map[string]any{"name": name}, "status": status,
	}}
}

func testPod(uid, node string) *corev1.Pod {
	two := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "shop", UID: types.UID(uid)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: two, Limits: two},
		}}},
	}
}

func lookup(v *view, name string) (place.Node, *place.Report) {
	var n place.Node
	r := &place.Report{}
	s := place.DefaultSettings()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.look(name, &n, r, &s)
	return n, r
}

// TestReports checks what counts of a report, and what of one that cannot be read.
func TestReports(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	amounts := func(capacity, online string) map[string]any {
		return map[string]any{
			"offer": map[string]any{"mid": "0", "batch": "1"}, "bound": map[string]any{"mid": "0", "batch": "0"},
			"allowance": "1", "capacity": capacity, "ceiling": capacity, "system": "100m", "online": online,
			"peaks":     map[string]any{"hour": "3", "day": "4"},
			"otherDays": map[string]any{"fourHours": "2", "eightHours": "2500m"},
		}
	}
	changed := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	status := map[string]any{
		"cpu": amounts("8", "2500m"), "memory": amounts("16Gi", "1Gi"), "selling": "Open", "changed": changed,
		"cpuSets": map[string]any{"maxExclusive": int64(3), "numaNodes": []any{
			map[string]any{"id": int64(0), "free": "2-3,6", "cores": []any{"0-3/4-7"}},
		}},
	}
	v.seeReport(nodeReport("a", status))
	n, r := lookup(v, "a")
	want := place.Account{
		Capacity: 8000, Ceiling: 8000, System: 100, Online: 2500, PeakHour: 3000, PeakDay: 4000,
		OtherFour: 2000, OtherEight: 2500,
	}
	if n.Report == nil || n.Unreadable || r.CPU != want || r.Memory.Capacity != 16<<30 || len(r.Zones) != 1 {
		t.Errorf("%+v %+v", n, r)
	}
	if r.Age < 55*time.Second || r.Age > time.Hour { // a machine that stands still makes it older
		t.Errorf("age %s", r.Age)
	}
	s := place.DefaultSettings()
	v.agents.ready["a"] = 1
	if _, zones, exclusive := v.cpusOf("a", &s); exclusive != 3 || len(zones[0].Cores) != 2 {
		t.Errorf("%+v %d", zones, exclusive)
	}
	other := nodeReport("a", status)
	other.SetAPIVersion("waterline.io/v2")
	v.seeReport(other)
	if n, _ := lookup(v, "a"); !n.Unreadable {
		t.Error("a report of another version counts")
	}
	bad := nodeReport("b", map[string]any{"cpuSets": map[string]any{"maxExclusive": int64(1), "numaNodes": []any{
		map[string]any{"id": int64(0), "free": "99", "cores": []any{"0-3"}},
	}}})
	v.seeReport(bad)
	if n, _ := lookup(v, "b"); !n.Unreadable {
		t.Error("a report with a CPU that the node lacks counts")
	}
	v.loseReport("a")
	if n, _ := lookup(v, "a"); n.Report != nil {
		t.Error("a report stays after it was deleted")
	}
}

// TestPromises checks that CPUs are promised once, and that a restart finds out what was promised.
func TestPromises(t *testing.T) {
	first, second := newView(v1alpha1.Namespace), newView(v1alpha1.Namespace)
	status := freeOf("0-7", 7)
	status["policy"], status["changed"] = "p", time.Now().UTC().Format(time.RFC3339)
	s := place.DefaultSettings()
	for _, v := range []*view{first, second} {
		v.namespaces = noNamespaces()
		v.seePolicy(policy(t, false))
		v.seeReport(nodeReport("a", status))
	}
	want := askOf(2)
	var all model.CPUSet
	for _, uid := range []string{"p", "q", "r"} {
		pod := testPod(uid, "")
		if !first.promise("a", pod, &want, &s) {
			t.Fatalf("%s gets no CPUs", uid)
		}
		cpus := first.promised(pod)
		if cpus.Len() != 2 || cpus.Overlaps(all) {
			t.Errorf("%s has %s beside %s", uid, cpus, all)
		}
		all = all.Or(cpus)
		bound := exclusivePod(uid, 2)
		bound.Spec.NodeName = "a"
		bound.Annotations[v1alpha1.AnnotationCPUSetHint] = cpus.String()
		second.seePod(bound)
	}
	if got := second.ledger.Promised("a"); got != all {
		t.Errorf("after a restart %s is promised, not %s", got, all)
	}
	if large := askOf(4); second.promise("a", testPod("s", ""), &large, &s) {
		t.Error("four CPUs are promised of two")
	}
	if second.losePod(testPod("p", "a")); second.ledger.Promised("a").Len() != 4 {
		t.Error("the CPUs of a pod that left stay promised")
	}
}

// TestOwnCPUs checks which CPUs belong to a pod.
func TestOwnCPUs(t *testing.T) {
	v := newView(v1alpha1.Namespace)
	v.namespaces = noNamespaces()
	v.seePolicy(policy(t, false))
	v.seeReport(nodeReport("a", map[string]any{"policy": "p"}))
	v.seeReport(nodeReport("strict", map[string]any{"policy": "q"}))
	none, promised := model.CPUSet{}, model.CPUs(1, 2)
	hinted := func(node, hint string) *corev1.Pod {
		p := exclusivePod("p", 2)
		p.Spec.NodeName, p.Annotations[v1alpha1.AnnotationCPUSetHint] = node, hint
		return p
	}
	condition := func(status corev1.ConditionStatus, message string) *corev1.Pod {
		p := hinted("a", "4-5")
		p.Status.Conditions = []corev1.PodCondition{{Type: v1alpha1.ConditionCPUSet, Status: status, Message: message}}
		return p
	}
	home := hinted("a", "4-5")
	home.Annotations[v1alpha1.AnnotationCPUManager] = "share"
	home.Spec.Containers[0].Resources.Requests = nil
	plain := testPod("p", "a")
	plain.Annotations = map[string]string{v1alpha1.AnnotationCPUSetHint: "4-5"}
	for name, test := range map[string]struct {
		pod            *corev1.Pod
		promised, want model.CPUSet
	}{
		"of the agent":            {condition(corev1.ConditionTrue, "c 6-7"), promised, model.CPUs(6, 7)},
		"of two containers":       {condition(corev1.ConditionTrue, "c 6-7, d 9,11"), promised, model.CPUs(6, 7, 9, 11)},
		"of the pod as a whole":   {condition(corev1.ConditionTrue, "6-7"), promised, model.CPUs(6, 7)},
		"none, says the agent":    {condition(corev1.ConditionFalse, "too few"), promised, none},
		"promised":                {testPod("p", "a"), promised, promised},
		"hinted after a restart":  {hinted("a", "4-5"), none, model.CPUs(4, 5)},
		"hinted in mode share":    {home, none, model.CPUs(4, 5)},
		"hinted after a promise":  {hinted("a", "4-5"), promised, promised},
		"hinted too many":         {hinted("a", "4-6"), none, none},
		"hinted too few":          {hinted("a", "4"), none, none},
		"hinted nonsense":         {hinted("a", "a-b"), none, none},
		"hinted and asks nothing": {plain, none, none},
		"hinted, may have none":   {hinted("strict", "4-5"), none, none},
	} {
		if got := v.ownCPUs(test.pod, test.promised); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// TestAgents checks when a node's agent counts as gone.
func TestAgents(t *testing.T) {
	a := newAgents(v1alpha1.Namespace)
	if got := a.of("a", time.Hour); !got.Unknown {
		t.Error("without any agent, an agent is known")
	}
	pod := testPod("agent", "a")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
	if !a.see(pod, time.Hour) || a.of("a", time.Hour) != (place.Agent{}) {
		t.Error("the agent is not ready")
	}
	if got := a.of("b", time.Hour); got.Unknown || got.Gone != time.Hour {
		t.Errorf("a node without an agent: %+v", got)
	}
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	a.see(pod, 2*time.Hour)
	if got := a.of("a", 2*time.Hour+time.Minute); got.Gone != time.Minute {
		t.Errorf("an agent that is not ready: %+v", got)
	}
	pod.Status.Conditions[0].Status = corev1.ConditionTrue
	if !a.see(pod, 3*time.Hour) || a.see(pod, 3*time.Hour) {
		t.Error("the agent's return is not seen once")
	}
	a.drop("agent", 4*time.Hour)
	if got := a.of("a", 5*time.Hour); got.Gone != time.Hour || got.Unknown {
		t.Errorf("an agent that was deleted: %+v", got)
	}
}

func askOf(cpus int) node.Ask { return node.Ask{CPUs: []int{cpus}, Exclusive: true} }
