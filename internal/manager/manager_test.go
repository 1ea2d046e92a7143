package manager

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/model"
)

// written is a policy with a spec in YAML.
func written(
	t *testing.T, name string, generation int64, spec func(*v1alpha1.ColocationPolicySpec),
) *v1alpha1.ColocationPolicy {
	t.Helper()
	p := &v1alpha1.ColocationPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation, UID: types.UID("uid-" + name)},
	}
	p.Spec.Mode = string(model.ModeEnforce)
	spec(&p.Spec)
	return p
}

func sells(koordinator bool) func(*v1alpha1.ColocationPolicySpec) {
	return func(s *v1alpha1.ColocationPolicySpec) {
		if s.CPU = (&v1alpha1.CPUSpec{}); koordinator {
			s.ResourceNames = "Koordinator"
		}
	}
}

func add(t *testing.T, table interface{ Add(any) error }, objects ...any) {
	t.Helper()
	for _, o := range objects {
		if err := table.Add(o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNames checks under which names new pods find something that is sold.
func TestNames(t *testing.T) {
	type spec = func(*v1alpha1.ColocationPolicySpec)
	observing := func(s *v1alpha1.ColocationPolicySpec) { sells(false)(s); s.Mode = string(model.ModeObserve) }
	for _, c := range []struct {
		policies          []spec
		ours, koordinator bool
	}{
		{nil, false, false},
		{[]spec{observing}, false, false},
		{[]spec{sells(false)}, true, false},
		{[]spec{sells(true)}, false, true},
		{[]spec{sells(true), sells(false)}, true, true},
		{[]spec{sells(true), observing}, false, true},
		{[]spec{sells(true), func(*v1alpha1.ColocationPolicySpec) {}}, false, true}, // the second sells nothing
	} {
		p := newPolicies(slog.New(slog.DiscardHandler))
		for i, spec := range c.policies {
			add(t, p, written(t, fmt.Sprint(i), 1, spec))
		}
		if got := p.rules.Load(); got.Ours != c.ours || got.Koordinator != c.koordinator {
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
	p := newPolicies(slog.New(slog.DiscardHandler))
	add(t, p, written(t, "low", 1, rule),
		written(t, "high", 1, func(s *v1alpha1.ColocationPolicySpec) { rule(s); s.Priority = 5 }),
		written(t, "off", 1, func(s *v1alpha1.ColocationPolicySpec) { rule(s); s.Mode = string(model.ModeObserve) }))
	rules := p.rules.Load().Pods
	if len(rules) != 2 || rules[0].Policy != "high" || rules[1].Policy != "low" || rules[0].Percent != 100 {
		t.Fatalf("%+v", rules)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{"app": "a"}}}
	namespace := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", Labels: map[string]string{v1alpha1.LabelColocation: v1alpha1.ColocationEnabled},
		},
	}
	if _, o := p.rules.Load().Mutate(pod, namespace); o.Policy != "high" {
		t.Errorf("%+v", o)
	}

	bad := written(t, "high", 2, func(s *v1alpha1.ColocationPolicySpec) { s.Mode = "all" })
	add(t, p, bad)
	if rules := p.rules.Load().Pods; len(rules) != 2 {
		t.Errorf("what was said before a mistake is gone: %+v", rules)
	}
	bad.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	add(t, p, bad)
	if rules := p.rules.Load().Pods; len(rules) != 2 {
		t.Errorf("a paused policy selects no pods: they would become online pods meanwhile: %+v", rules)
	}
	row, _ := p.Get("high")
	s := (&statuses{}).status(&row, &tally{}, 0)
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready.Reason != "Invalid" ||
		!strings.Contains(ready.Message, `spec.mode: "all"`) || s.ObservedGeneration != 2 {
		t.Errorf("%+v", s)
	}
	if err := p.Delete(bad); err != nil {
		t.Fatal(err)
	}
	if rules := p.rules.Load().Pods; len(rules) != 1 {
		t.Errorf("what a policy said that was deleted stays: %+v", rules)
	}
}

// TestObserve checks what oversight is told of the objects of the API.
func TestObserve(t *testing.T) {
	f := newFleet()
	ready := func(name, node string, is corev1.ConditionStatus, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "w"}, Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.ContainersReady, Status: is}}
		change(p)
		return p
	}
	as := func(*corev1.Pod) {}
	going := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	for _, name := range []string{"d", "c", "b", "a"} {
		add(t, f.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	withdrawn := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	withdrawn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionWithdrawn, Status: metav1.ConditionTrue}}
	add(t, f.reports, withdrawn, &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "e"}})
	add(t, f.agents, ready("1", "a", "True", as),
		ready("2", "b", "True", going), ready("3", "b", "False", as), // one follows another
		ready("4", "c", "True", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		ready("5", "", "False", as),
		ready("6", "d", "True", func(p *corev1.Pod) { // the node controller takes the node for lost, and the kubelet does not
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: "False"})
		}))
	want := []nodehealth.Node{
		{Name: "a", Agent: nodehealth.AgentReady, Report: true, Withdrawn: true},
		{Name: "b", Agent: nodehealth.AgentNotReady},
		{Name: "c"}, {Name: "d", Agent: nodehealth.AgentReady},
		{Name: "e", Gone: true, Report: true},
	}
	got := f.observe()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestCount checks that what is remembered of nodes is found anew when they or the policies change: the policy that
// governs a node, and whether Waterline is stopped there.
func TestCount(t *testing.T) {
	p := newPolicies(slog.New(slog.DiscardHandler))
	web := written(t, "web", 1, func(s *v1alpha1.ColocationPolicySpec) {
		s.Priority, s.NodeSelector = 1, &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{"pool": "web"}}
	})
	add(t, p, written(t, "all", 1, func(*v1alpha1.ColocationPolicySpec) {}), web)
	s := &statuses{fleet: newFleet(), policies: p}
	node := func(pool string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"pool": pool}}}
	}
	stopped := false
	check := func(want string) {
		t.Helper()
		for range 2 {
			if _, governed, off := s.count(); governed["n"] != want || off["n"] != stopped {
				t.Errorf("governed by %q, not %q; stopped: %v", governed["n"], want, off["n"])
			}
		}
	}
	add(t, s.fleet.nodes, node("web"))
	check("web")
	add(t, s.fleet.nodes, node("db"))
	check("all")
	add(t, s.fleet.nodes, node("web"))
	check("web")
	paused := node("web")
	paused.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	stopped = true
	add(t, s.fleet.nodes, paused)
	check("")
	stopped = false
	add(t, s.fleet.nodes, node("web"))
	check("web")
	for _, stop := range []func(*v1alpha1.ColocationPolicy){
		func(p *v1alpha1.ColocationPolicy) { p.Annotations = paused.Annotations },
		func(p *v1alpha1.ColocationPolicy) { p.Spec.Mode = string(model.ModeDisabled) },
	} {
		off := web.DeepCopy()
		stop(off)
		stopped = true
		add(t, p, off)
		check("web")
		stopped = false
		add(t, p, web)
		check("web")
	}
	if err := p.Delete(web); err != nil {
		t.Fatal(err)
	}
	check("all")
	if err := s.fleet.nodes.Delete(node("web")); err != nil {
		t.Fatal(err)
	}
	if s.count(); len(s.choices.nodes) != 0 {
		t.Error("a node that is gone is remembered")
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
		p := newPolicies(slog.New(slog.DiscardHandler))
		add(t, p, written(t, "bad", 1,
			func(s *v1alpha1.ColocationPolicySpec) { s.BatchPods = []v1alpha1.BatchPodsSpec{{Selector: bad}} }))
		if after, o := p.rules.Load().Mutate(pod, namespace); o.Changed || after != pod {
			t.Errorf("%+v makes the pod batch: %+v", bad, o)
		}
	}
}
