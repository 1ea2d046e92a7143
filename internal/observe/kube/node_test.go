package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/model"
)

// TestPublished checks which resources of a Node are Waterline's: those under its own names, and of Koordinator's names
// those that the Node's record lists.
func TestPublished(t *testing.T) {
	cpu := model.NodeResource{Tier: model.TierBatch}
	theirs := model.NodeResource{Tier: model.TierBatch, Koordinator: true}
	for name, c := range map[string]struct {
		record string
		want   []model.Published
	}{
		"another system's": {"", []model.Published{{NodeResource: cpu, Amount: 500}}},
		"recorded": {
			"kubernetes.io/batch-cpu",
			[]model.Published{{NodeResource: cpu, Amount: 500}, {NodeResource: theirs, Amount: 8000}},
		},
		"another is recorded": {"kubernetes.io/mid-cpu", []model.Published{{NodeResource: cpu, Amount: 500}}},
		"no record at all":    {" kubernetes.io/batch-cpu;", []model.Published{{NodeResource: cpu, Amount: 500}}},
	} {
		var n corev1.Node
		err := yaml.Unmarshal([]byte(`
metadata: {annotations: {waterline.io/published: "`+c.record+`"}}
status:
  capacity: {cpu: 4, kubernetes.io/batch-cpu: 8k, kubernetes.io/batch-memory: 1Gi, waterline.io/batch-cpu: 500}
  allocatable: {cpu: 4, kubernetes.io/batch-cpu: 8k, kubernetes.io/batch-memory: 1Gi, waterline.io/batch-cpu: 500}
`), &n)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, NodeOf(&n).Published); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
