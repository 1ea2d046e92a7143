package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
)

// TestPaused checks that a pause is a field of its own for programs, and stands beside the mode for people.
func TestPaused(t *testing.T) {
	for _, paused := range []bool{false, true} {
		f := readFleet(t, "objects.yaml")
		want, shown := `"mode":"Enforce","selling"`, "Enforce"
		if paused {
			f.Policies[0].Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
			want, shown = `"mode":"Enforce","paused":true,`, "Enforce, paused"
		}
		explained, err := describePolicy("web", f.Policies, f.Nodes, f.Reports, noon)
		if err != nil {
			t.Fatal(err)
		}
		status := newInventory(f.Nodes, f.Reports, f.Policies, f.Pools, nil).status(noon)
		var text strings.Builder
		if err := explained.print(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "mode "+shown+"  priority") {
			t.Errorf("explain: %s", text.String())
		}
		text.Reset()
		if err := status.print(&text, false); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "Enforce, paused"); got != paused {
			t.Errorf("status: %s", text.String())
		}
		for _, answer := range []any{explained, status} {
			document, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			want := want
			if answer == any(explained) {
				want, _, _ = strings.Cut(want, `"selling"`)
			}
			if !strings.Contains(string(document), want) || strings.Contains(string(document), "Enforce, paused") {
				t.Errorf("%T lacks %s: %s", answer, want, document)
			}
		}
	}
}

// TestSayBatch checks that each reason why a pod is batch or not has words of its own, and that the words are true of a
// pod as it was written, and of one that requests batch resources.
func TestSayBatch(t *testing.T) {
	codes := codesOf(t, "../../internal/manager/admit/admit.go", `\bWhy += "(\w+)"`)
	if len(codes) < 12 || !slices.Contains(codes, string(admit.OtherNames)) {
		t.Fatalf("found %v", codes)
	}
	pod := func(name corev1.ResourceName) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1", Labels: map[string]string{v1alpha1.LabelQoS: "BE"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{name: resource.MustParse("1")},
			}}}},
		}
	}
	online := pod(corev1.ResourceCPU)
	online.Labels = nil
	said := map[string]string{}
	for _, code := range codes {
		p := online
		if code == string(admit.ByLabel) || code == string(admit.NothingSold) {
			p = pod(corev1.ResourceCPU)
		}
		text := sayBatch(p, &admit.Outcome{Why: admit.Why(code)}, nil)
		if other, twice := said[text]; twice || len(strings.Fields(text)) < 5 {
			t.Errorf("%s: %q, as for %q", code, text, other)
		}
		said[text] = code
	}
	for _, c := range []struct {
		name  corev1.ResourceName
		why   admit.Why
		wants string
	}{
		{corev1.ResourceCPU, admit.NothingSold, "marked as batch, but no policy in mode Enforce sells CPU or memory"},
		{v1alpha1.ResourceBatchCPU, admit.NothingSold, "batch, tier batch, because it requests batch resources. No policy"},
		{v1alpha1.ResourceKoordinatorMidCPU, admit.OtherNames,
			"batch, tier mid, because it requests resources under Koordinator's names. Waterline"},
	} {
		got := sayBatch(pod(c.name), &admit.Outcome{Why: c.why}, nil)
		if !strings.HasPrefix(got, c.wants) || strings.Contains(got, "unreachable") {
			t.Errorf("%s, %s: %s", c.name, c.why, got)
		}
	}
}

// TestNodeStates checks that a Node that is paused, or has opted out, is neither without a policy nor governed by one.
func TestNodeStates(t *testing.T) {
	var f v1alpha1.ColocationPolicy
	f.Name, f.Spec.Mode = "web", "Enforce"
	node := func(name string) (n corev1.Node) {
		n.Name = name
		return n
	}
	paused, out := node("b"), node("c")
	paused.Annotations = map[string]string{v1alpha1.AnnotationPause: "true"}
	out.Labels = map[string]string{v1alpha1.LabelOptOut: "true"}
	var states []string
	nodes, policies := []corev1.Node{node("a"), paused, out}, []v1alpha1.ColocationPolicy{f}
	for _, n := range newInventory(nodes, nil, policies, nil, nil).each() {
		states = append(states, n.Name+": "+n.State)
	}
	if want := []string{"a: no NodeReport", "b: paused", "c: opted out"}; !slices.Equal(states, want) {
		t.Errorf("%q, want %q", states, want)
	}
}
