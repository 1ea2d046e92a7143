package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// evictions counts which pods were asked to leave, and what came of that.
type evictions struct {
	requests           [len(evictReasons)]uint64
	expected, observed int64 // bytes
}

// evictReasons are those for which a pod should leave.
var evictReasons = [...]model.Code{model.MemoryExhausted, model.BatchStarved}

// note takes in what one round made of the one before.
func (d *evictions) note(before, now *model.Evictions) {
	was, is := before.Requested(), now.Requested()
	if is != nil && (was == nil || was.UID != is.UID) {
		for i, code := range evictReasons {
			if is.Reason.Code == code {
				d.requests[i]++
			}
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
		metric(prometheus.GaugeValue, v1alpha1.MetricHot, "Whether the node sells nothing, by why.", flag(now.HotFor().Code == code), "reason", string(code))
		metric(prometheus.CounterValue, v1alpha1.MetricEvictionRequests, "Batch pods that were asked to leave.", float64(d.requests[i]), "reason", string(code))
	}
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionExpected, "Memory that pods were to free that left.", float64(d.expected))
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionObserved, "Memory that was left once they were gone.", float64(d.observed))
}
