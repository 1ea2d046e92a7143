package weight_test

import (
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/internal/decide/node/weight"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// BenchmarkDecide250 measures the rule's budget: 250 weighted pods within 100 µs.
func BenchmarkDecide250(b *testing.B) {
	n := fixture.Node(model.Amount{CPU: 128_000})
	for i := range 250 {
		pod := fixture.Pod(fmt.Sprintf("p%03d", i), model.Burstable)
		pod.RequestMilli, pod.Annotations.Shares = 250, 1024
		fixture.Run(&n, pod)
	}
	p := fixture.Policy()
	b.ReportAllocs()
	for b.Loop() {
		weight.Decide(&n, &p)
	}
}
