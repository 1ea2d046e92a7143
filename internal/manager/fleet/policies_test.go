package fleet

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/managertest"
)

// TestSold checks whether new pods find something that is sold, and under which names.
func TestSold(t *testing.T) {
	type spec = func(*v1alpha1.ColocationPolicySpec)
	sells := func(s *v1alpha1.ColocationPolicySpec) { s.CPU = &v1alpha1.CPUSpec{} }
	observing := func(s *v1alpha1.ColocationPolicySpec) { sells(s); s.Mode = v1alpha1.ModeObserve }
	idle := func(*v1alpha1.ColocationPolicySpec) {}
	for _, c := range []struct {
		policies    []spec
		koordinator bool
		sold        bool
	}{
		{nil, false, false},
		{nil, true, false},
		{[]spec{observing}, false, false},
		{[]spec{idle}, true, false},
		{[]spec{sells}, false, true},
		{[]spec{sells, observing, idle}, true, true},
	} {
		p := NewPolicies(slog.New(slog.DiscardHandler), c.koordinator)
		for i, spec := range c.policies {
			managertest.Add(t, p, managertest.Policy(fmt.Sprint(i), 1, spec))
		}
		if got := p.Rules(); got.Ours != (c.sold && !c.koordinator) || got.Koordinator != (c.sold && c.koordinator) {
			t.Errorf("%d policies: %+v", len(c.policies), got)
		}
	}
}

// TestRules checks which rules hold, and what remains of a policy that cannot be used.
func TestRules(t *testing.T) {
	rule := func(s *v1alpha1.ColocationPolicySpec) {
		s.BatchPods = []v1alpha1.BatchPodsSpec{
			{Selector: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"app": "a"}}},
		}
	}
	p := NewPolicies(slog.New(slog.DiscardHandler), false)
	managertest.Add(t, p, managertest.Policy("low", 1, rule),
		managertest.Policy("high", 1, func(s *v1alpha1.ColocationPolicySpec) { rule(s); s.Priority = 5 }),
		managertest.Policy("off", 1, func(s *v1alpha1.ColocationPolicySpec) { rule(s); s.Mode = v1alpha1.ModeObserve }))
	rules := p.Rules().Pods
	if len(rules) != 2 || rules[0].Policy != "high" || rules[1].Policy != "low" || rules[0].Percent != 100 {
		t.Fatalf("%+v", rules)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{"app": "a"}}}
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{v1alpha1.LabelColocation: v1alpha1.ColocationEnabled},
		},
	}
	if _, o := p.Rules().Mutate(pod, namespace); o.Policy != "high" {
		t.Errorf("%+v", o)
	}

	bad := managertest.Policy("high", 2, func(s *v1alpha1.ColocationPolicySpec) { s.Mode = "all" })
	managertest.Add(t, p, bad)
	if rules := p.Rules().Pods; len(rules) != 2 {
		t.Errorf("what was said before a mistake is gone: %+v", rules)
	}
	bad.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	managertest.Add(t, p, bad)
	if rules := p.Rules().Pods; len(rules) != 2 {
		t.Errorf("a paused policy selects no pods: they would become online pods meanwhile: %+v", rules)
	}
	if err := p.Delete(bad); err != nil {
		t.Fatal(err)
	}
	if rules := p.Rules().Pods; len(rules) != 1 {
		t.Errorf("what a policy said that was deleted stays: %+v", rules)
	}
}

// TestBadRuleSelectsNothing checks that a rule without a selector makes no pod batch, nor does a rule of a policy that
// was never usable.
func TestBadRuleSelectsNothing(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{"app": "a"}}}
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{v1alpha1.LabelColocation: v1alpha1.ColocationEnabled},
		},
	}
	for _, bad := range []*v1alpha1.LabelSelector{
		nil, {MatchExpressions: []v1alpha1.LabelRequirement{{Key: "app", Operator: "Is"}}},
	} {
		p := NewPolicies(slog.New(slog.DiscardHandler), false)
		managertest.Add(t, p, managertest.Policy("bad", 1,
			func(s *v1alpha1.ColocationPolicySpec) { s.BatchPods = []v1alpha1.BatchPodsSpec{{Selector: bad}} }))
		if after, o := p.Rules().Mutate(pod, namespace); o.Changed || after != pod {
			t.Errorf("%+v makes the pod batch: %+v", bad, o)
		}
	}
}
