package slack_test

import (
	"fmt"
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// BenchmarkRound250 measures a round of a node with 250 pods.
func BenchmarkRound250(b *testing.B) {
	in := newInput(model.Amount{CPU: 128_000, Memory: 512 * gib}, model.SellPredicted, 650)
	for i := range 250 {
		class := model.ClassLS
		if i%3 == 0 {
			class = model.ClassBE
		}
		pod := model.Pod{UID: fmt.Sprintf("p%03d", i), Class: class, RequestMilli: 250}
		in.add(pod, model.Amount{CPU: 200, Memory: gib})
	}
	b.ReportAllocs()
	for b.Loop() {
		in.decide()
	}
}
