package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/model"
)

func requested(uid string, code model.Code) *model.Evictions {
	return &model.Evictions{
		Hot: model.Reason{Code: code}, Request: &model.Eviction{
			UID: uid, Namespace: "batch", Name: uid, Reason: model.Reason{Code: code},
		},
	}
}

// TestEvictions counts what rounds say, one after the other: each request and each relief once.
func TestEvictions(t *testing.T) {
	said := requested("c", model.MemoryExhausted)
	said.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
	left := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100}}
	seen := &model.Evictions{Last: model.Relief{UID: "a", At: 1, Expected: 100, Seen: true, Observed: 70}}
	worse := &model.Evictions{Last: model.Relief{UID: "b", At: 2, Expected: 50, Seen: true, Observed: -20}}
	var d evictions
	var before *model.Evictions
	for _, now := range []*model.Evictions{
		nil, requested("a", model.MemoryExhausted), requested("a", model.MemoryExhausted), left, left, seen, seen,
		requested("b", model.BatchStarved), nil, requested("b", model.BatchStarved), worse, worse, said, said, nil,
	} {
		d.note(before, now)
		before = now
	}
	series := map[string]float64{}
	d.collect(worse, func(_ prometheus.ValueType, name, _ string, value float64, labels ...string) {
		series[strings.Join(append([]string{name}, labels...), " ")] = value
	})
	for name, want := range map[string]float64{
		"waterline_eviction_requests_total reason MemoryExhausted": 1,
		"waterline_eviction_requests_total reason BatchStarved":    2,
		"waterline_eviction_expected_bytes_total":                  150, "waterline_eviction_observed_bytes_total": 70,
		"waterline_hot reason MemoryExhausted": 0,
	} {
		if series[name] != want {
			t.Errorf("%s is %v, want %v, of %v", name, series[name], want, series)
		}
	}
}
