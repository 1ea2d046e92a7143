package convert_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/waterline-io/waterline/internal/convert"
)

// entry is a strategy of random nodes: those whose labels have these values.
type entry struct {
	labels map[string]string
	says   int
}

// config is a random configuration of two sections.
type config struct{ reclaim, threshold []entry }

func randomConfig(seed uint64) *config {
	r := rand.New(rand.NewPCG(seed, 1))
	section := func() []entry {
		var all []entry
		for range r.IntN(4) {
			e := entry{labels: map[string]string{}, says: 1 + r.IntN(98)}
			for _, key := range []string{"a", "b"} {
				if r.IntN(3) > 0 {
					e.labels[key] = fmt.Sprint(r.IntN(2))
				}
			}
			all = append(all, e)
		}
		return all
	}
	return &config{section(), section()}
}

func (c *config) documents(t *testing.T) []convert.Document {
	t.Helper()
	nodes := func(all []entry, field string) []any {
		var out []any
		for i, e := range all {
			out = append(out, map[string]any{
				"name": fmt.Sprint("e", i), "nodeSelector": map[string]any{"matchLabels": e.labels}, field: e.says,
			})
		}
		return out
	}
	encode := func(v any) string {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	document := encode(map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{
		"colocation-config": encode(map[string]any{
			"enable": true, "cpuReclaimThresholdPercent": 99, "nodeConfigs": nodes(c.reclaim, "cpuReclaimThresholdPercent"),
		}),
		"resource-threshold-config": encode(map[string]any{
			"clusterStrategy": map[string]any{"enable": true, "cpuSuppressMinPercent": 99},
			"nodeStrategies":  nodes(c.threshold, "cpuSuppressMinPercent"),
		}),
	}})
	documents, err := convert.Read("random", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// nodes returns a node for each combination of labels.
func (c *config) nodes() []map[string]string {
	var all []map[string]string
	for _, a := range []string{"0", "1", "2"} {
		for _, b := range []string{"0", "1", "2"} {
			all = append(all, map[string]string{"a": a, "b": b})
		}
	}
	return all
}

// expect returns what Koordinator applies on a node.
func (c *config) expect(node map[string]string) (waterline, minBatch string) {
	first := func(all []entry) string {
		for _, e := range all {
			matches := true
			for key, value := range e.labels {
				matches = matches && node[key] == value
			}
			if matches {
				return fmt.Sprintf("%d%%", e.says)
			}
		}
		return "99%"
	}
	return first(c.reclaim), first(c.threshold)
}
