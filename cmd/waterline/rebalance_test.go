package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/rebalance"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// evictions is an API server with pods, on which a replacement lands at once where the test says.
type evictions struct {
	mu      sync.Mutex
	pods    []corev1.Pod
	lands   string // node of replacements; "": they are never ready
	answer  int    // status of evictions; 0: they succeed
	evicted []string
}

func (e *evictions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: e.pods,
		})
		return
	}
	var eviction policyv1.Eviction
	if err := json.NewDecoder(r.Body).Decode(&eviction); err != nil || eviction.DeleteOptions.Preconditions.UID == nil ||
		!strings.HasSuffix(r.URL.Path, "/pods/"+eviction.Name+"/eviction") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	e.evicted = append(e.evicted, eviction.Name)
	if e.answer != 0 {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(e.answer)}
		switch e.answer {
		case http.StatusNotFound:
			status.Reason = metav1.StatusReasonNotFound
		case http.StatusTooManyRequests:
			status.Reason = metav1.StatusReasonTooManyRequests
			status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}}
		}
		w.WriteHeader(e.answer)
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	i := slices.IndexFunc(e.pods, func(p corev1.Pod) bool { return p.Name == eviction.Name })
	replacement := *e.pods[i].DeepCopy()
	replacement.Name, replacement.UID = "new-"+replacement.Name, "new-"+replacement.UID
	if replacement.Spec.NodeName = e.lands; e.lands == "" {
		replacement.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	e.pods[i] = replacement
	_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
}

// TestCarryOut carries out two moves away from a hot node, and checks what happens when replacements land elsewhere or
// nowhere, and when evictions are refused.
func TestCarryOut(t *testing.T) {
	for name, test := range map[string]struct {
		lands   string
		answer  int
		ready   int    // pods that are still ready; 0: all
		done    string // outcomes
		evicted int
		err     string
	}{
		"as planned":     {lands: "b", done: "Moved Moved", evicted: 2},
		"the same node":  {lands: "a", done: "SameNode", evicted: 1, err: "SameNode"},
		"a full node":    {lands: "c", done: "HeatsNode", evicted: 1, err: "HeatsNode"},
		"a strange node": {lands: "z", done: "UnknownNode", evicted: 1, err: "stopped after 0 moves"},
		"nowhere":        {done: "NoReplacement", evicted: 1, err: "new-web-0 is Pending"},
		"refused":        {answer: http.StatusTooManyRequests, done: "Refused Refused Refused", evicted: 3},
		"gone":           {answer: http.StatusNotFound, done: "Gone Gone", evicted: 2},
		"one is ready":   {ready: 1, answer: http.StatusNotFound, done: "OnlyReplica Gone Gone", evicted: 2},
		"broken":         {answer: http.StatusForbidden, done: "Failed", evicted: 1, err: "evicting pod shop/web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			api := &evictions{lands: test.lands, answer: test.answer}
			in := rebalance.Input{Settings: rebalance.DefaultSettings(), Nodes: []rebalance.Node{
				{Name: "a", CPU: 8000, Ceiling: 4000, Online: 7500, Slots: 9, Allocatable: model.Amount{CPU: 8000, Memory: 1}},
				{Name: "b", CPU: 8000, Ceiling: 7000, Online: 0, Slots: 9, Allocatable: model.Amount{CPU: 8000, Memory: 1}},
				{Name: "c", CPU: 8000, Ceiling: 7000, Online: 6900, Slots: 9, Allocatable: model.Amount{CPU: 8000, Memory: 1}},
			}}
			in.Settings.PerOwner = 2
			for i := range 3 {
				p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i),
					UID: types.UID(fmt.Sprint("uid-", i)), OwnerReferences: controlledBy("StatefulSet", "web")}}
				p.Spec.NodeName, p.Status.Phase = "a", corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				if test.ready > 0 && i >= test.ready {
					p.Status.Conditions = nil
				}
				api.pods = append(api.pods, p)
				in.Pods = append(in.Pods, rebalance.Pod{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: "a",
					Owner: kube.Owner(&p), Online: true, Ready: true, Age: time.Hour, Request: model.Amount{CPU: 2000}})
			}
			server := httptest.NewServer(api)
			defer server.Close()
			client, err := kube.NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			m := mover{core: client, wait: 300 * time.Millisecond, every: 10 * time.Millisecond, say: t.Logf}
			done, err := m.carryOut(context.Background(), in)
			var outcomes []string
			for _, d := range done {
				outcomes = append(outcomes, d.Outcome)
			}
			if got := strings.Join(outcomes, " "); got != test.done || len(api.evicted) != test.evicted {
				t.Errorf("outcomes %s, evicted %v", got, api.evicted)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

func controlledBy(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, Controller: &yes}}
}

// TestRebalanceNodes checks why nodes take no part, or receive no pods.
func TestRebalanceNodes(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		change         func(n *corev1.Node, r *v1alpha1.NodeReport)
		absent, closed rebalance.Code
	}{
		"well":      {func(*corev1.Node, *v1alpha1.NodeReport) {}, "", ""},
		"not ready": {func(n *corev1.Node, _ *v1alpha1.NodeReport) { n.Status.Conditions = nil }, rebalance.NodeNotReady, ""},
		"no report": {func(_ *corev1.Node, r *v1alpha1.NodeReport) { r.Name = "other" }, rebalance.ReportMissing, ""},
		"withdrawn": {func(_ *corev1.Node, r *v1alpha1.NodeReport) {
			r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionWithdrawn, Status: metav1.ConditionTrue}}
		}, rebalance.NodeWithdrawn, ""},
		"disabled": {func(_ *corev1.Node, r *v1alpha1.NodeReport) { r.Status.Mode = "Disabled" },
			rebalance.NodeDisabled, ""},
		"no account": {func(_ *corev1.Node, r *v1alpha1.NodeReport) { r.Status.CPU = nil }, rebalance.ReportInvalid, ""},
		"no time":    {func(_ *corev1.Node, r *v1alpha1.NodeReport) { r.Status.Changed = nil }, rebalance.ReportInvalid, ""},
		"cordoned": {func(n *corev1.Node, _ *v1alpha1.NodeReport) { n.Spec.Unschedulable = true }, "",
			rebalance.Unschedulable},
		"hot": {func(_ *corev1.Node, r *v1alpha1.NodeReport) { r.Status.Hot = "MemoryExhausted" }, "",
			rebalance.NodeExhausted},
		"short of memory": {func(n *corev1.Node, _ *v1alpha1.NodeReport) {
			n.Status.Conditions = append(n.Status.Conditions,
				corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue})
		}, "", rebalance.PressureIsHigh},
	} {
		t.Run(name, func(t *testing.T) {
			n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("7500m"), "pods": resource.MustParse("110")}
			r := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			changed := metav1.NewTime(at.Add(-time.Minute))
			r.Status.Changed = &changed
			r.Status.CPU = &v1alpha1.ResourceReport{Capacity: resource.MustParse("8"), Ceiling: resource.MustParse("5600m"),
				System: resource.MustParse("300m"), Online: resource.MustParse("2"),
				Peaks: v1alpha1.PeakQuantities{Hour: resource.MustParse("2500m")}}
			test.change(&n, r)
			f := &clusterFacts{at: at, reports: map[string]*v1alpha1.NodeReport{r.Name: r}}
			got := f.node(&n)
			want := rebalance.Node{Name: "n", Slots: 110, Allocatable: model.Amount{CPU: 7500}, Absent: test.absent,
				Closed: test.closed}
			if test.absent == "" {
				want.Age, want.CPU, want.Ceiling, want.System, want.Online, want.Peak = time.Minute, 8000, 5600, 300, 2000, 2500
			}
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestRebalancePods checks what is read of pods: their budgets, the nodes that they may run on, their weights within
// the policy, and why they stay.
func TestRebalancePods(t *testing.T) {
	labelled := func(name string, labels map[string]string, taints ...corev1.Taint) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	budget := func(name, app string, room int32) policyv1.PodDisruptionBudget {
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 2}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		b.Status.DisruptionsAllowed, b.Status.ObservedGeneration = room, 2
		return b
	}
	late := budget("late", "late", 3)
	late.Status.ObservedGeneration = 1
	f := &clusterFacts{
		nodes: []corev1.Node{
			labelled("c", map[string]string{"disk": "ssd"}), labelled("a", map[string]string{"disk": "ssd"}),
			labelled("b", nil), labelled("t", map[string]string{"disk": "ssd"},
				corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}),
		},
		reports: map[string]*v1alpha1.NodeReport{"a": {Status: v1alpha1.NodeReportStatus{Policy: "generous"}}},
		policies: map[string]*model.Policy{"generous": {Mode: model.ModeEnforce, Weight: model.WeightPolicy{Max: 262144},
			Privileges: []model.PrivilegeRule{{Allow: model.Privileges()}}}},
		namespaces: map[string]map[string]string{},
		budgets: []policyv1.PodDisruptionBudget{budget("web", "web", 1), budget("two", "two", 1), budget("more", "two", 1),
			late},
		at: time.Now(),
	}
	pod := func(uid, app, node string, change func(*corev1.Pod)) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid),
			Labels: map[string]string{"app": app}, OwnerReferences: controlledBy("StatefulSet", app),
			Annotations: map[string]string{v1alpha1.AnnotationCPUShare: "10240"}}}
		p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}
		change(&p)
		f.pods = append(f.pods, p)
	}
	pod("p0", "web", "a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} })
	pod("p1", "two", "b", func(*corev1.Pod) {})
	pod("p2", "late", "b", func(p *corev1.Pod) { p.OwnerReferences = nil })
	pod("p3", "other", "b", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	pod("job", "job", "b", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })
	pod("be", "best-effort", "a", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil })
	for node, uid := range []string{"own", "shared"} {
		pod(uid, "cpus", []string{"a", "b"}[node], func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationCPUManager: "exclusive"}
			p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
		})
	}
	pod("p4", "done", "b", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pod("p5", "pending", "", func(*corev1.Pod) {})
	in := f.input(rebalance.DefaultSettings())
	var got []string
	for _, p := range in.Pods {
		got = append(got, fmt.Sprint(p.UID, " ", p.Budget, " ", p.Where, " ", p.Weight, " ", p.Kept, " ", p.Request.CPU))
	}
	want := []string{
		"p0 shop/web [a c] 10240  2000",
		"p1 several PodDisruptionBudgets [a b c] 0  2000", // without a policy no weight counts
		"p2 shop/late [a b c] 0 NoController 2000",
		"p3  [a b c] 0 LocalData 2000",
		"job  [a b c] 0 RunsToEnd 2000",
		"be  [a b c] 0  0",
		"own  [a b c] 0 Constrained 2000",
		"shared  [a b c] 0  2000", // the policy of its node gives no CPUs
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	rooms := map[string]int{}
	for _, b := range in.Budgets {
		rooms[b.Name] = b.Room
	}
	if rooms["shop/web"] != 1 || rooms["shop/late"] != 0 {
		t.Errorf("rooms %v: a budget whose room is not computed yet has none", rooms)
	}
}
