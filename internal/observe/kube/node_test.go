package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/model"
)

// TestPublished checks which resources of a Node are Waterline's: those under its own names, and of Koordinator's names
// those that the Node's record lists with the amount that they have, or that are gone.
func TestPublished(t *testing.T) {
	ours := model.Published{NodeResource: model.NodeResource{Tier: model.TierBatch}, Amount: 500}
	theirs := func(tier model.Tier, amount int64) model.Published {
		return model.Published{NodeResource: model.NodeResource{Tier: tier, Koordinator: true}, Amount: amount}
	}
	for name, c := range map[string]struct {
		record string
		want   []model.Published
	}{
		"another system's": {"", []model.Published{ours}},
		"recorded": {
			"kubernetes.io/batch-cpu=8000", []model.Published{ours, theirs(model.TierBatch, 8000)},
		},
		"overwritten by another": {"kubernetes.io/batch-cpu=7000", []model.Published{ours}},
		"recorded, and gone": {
			"kubernetes.io/mid-cpu=100", []model.Published{ours, theirs(model.TierMid, model.Uneven)},
		},
		"recorded without an amount": {"kubernetes.io/batch-cpu", []model.Published{ours}},
		"a record that says nothing": {" kubernetes.io/batch-cpu=8000;", []model.Published{ours}},
		"uneven where Waterline wrote": {"kubernetes.io/batch-memory=1024", []model.Published{ours, {
			NodeResource: model.NodeResource{Tier: model.TierBatch, Memory: true, Koordinator: true}, Amount: model.Uneven}}},
	} {
		var n corev1.Node
		err := yaml.Unmarshal([]byte(`
metadata: {annotations: {waterline.io/published: "`+c.record+`"}}
status:
  capacity: {cpu: 4, kubernetes.io/batch-cpu: 8k, kubernetes.io/batch-memory: 1Ki, waterline.io/batch-cpu: 500}
  allocatable: {cpu: 4, kubernetes.io/batch-cpu: 8k, waterline.io/batch-cpu: 500}
`), &n)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, NodeOf(&n).Published); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
