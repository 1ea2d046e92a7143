package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// requesters are agents that request evictions, and write the requests like agents.
type requesters struct {
	t        *testing.T
	reports  map[string]*actkube.Reports // by node
	mu       sync.Mutex
	requests map[string]*corev1.Pod // by node
}

// newRequesters lets agents renew their requests each second, until the test ends.
func newRequesters(t *testing.T, nodes ...string) *requesters {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kube.NewCustomClient(config)
	if err != nil {
		t.Fatal(err)
	}
	a := &requesters{t: t, reports: map[string]*actkube.Reports{}, requests: map[string]*corev1.Pod{}}
	for _, node := range nodes {
		a.reports[node] = actkube.NewReports(client, node)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ; ctx.Err() == nil; <-tick.C {
			a.mu.Lock()
			requests := maps.Clone(a.requests)
			a.mu.Unlock()
			for node, pod := range requests {
				a.write(ctx, node, pod)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

// write writes the current requests once.
func (a *requesters) write(ctx context.Context, node string, pod *corev1.Pod) {
	report := model.Report{Policy: "evicts", Mode: model.ModeEnforce}
	if pod != nil {
		report.Hot = model.MemoryExhausted
		report.Evict = &model.Eviction{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Reason: model.Reason{
			Code: model.MemoryExhausted, Operands: []model.Operand{{Name: "left", Value: 1 << 20, Unit: model.UnitBytes}},
		}}
	}
	if err := a.reports[node].Write(ctx, "", report); err != nil && ctx.Err() == nil {
		a.t.Errorf("the report of %s: %v", node, err)
	}
}

// request lets a node request the eviction of a pod from now on.
func (a *requesters) request(node, pod string) {
	a.t.Helper()
	p := object[corev1.Pod](a.t, "pod", pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[node] = &p
}

// batchPod makes a pod of class BE that runs on a node, with further metadata.
func batchPod(m *managed, name, node, metadata string) {
	m.t.Helper()
	apply(m.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, %s}
spec: {nodeName: %s, terminationGracePeriodSeconds: 77, tolerations: [{operator: Exists}], containers: [{name: c, image: none}]}
`, name, metadata, node))
	m.patch("/api/v1/namespaces/default/pods/"+name+"/status",
		`{"status":{"phase":"Running","conditions":[{"type":"ContainersReady","status":"True"}]}}`)
}

const be = "labels: {waterline.io/qos: BE, app: batch}"

func leaves(t *testing.T, pod string) bool {
	t.Helper()
	return object[corev1.Pod](t, "pod", pod).DeletionTimestamp != nil
}

// becomes waits for the verdict about a node's request. The verdict is in the node's report until the request is judged
// again, possibly only for a second, so the recorded changes of reports count too.
func (m *managed) becomes(node, reason string, changes func() []change) {
	m.t.Helper()
	judged := func(report v1alpha1.NodeReport) (bool, string) {
		c := meta.FindStatusCondition(report.Status.Conditions, v1alpha1.ConditionEvicted)
		return c != nil && c.Reason == reason && (c.Status == "True") == (reason == "Evicted"), fmt.Sprintf("%+v", c)
	}
	eventually(m.t, "the verdict about "+node+" is "+reason, func() (bool, string) {
		for _, c := range changes() {
			var report v1alpha1.NodeReport
			if err := json.Unmarshal(c.object, &report); err != nil {
				m.t.Fatal(err)
			}
			if is, _ := judged(report); is && c.name == node {
				return true, ""
			}
		}
		return judged(object[v1alpha1.NodeReport](m.t, "nodereport", node))
	})
}

// TestAPIEvict lets nodes request evictions: of a pod that a PodDisruptionBudget keeps until it is removed, of two pods
// of one owner, of more pods than may leave a node, of pods that are not batch or on another node, and a request of a
// dead agent. Meanwhile another manager takes over.
func TestAPIEvict(t *testing.T) {
	m := newManaged(t, "--set", "manager.webhook.enabled=false")
	nodes := []string{"guarded", "first", "second", "many", "liar", "rude", "dead"}
	for _, node := range nodes {
		m.node(node, "", "evicts: here")
	}
	apply(t, `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: evicts}
spec: {mode: Enforce, nodeSelector: {matchLabels: {evicts: here}}, protect: {eviction: {perNodePerHour: 2}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: workload}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: keeps}, spec: {minAvailable: 1, selector: {matchLabels: {app: kept}}}}
`)
	owner := fmt.Sprintf("%s, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: workload, uid: %s, "+
		"controller: true}]", be, object[corev1.ConfigMap](t, "configmap", "workload").UID)
	batchPod(m, "kept", "guarded", "labels: {waterline.io/qos: BE, app: kept}")
	batchPod(m, "one", "first", owner)
	batchPod(m, "two", "second", owner)
	for i := range 3 {
		batchPod(m, fmt.Sprint("many-", i), "many", be)
	}
	batchPod(m, "online", "rude", "labels: {app: web}")
	batchPod(m, "left", "dead", be)
	dead := object[corev1.Pod](t, "pod", "left")

	a := newRequesters(t, nodes...)
	a.write(t.Context(), "dead", &dead)
	// In this period a machine may stand still, and budgets are still used up.
	const period = 40 * time.Second
	args := []string{"--webhook=", "--evictions-per-owner=1", "--evictions=100", "--eviction-period=" + period.String()}
	changes := m.admin.record(t, strings.TrimSuffix(reports, "/"))
	first := m.manager(args...)
	for node, pod := range map[string]string{"guarded": "kept", "first": "one", "second": "two", "many": "many-0",
		"liar": "many-2", "rude": "online"} {
		a.request(node, pod)
	}

	t.Log("nodes cannot evict other nodes' pods, or pods that are not batch")
	m.becomes("liar", "NotItsPod", changes)
	m.becomes("rude", "NotBatch", changes)

	t.Log("a PodDisruptionBudget keeps a pod, and its owner gets an event")
	m.becomes("guarded", "DisruptionBudget", changes)
	eventually(t, "an event names the budget", func() (bool, string) {
		out := kubectl(t, "get", "events", "--field-selector", "involvedObject.name=kept", "-o",
			"jsonpath={.items[*].reason}")
		return strings.Contains(out, "EvictionWaits"), out
	})

	t.Log("the second pod of one owner waits")
	eventually(t, "one of two pods of an owner leaves", func() (bool, string) {
		return leaves(t, "one") ||
			leaves(t, "two"), m.metrics()
	})

	t.Log("no more pods leave a node than its policy allows")
	m.becomes("many", "Evicted", changes)
	a.request("many", "many-1")
	eventually(t, "the second leaves", func() (bool, string) { return leaves(t, "many-1"), "" })
	if grace := object[corev1.Pod](t, "pod", "many-1").DeletionGracePeriodSeconds; grace == nil || *grace != 77 {
		t.Errorf("its grace period is not its own: %v", grace)
	}
	a.request("many", "many-2")
	for _, outcome := range []string{"BudgetOfNode", "BudgetOfOwner", "DisruptionBudget", "NotItsPod", "NotBatch",
		"NotSeenToChange"} {
		series := `waterline_manager_evictions_total{outcome="` + outcome + `"} `
		eventually(t, "an eviction is counted as "+outcome, func() (bool, string) {
			all := m.metrics()
			return strings.Contains(all, series) && !strings.Contains(all, series+"0\n"), all
		})
	}

	t.Log("another manager takes over; the budget is removed")
	first.stop(syscall.SIGTERM)
	kubectl(t, "delete", "pdb", "keeps")
	changes = m.admin.record(t, strings.TrimSuffix(reports, "/"))
	second := m.manager(args...)
	m.becomes("dead", "NotSeenToChange", changes)
	for _, pod := range []string{"kept", "one", "two", "many-2"} {
		eventually(t, pod+" leaves", func() (bool, string) { return leaves(t, pod), m.metrics() })
	}
	one, two := object[corev1.Pod](t, "pod", "one"), object[corev1.Pod](t, "pod", "two")
	// The API server's times, in whole seconds.
	if apart := two.DeletionTimestamp.Sub(one.DeletionTimestamp.Time).Abs(); apart < period-time.Second {
		t.Errorf("two pods of an owner leave %s apart, and its budget is one in %s", apart, period)
	}
	m.becomes("guarded", "Evicted", changes)
	for _, pod := range []string{"online", "left"} {
		if leaves(t, pod) {
			t.Errorf("%s was evicted", pod)
		}
	}
	evicted := strings.Count(first.log.String()+second.log.String(), "a pod is evicted")
	if evicted != 6 {
		t.Errorf("6 pods leave, and %d evictions were made", evicted)
	}
}
