package weight_test

import (
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node/weight"
	"github.com/waterline-io/waterline/internal/fixture"
	"github.com/waterline-io/waterline/internal/model"
)

// BenchmarkDecide250 measures the rule's budget: 250 weighted pods within 100 µs.
func BenchmarkDecide250(b *testing.B) {
	n := model.Node{
		Allocatable: model.Amount{CPU: 128_000},
		Tree:        model.Tree{Burstable: "kubepods/burstable", Pods: map[string]model.PodGroup{}},
	}
	for i := range 250 {
		uid := fmt.Sprintf("p%03d", i)
		n.Pods = append(n.Pods, &model.Pod{
			UID: uid, QoS: model.Burstable, RequestMilli: 250, Annotations: model.PodAnnotations{Shares: 1024},
		})
		n.Tree.Pods[uid] = model.PodGroup{Dir: "kubepods/burstable/pod" + uid}
	}
	p := fixture.Policy()
	b.ReportAllocs()
	for b.Loop() {
		weight.Decide(&n, &p)
	}
}
