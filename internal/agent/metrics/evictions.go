package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// evictions counts eviction requests and the memory that they freed.
type evictions struct {
	requests           [len(evictReasons)]uint64
	expected, observed int64 // bytes
}

// evictReasons are the reasons of eviction requests.
var evictReasons = [...]model.Code{model.MemoryExhausted, model.MemoryStalled, model.BatchStarved}

// note records the change from one round to the next.
func (d *evictions) note(before, now *model.Evictions) {
	was, is := before.Requested(), now.Requested()
	if is != nil && (was == nil || was.UID != is.UID) {
		if i := slices.Index(evictReasons[:], is.Reason.Code); i >= 0 {
			d.requests[i]++
		}
	}
	if now != nil && now.Last.Seen && (before == nil || before.Last != now.Last) {
		d.expected += now.Last.Expected
		d.observed += max(now.Last.Observed, 0)
	}
}

// collect makes the metrics.
func (d *evictions) collect(now *model.Evictions, metric emit) {
	for i, code := range evictReasons {
		metric(prometheus.GaugeValue, v1alpha1.MetricHot, "1 while the node sells nothing for this reason, else 0.",
			flag(now.HotFor().Code == code), "reason", string(code))
		metric(prometheus.CounterValue, v1alpha1.MetricEvictionRequests, "Batch pods whose eviction was requested.",
			float64(d.requests[i]), "reason", string(code))
	}
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionExpected, "Memory that evicted pods were expected to free.",
		float64(d.expected))
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionObserved, "Memory that was free once they were gone.",
		float64(d.observed))
}
