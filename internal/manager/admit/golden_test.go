package admit

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// setting is the first document of a case. The second is the pod as its creator wrote it. The third is the outcome, and
// the fourth the pod as it is stored; the test writes both.
type setting struct {
	About       string              `json:"about"`
	Koordinator bool                `json:"koordinator,omitempty"` // the names under which something is sold
	Unsold      bool                `json:"unsold,omitempty"`      // nothing is
	Namespace   map[string]string   `json:"namespace,omitempty"`   // its labels; none: the lookup fails
	Rules       []settingRule       `json:"rules,omitempty"`
	LimitRange  *limitRange         `json:"limitRange,omitempty"`
	Inject      []corev1.Container  `json:"inject,omitempty"` // sidecars that another webhook adds after ours
	Classes     map[string]priority `json:"classes,omitempty"`
}

type settingRule struct {
	Policy            string                `json:"policy"`
	Priority          int64                 `json:"priority,omitempty"`
	Selector          metav1.LabelSelector  `json:"selector"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Percent           *int                  `json:"percent,omitempty"`
	Tier              model.Tier            `json:"tier,omitempty"`
}

type result struct {
	Why      Why      `json:"why"`
	Policy   string   `json:"policy,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// TestGolden takes each case through the steps of the API server's admission that matter here.
func TestGolden(t *testing.T) { golden.Each(t, runCase, "testdata/*.yaml") }

func runCase(t *testing.T, content string) string {
	documents := strings.SplitN(content, "---\n", 3)
	if len(documents) < 2 {
		t.Fatal("want a setting and a pod")
	}
	var s setting
	pod := &corev1.Pod{}
	for i, into := range []any{&s, pod} {
		if err := yaml.UnmarshalStrict([]byte(documents[i]), into); err != nil {
			t.Fatal(err)
		}
	}
	done, stored := s.create(t, pod)
	got := documents[:2]
	for _, document := range []any{done, stored} {
		text, err := yaml.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(text))
	}
	return strings.Join(got, "---\n")
}

// create takes a pod through admission: the API server's plugins, our webhook, another's, and then the plugins and ours
// once more, because the pod was changed.
func (s setting) create(t *testing.T, pod *corev1.Pod) (result, *corev1.Pod) {
	t.Helper()
	rules, namespace := s.rules(t, pod)
	s.plugins(t, pod)
	first, o := rules.Mutate(pod, namespace)
	check(t, pod, first, o, rules)
	if len(s.Inject) > 0 {
		first = first.DeepCopy()
		first.Spec.InitContainers = append(first.Spec.InitContainers, s.Inject...)
	}
	if !o.Changed && len(s.Inject) == 0 {
		return result{o.Why, o.Policy, o.Warnings}, first
	}
	between := first.DeepCopy()
	s.plugins(t, between)
	stored, again := rules.Mutate(between, namespace)
	check(t, between, stored, again, rules)
	for _, w := range again.Warnings {
		if !slices.Contains(o.Warnings, w) {
			o.Warnings = append(o.Warnings, "again: "+w)
		}
	}
	if _, third := rules.Mutate(stored, namespace); third.Changed {
		t.Error("a third call would change the pod")
	}
	return result{o.Why, o.Policy, o.Warnings}, stored
}

func (s setting) rules(t *testing.T, pod *corev1.Pod) (Rules, *corev1.Namespace) {
	t.Helper()
	rules := Rules{Ours: !s.Koordinator && !s.Unsold, Koordinator: s.Koordinator}
	for _, r := range s.Rules {
		selector, err := metav1.LabelSelectorAsSelector(&r.Selector)
		if err != nil {
			t.Fatal(err)
		}
		percent := 100
		if r.Percent != nil {
			percent = *r.Percent
		}
		rule := Rule{Policy: r.Policy, Priority: r.Priority, Selector: selector, Percent: percent, Tier: r.Tier}
		if r.NamespaceSelector != nil {
			if rule.Namespaces, err = metav1.LabelSelectorAsSelector(r.NamespaceSelector); err != nil {
				t.Fatal(err)
			}
		}
		rules.Pods = append(rules.Pods, rule)
	}
	if s.Namespace == nil {
		return rules, nil
	}
	return rules, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace, Labels: s.Namespace}}
}
