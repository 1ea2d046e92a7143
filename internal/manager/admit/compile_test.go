package admit

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestSelector checks that selectors mean the same to the webhook as to the agents.
func TestSelector(t *testing.T) {
	p, err := kube.ParsePolicy([]byte(`{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: p}, spec: {nodeSelector: {
		matchLabels: {a: "1"}, matchExpressions: [{key: b, operator: NotIn, values: [x, y]}, {key: c, operator: Exists}, {key: d, operator: DoesNotExist}, {key: e, operator: In, values: ["", z]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * 4 * 3 * 3 * 4 {
		all := map[string]string{}
		n := i
		for key, values := range [][]string{
			{"-", "1", "2"}, {"-", "x", "y", "z"}, {"-", "", "1"}, {"-", "", "1"}, {"-", "", "z", "1"},
		} {
			if v := values[n%len(values)]; v != "-" { // which stands for no such label
				all[string(rune('a'+key))] = v
			}
			n /= len(values)
		}
		if selector(p.Nodes).Matches(labels.Set(all)) != p.Nodes.Matches(all) {
			t.Errorf("%v: %v", all, p.Nodes.Matches(all))
		}
	}
}

// TestBadSelectorSelectsNothing checks that a selector that Kubernetes refuses makes no pod batch, whatever its labels.
// In Koordinator, a profile counts as matched when the lookup for it fails.
func TestBadSelectorSelectsNothing(t *testing.T) {
	good := model.Requirement{Key: "app", Op: model.In, Values: []string{"a"}}
	for _, from := range []model.Selector{
		{{Key: "a b", Op: model.Exists}},
		{{Key: "app", Op: "Is", Values: []string{"a"}}},
		{{Key: "app", Op: model.In}},
		{{Key: "app", Op: model.In, Values: []string{"not a value"}}},
		{{Key: "app", Op: model.Exists, Values: []string{"a"}}},
		{good, {Key: "", Op: model.Exists}},
	} {
		for _, all := range []map[string]string{nil, {"app": "a"}, {"a b": "", "": ""}} {
			if selector(from).Matches(labels.Set(all)) {
				t.Errorf("%+v selects %v", from, all)
			}
		}
	}
}
