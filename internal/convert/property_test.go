package convert_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/convert"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// TestAnyValue puts a value of another type in the place of each value of the fixtures, one at a time. The result is
// an error, or policies that can be used; no input makes the converter panic.
func TestAnyValue(t *testing.T) {
	for name, test := range map[string]struct {
		do    converter
		files []string
	}{
		"koordinator":      {convert.Koordinator, []string{"koordinator/config.yaml", "koordinator/profiles.yaml"}},
		"nodeslos":         {convert.Koordinator, []string{"koordinator/nodeslos.yaml"}},
		"crane":            {convert.Crane, []string{"crane/objects.yaml"}},
		"cpu-share-syncer": {convert.CPUShareSyncer, []string{"cpu-share-syncer/objects.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			documents := read(t, test.files...)
			for i := range documents {
				unfold(t, documents[i].Object)
			}
			values := []any{nil, "x", -1.5, 1e9, true, map[string]any{"y": 1.0}, []any{"z"}}
			refused, converted, next := 0, 0, 0
			for i := range documents {
				places(documents[i].Object, func(set func(any)) {
					value := values[next%len(values)]
					next++
					set(value)
					result, err := test.do(fold(t, documents), convert.Options{})
					if err != nil {
						refused++
						return
					}
					converted++
					for _, p := range result.Policies {
						if _, err := kube.Policy(&v1alpha1.ColocationPolicy{Spec: p.Spec}); err != nil {
							t.Errorf("%v, policy %s: %v", value, p.Name, err)
						}
					}
				})
			}
			if refused == 0 || converted == 0 {
				t.Errorf("%d refused, %d converted", refused, converted)
			}
		})
	}
}

// places calls do for each value of a tree, with a function that sets it. Afterwards the tree is as before.
func places(tree any, do func(set func(any))) {
	switch v := tree.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			old := v[name]
			if name == "kind" {
				continue
			}
			do(func(value any) { v[name] = value })
			v[name] = old
			places(old, do)
		}
	case []any:
		for i, old := range v {
			do(func(value any) { v[i] = value })
			v[i] = old
			places(old, do)
		}
	}
}

// unfold makes trees of the JSON texts of a ConfigMap, so that values are put into them too.
func unfold(t *testing.T, object map[string]any) {
	data, _ := object["data"].(map[string]any)
	for name, value := range data {
		var tree any
		if err := json.Unmarshal([]byte(value.(string)), &tree); err != nil {
			t.Fatal(err)
		}
		data[name] = tree
	}
}

// fold makes texts of them again.
func fold(t *testing.T, documents []convert.Document) []convert.Document {
	all := make([]convert.Document, len(documents))
	for i, d := range documents {
		all[i] = d
		data, isMap := d.Object["data"].(map[string]any)
		if !isMap {
			continue
		}
		texts := map[string]any{}
		for name, tree := range data {
			encoded, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			texts[name] = string(encoded)
		}
		all[i].Object = map[string]any{"kind": d.Object["kind"], "metadata": d.Object["metadata"], "data": texts}
	}
	return all
}
