package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// detail are the metrics that only the full profile has.
var detail = []string{
	v1alpha1.MetricPods, v1alpha1.MetricWeightedPods, v1alpha1.MetricCPUs, v1alpha1.MetricRunnable,
	v1alpha1.MetricCPUStolen,
	v1alpha1.MetricOwnedFiles, v1alpha1.MetricRounds, v1alpha1.MetricAudits, v1alpha1.MetricRoundSeconds,
	v1alpha1.MetricPodsKnown, v1alpha1.MetricWatching, v1alpha1.MetricPredictionKnown, v1alpha1.MetricMemoryPeak,
	v1alpha1.MetricEvictionExpected, v1alpha1.MetricEvictionObserved, v1alpha1.MetricSampledPods,
}

// lean passes on the metrics of the lean profile: of the windows only the minute, of pressure only how long some tasks
// of the node waited, of predictions only the next hour, of tiers without an amount and of pods that stalled on their
// memory none until there was one, and of writes to cgroup files only the sums. finish makes these.
type lean struct {
	emit
	sums map[string]*sum
}

// sum is a counter over all files.
type sum struct {
	help  string
	value float64
}

func newLean(to emit) *lean { return &lean{to, map[string]*sum{}} }

// metric makes one metric, or not.
func (l *lean) metric(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	for i := 0; i < len(labels); i += 2 {
		left := false
		switch of := labels[i+1]; labels[i] {
		case "window":
			left = of != "1m"
		case "horizon":
			left = of != "1h"
		case "group":
			left = of != pressed[0]
		case "tasks":
			left = of != "some"
		case "tier":
			left = of == "mid" && value == 0
		case "reason":
			left = of == string(model.MemoryStalled) && value == 0
		}
		if left {
			return
		}
	}
	switch {
	case name == v1alpha1.MetricWrites || name == v1alpha1.MetricRepairs:
		s := l.sums[name]
		if s == nil {
			s = &sum{help: help}
			l.sums[name] = s
		}
		s.value += value
	case !slices.Contains(detail, name):
		l.emit(kind, name, help, value, labels...)
	}
}

// finish makes the sums.
func (l *lean) finish() {
	for name, s := range l.sums {
		l.emit(prometheus.CounterValue, name, s.help, s.value)
	}
}
