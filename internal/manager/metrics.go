package manager

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/manager/admit"
)

// collector makes the metrics when they are scraped.
type collector struct{ manager *Manager }

// Collector returns the manager's metrics. Those about nodes and policies are the leader's only.
func (m *Manager) Collector() prometheus.Collector { return collector{m} }

// Describe implements [prometheus.Collector]. It describes nothing: which series there are is known only at a scrape.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	metric := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	}
	c.manager.admitted.Range(func(why, n any) bool {
		metric(prometheus.CounterValue, v1alpha1.MetricAdmissions, "New pods that the webhook reviewed.",
			float64(n.(*atomic.Uint64).Load()), "reason", string(why.(admit.Why)))
		return true
	})
	l := c.manager.leading.Load()
	metric(prometheus.GaugeValue, v1alpha1.MetricLeading, "1 while this replica leads.", truth(l != nil))
	if l == nil {
		return
	}
	metric(prometheus.GaugeValue, v1alpha1.MetricFresh, "1 while the manager's view of the API is up to date.",
		truth(l.fresh.Load()))
	if s := l.summary.Load(); s != nil {
		for state, n := range map[string]int{"agent": s.Agents, "lost": s.Lost, "withdrawn": s.Withdrawn} {
			metric(prometheus.GaugeValue, v1alpha1.MetricNodes, "Nodes, as the manager sees them.", float64(n), "state", state)
		}
		metric(prometheus.GaugeValue, v1alpha1.MetricBraked,
			"1 while so many agents look lost that withdrawals are limited.", truth(s.Braked))
	}
	for o, n := range l.executor.Counts() {
		metric(prometheus.CounterValue, v1alpha1.MetricActions, "What was done about nodes.", float64(n), "verb", o.Verb,
			"outcome", o.Result)
	}
	evicted := l.evictor.Counts()
	for _, v := range evictbudget.Verdicts() {
		metric(prometheus.CounterValue, v1alpha1.MetricEvictions, "Requested evictions of batch pods, by outcome.",
			float64(evicted[v]), "outcome", string(v))
	}
	if l.pools != nil {
		l.pools.Collect(metric)
	}
	reports, _ := l.fleet.Reports.All()
	for node, r := range reports {
		if r.Withdrawn {
			metric(prometheus.GaugeValue, v1alpha1.MetricNodeWithdrawn, "1 while the offer is withdrawn.", 1, "node", node)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, amount := range l.requested {
		metric(prometheus.GaugeValue, v1alpha1.MetricBatchCPURequested, "CPU that batch pods on nodes request.",
			float64(amount.CPU)/1000, "namespace", of.Namespace, "owner", of.Owner)
		metric(prometheus.GaugeValue, v1alpha1.MetricBatchMemoryRequested, "Memory that batch pods on nodes request.",
			float64(amount.Memory), "namespace", of.Namespace, "owner", of.Owner)
	}
	if l.slipped != nil {
		sum := int32(0)
		for _, n := range l.slipped {
			sum += n
		}
		metric(prometheus.GaugeValue, v1alpha1.MetricSlippedPods,
			"Batch pods on governed nodes without batch requests.", float64(sum))
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
