package scheduler

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
)

// The metrics stand beside those of kube-scheduler, in its registry.
var (
	nodesByReport = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: v1alpha1.MetricSchedulerNodes, StabilityLevel: metrics.ALPHA,
		Help: "Nodes by whether their reports count (Trusted), or why not; the others score as with the stock scheduler.",
	}, []string{"report"})
	assumedPods = metrics.NewGauge(&metrics.GaugeOpts{
		Name: v1alpha1.MetricSchedulerAssumed, StabilityLevel: metrics.ALPHA,
		Help: "Pods whose nodes' reports do not include them yet.",
	})
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: v1alpha1.MetricSchedulerRefusals, StabilityLevel: metrics.ALPHA,
		Help: "Nodes refused for pods, by plugin and reason.",
	}, []string{"plugin", "reason"})
	wokenPods = metrics.NewCounter(&metrics.CounterOpts{
		Name: v1alpha1.MetricSchedulerWoken, StabilityLevel: metrics.ALPHA,
		Help: "Refused pods that were tried again because a report or an agent changed.",
	})
)

// registerMetrics registers the metrics. A second registration changes nothing.
func registerMetrics() {
	for _, m := range []metrics.Registerable{nodesByReport, assumedPods, refusals, wokenPods} {
		_ = legacyregistry.Register(m)
	}
}

func setMetrics(nodes map[place.Code]int, assumed int) {
	nodesByReport.Reset()
	for code, n := range nodes {
		if code == "" {
			code = "Trusted"
		}
		nodesByReport.WithLabelValues(string(code)).Set(float64(n))
	}
	assumedPods.Set(float64(assumed))
}
