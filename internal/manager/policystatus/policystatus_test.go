package policystatus

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/test/managertest"
)

// TestCount checks that what is remembered of nodes is found anew when they or the policies change: the policy that
// governs a node, and whether Waterline is stopped there.
func TestCount(t *testing.T) {
	p := fleet.NewPolicies(slog.New(slog.DiscardHandler), false)
	web := managertest.Policy("web", 1, func(s *v1alpha1.ColocationPolicySpec) {
		s.Priority, s.NodeSelector = 1, &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": "web"}}
	})
	managertest.Add(t, p, managertest.Policy("all", 1, func(*v1alpha1.ColocationPolicySpec) {}), web)
	s := &Writer{Fleet: fleet.New(), Policies: p}
	node := func(pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"pool": pool}}}
	}
	stopped := false
	check := func(want string) {
		t.Helper()
		for range 2 {
			if _, governed, off := s.Count(); governed["n"] != want || off["n"] != stopped {
				t.Errorf("governed by %q, not %q; stopped: %v", governed["n"], want, off["n"])
			}
		}
	}
	managertest.Add(t, s.Fleet.Nodes, node("web"))
	check("web")
	managertest.Add(t, s.Fleet.Nodes, node("db"))
	check("all")
	managertest.Add(t, s.Fleet.Nodes, node("web"))
	check("web")
	paused := node("web")
	paused.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	stopped = true
	managertest.Add(t, s.Fleet.Nodes, paused)
	check("")
	stopped = false
	managertest.Add(t, s.Fleet.Nodes, node("web"))
	check("web")
	for _, stop := range []func(*v1alpha1.ColocationPolicy){
		func(p *v1alpha1.ColocationPolicy) { p.Annotations = paused.Annotations },
		func(p *v1alpha1.ColocationPolicy) { p.Spec.Mode = v1alpha1.ModeDisabled },
	} {
		off := web.DeepCopy()
		stop(off)
		stopped = true
		managertest.Add(t, p, off)
		check("web")
		stopped = false
		managertest.Add(t, p, web)
		check("web")
	}
	if err := p.Delete(web); err != nil {
		t.Fatal(err)
	}
	check("all")
	if err := s.Fleet.Nodes.Delete(node("web")); err != nil {
		t.Fatal(err)
	}
	if s.Count(); len(s.choices.nodes) != 0 {
		t.Error("a node that is gone is remembered")
	}
}

// TestWithoutReports checks that nodes without a NodeReport do not keep a policy from being Ready, and that an agent
// with an older version of the policy does.
func TestWithoutReports(t *testing.T) {
	p := fleet.NewPolicies(slog.New(slog.DiscardHandler), false)
	managertest.Add(t, p, managertest.Policy("all", 3, func(*v1alpha1.ColocationPolicySpec) {}))
	s := &Writer{Fleet: fleet.New(), Policies: p}
	for _, name := range []string{"a", "virtual"} {
		managertest.Add(t, s.Fleet.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	for _, c := range []struct {
		generation int64 // that the report of node a is of; 0: there is none
		want       metav1.ConditionStatus
		says       string
	}{
		{0, metav1.ConditionTrue, "0 of 2 governed nodes follow the policy; no agent has reported from the other 2."},
		{2, metav1.ConditionFalse, "1 of 2 governed nodes do not follow"},
		{3, metav1.ConditionTrue, "1 of 2 governed nodes follow the policy; no agent has reported from the other 1."},
	} {
		if c.generation > 0 {
			managertest.Add(t, s.Fleet.Reports, &v1alpha1.NodeReport{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Status:     v1alpha1.NodeReportStatus{Policy: "all", PolicyGeneration: c.generation},
			})
		}
		tallies, _, _ := s.Count()
		row, _ := p.Get("all")
		now := s.status(&row, tallies["all"], 0)
		ready := meta.FindStatusCondition(now.Conditions, v1alpha1.ConditionReady)
		if ready.Status != c.want || !strings.Contains(ready.Message, c.says) || now.Nodes.Governed != 2 {
			t.Errorf("with a report of generation %d: %+v, %+v", c.generation, ready, now.Nodes)
		}
	}
}

// TestInvalid checks that the status of a policy that cannot be used says why.
func TestInvalid(t *testing.T) {
	p := fleet.NewPolicies(slog.New(slog.DiscardHandler), false)
	managertest.Add(t, p, managertest.Policy("high", 2, func(s *v1alpha1.ColocationPolicySpec) { s.Mode = "all" }))
	row, _ := p.Get("high")
	s := (&Writer{}).status(&row, &Tally{}, 0)
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready.Reason != "Invalid" ||
		!strings.Contains(ready.Message, `spec.mode: "all"`) || s.ObservedGeneration != 2 {
		t.Errorf("%+v", s)
	}
}
