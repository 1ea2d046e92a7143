package uninstall

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/test/managertest"
)

// leaving is an API server with nodes, agents, reports and one policy.
type leaving struct {
	mu      sync.Mutex
	policy  v1alpha1.ColocationPolicy
	nodes   []corev1.Node
	agents  []corev1.Pod
	reports []v1alpha1.NodeReport
	pools   []v1alpha1.WorkerPool
}

// add adds a node with an agent.
func (l *leaving) add(name string, ready bool, s v1alpha1.NodeReportStatus) {
	condition := corev1.ConditionFalse
	if ready {
		condition = corev1.ConditionTrue
	}
	l.nodes = append(l.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: condition}},
	}})
	l.agents = append(l.agents, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + name}, Spec: corev1.PodSpec{NodeName: name},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, // also after its kubelet died
		}},
	})
	l.reports = append(l.reports, v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: s})
}

// ServeHTTP answers what the manager asks.
func (l *leaving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	kind := func(k, version string) metav1.TypeMeta { return metav1.TypeMeta{Kind: k, APIVersion: version} }
	var answer any
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/colocationpolicies/web") && r.Method == http.MethodPatch:
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"Disabled"`) {
			l.policy.Spec.Mode, l.policy.Generation = "Disabled", l.policy.Generation+1
		}
		l.policy.TypeMeta = kind("ColocationPolicy", v1alpha1.GroupVersion)
		answer = &l.policy
	case strings.HasSuffix(path, "/colocationpolicies"):
		answer = &v1alpha1.ColocationPolicyList{
			TypeMeta: kind("ColocationPolicyList", v1alpha1.GroupVersion), Items: []v1alpha1.ColocationPolicy{l.policy},
		}
	case strings.HasSuffix(path, "/nodereports"):
		answer = &v1alpha1.NodeReportList{TypeMeta: kind("NodeReportList", v1alpha1.GroupVersion), Items: l.reports}
	case strings.HasSuffix(path, "/workerpools") && l.pools != nil:
		answer = &v1alpha1.WorkerPoolList{TypeMeta: kind("WorkerPoolList", v1alpha1.GroupVersion), Items: l.pools}
	case strings.HasSuffix(path, "/nodes"):
		answer = &corev1.NodeList{TypeMeta: kind("NodeList", "v1"), Items: l.nodes}
	case strings.HasSuffix(path, "/w/pods") && r.URL.Query().Get("labelSelector") == fleet.AgentLabel:
		answer = &corev1.PodList{TypeMeta: kind("PodList", "v1"), Items: l.agents}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestFarewell checks that policies are disabled, that it waits for every node, and that it names those that are not
// restored in time, each with its reason.
func TestFarewell(t *testing.T) {
	l := &leaving{}
	l.policy.Name, l.policy.Generation, l.policy.Spec.Mode = "web", 3, "Enforce"
	client, custom := managertest.Serve(t, l)
	f := Farewell{
		Core: client.CoreV1().RESTClient(), Custom: custom, Namespace: "w", Log: slog.New(slog.DiscardHandler),
	}
	done := v1alpha1.NodeReportStatus{Policy: "web", PolicyGeneration: 4, Mode: "Disabled"}
	change := func(f func(s *v1alpha1.NodeReportStatus)) v1alpha1.NodeReportStatus {
		s := done
		f(&s)
		return s
	}
	l.add("a", true, done)
	l.add("behind", true, change(func(s *v1alpha1.NodeReportStatus) { s.PolicyGeneration, s.Mode = 3, "Enforce" }))
	l.add("stuck", true, change(func(s *v1alpha1.NodeReportStatus) { s.Unrestored = 2 }))
	l.add("lost", false, change(func(s *v1alpha1.NodeReportStatus) { s.PolicyGeneration, s.Mode = 3, "Enforce" }))
	l.add("sells", true, done)
	l.nodes[4].Status.Capacity = corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse("100")}
	l.add("gone", false, change(func(s *v1alpha1.NodeReportStatus) { s.PolicyGeneration, s.Mode = 3, "Observe" }))
	l.add("old", false, change(func(s *v1alpha1.NodeReportStatus) { s.PolicyGeneration, s.Mode = 2, "Observe" }))
	l.add("observes", true, v1alpha1.NodeReportStatus{Mode: "Observe"})
	l.nodes = append(l.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}})

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := f.Run(ctx)
	if err == nil {
		t.Fatal("every node counts as restored")
	}
	want := `not restored:
  node behind: its agent does not follow the change of its policy yet
  node stuck: 2 files are not restored; the log of its agent and waterline explain say why
  node lost: its agent is not ready; run waterline restore on the node
  node sells: it still has batch resources
  node old: its agent is not ready; run waterline restore on the node`
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if l.policy.Spec.Mode != "Disabled" {
		t.Errorf("the policy is %s", l.policy.Spec.Mode)
	}

	l.mu.Lock()
	lost := l.reports[3]
	for i := range l.reports {
		l.reports[i].Status = done
	}
	l.nodes[4].Status.Capacity = nil
	l.mu.Unlock()
	if err := f.Run(t.Context()); err != nil {
		t.Errorf("all are restored: %v", err)
	}

	// One node is dead, and another name is a mistake.
	var log strings.Builder
	f.Log, f.Ignore = slog.New(slog.NewTextHandler(&log, nil)), []string{"lost", "a", "lots"}
	l.mu.Lock()
	l.reports[3] = lost
	l.mu.Unlock()
	if err := f.Run(t.Context()); err != nil {
		t.Errorf("the only node that is not restored is ignored: %v", err)
	}
	for text, want := range map[string]int{
		"ignored: node lost: its agent is not ready": 1, "ignored: node lots: there is no such node": 1,
		"ignored: node": 2, "every node is restored\" ignored=2": 1,
	} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("%q stands %d times in the log, want %d:\n%s", text, n, want, &log)
		}
	}
}

// TestFarewellOfPools checks that nothing changes while there are worker pools.
func TestFarewellOfPools(t *testing.T) {
	l := &leaving{pools: []v1alpha1.WorkerPool{{ObjectMeta: metav1.ObjectMeta{Namespace: "yarn", Name: "night"}}}}
	l.policy.Name, l.policy.Spec.Mode = "web", "Enforce"
	client, custom := managertest.Serve(t, l)
	f := Farewell{Core: client.CoreV1().RESTClient(), Custom: custom, Namespace: "w", Log: slog.New(slog.DiscardHandler)}
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "yarn/night") {
		t.Errorf("with a pool: %v", err)
	}
	if l.policy.Spec.Mode != "Enforce" {
		t.Errorf("the policy is %s", l.policy.Spec.Mode)
	}
}
