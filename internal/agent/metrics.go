package agent

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	acthost "github.com/waterline-io/waterline/internal/act/host"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// counts is what the loop counts.
type counts struct {
	rounds   uint64
	audits   uint64
	duration time.Duration // of the last round

	reclaimAsked, reclaimFreed uint64 // bytes
}

// scrapeWaits is how long a scrape waits for the loop, which a disk may keep waiting, or a machine whose CPUs stand still. It is
// half of what Prometheus gives a scrape by default.
const scrapeWaits = 5 * time.Second

// collector makes the metrics when they are scraped, so that they cost nothing in between.
type collector struct{ agent *Agent }

// Collector returns the agent's metrics.
func (a *Agent) Collector() prometheus.Collector { return collector{a} }

// Describe implements [prometheus.Collector]. It describes nothing: which series there are is known only at a scrape.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWaits)
	defer cancel()
	var all []prometheus.Metric
	if err := c.agent.do(ctx, func() { all = c.agent.metrics() }); err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("waterline_scrape", "The agent's loop did not answer.", nil, nil), err)
		return
	}
	for _, m := range all {
		out <- m
	}
}

// metrics reads the loop's state.
func (a *Agent) metrics() []prometheus.Metric {
	var all []prometheus.Metric
	metric := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		all = append(all, prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...))
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue

	byClass := map[model.QoSClass]int{}
	weighted := 0
	for _, pod := range a.pods.Pods {
		byClass[pod.QoS]++
		if pod.Annotations.Shares != 0 {
			weighted++
		}
	}
	for q := model.Guaranteed; q <= model.BestEffort; q++ {
		metric(gauge, v1alpha1.MetricPods, "Pods of this node.", float64(byClass[q]), "qos", q.String())
	}
	metric(gauge, v1alpha1.MetricWeightedPods, "Pods with a usable weight annotation.", float64(weighted))
	held := map[model.Code]int{}
	for _, s := range a.plan.Settings {
		if s.Deferred != nil {
			held[s.Deferred.Code]++
		}
	}
	for code, n := range held {
		metric(gauge, v1alpha1.MetricDeferredFiles, "Files of the plan that are not written now.", float64(n), "reason", string(code))
	}
	if cpus := a.plan.CPUs; cpus != nil {
		for pool, set := range map[string]model.CPUSet{"reserved": cpus.Reserved, "exclusive": cpus.Exclusive, "share": cpus.Share, "shared": cpus.Shared} {
			metric(gauge, v1alpha1.MetricCPUs, "CPUs of this node, by pool; while no pod asks for CPUs of its own there are none.", float64(set.Len()), "pool", pool)
		}
	}
	if a.load != nil {
		a.figures.collect(a.meter.Load().Clock, metric)
		accounts(a.plan.Slack, metric)
	}
	if a.host != nil {
		hostMetrics(a.host, metric)
	}
	if a.ruling.effect.Policy.Protect.Interference {
		a.trials.collect(a.plan.Interference, metric)
	}
	if a.ruling.effect.Policy.Protect.EvictPerHour > 0 {
		a.departures.collect(a.plan.Evict, metric)
	}
	a.notices.mu.Lock()
	for key, n := range a.notices.bad {
		metric(counter, v1alpha1.MetricBadAnnotations, "Annotations that could not be used.", float64(n), "key", key)
	}
	a.notices.mu.Unlock()
	a.log.each(func(what string, n uint64) {
		metric(counter, v1alpha1.MetricErrors, "Work that failed, by what it was.", float64(n), "what", what)
	})
	metric(counter, v1alpha1.MetricRounds, "Rounds of decisions.", float64(a.counts.rounds))
	metric(counter, v1alpha1.MetricAudits, "Complete comparisons of plan and kernel.", float64(a.counts.audits))
	metric(gauge, v1alpha1.MetricRoundSeconds, "Time that the last round took, from observation to the last write.", a.counts.duration.Seconds())
	metric(counter, v1alpha1.MetricReclaimAsked, "Memory that batch pods were asked for before it was short.", float64(a.counts.reclaimAsked))
	metric(counter, v1alpha1.MetricReclaimFreed, "Memory that they used less after they were asked.", float64(a.counts.reclaimFreed))
	metric(gauge, v1alpha1.MetricPodsKnown, "1 once the pods of this node were listed.", flag(a.pods.Known))
	metric(gauge, v1alpha1.MetricWatching, "0 while files must be polled for lack of inotify watches.", flag(a.tree != nil && a.tree.Unwatched() == nil))
	if a.nri != nil {
		stats := a.nri.Stats()
		metric(gauge, v1alpha1.MetricNRIConnected, "1 while the container runtime asks where its containers may run.", flag(stats.Connected))
		metric(counter, v1alpha1.MetricNRIRequests, "Requests of the container runtime that were answered.", float64(stats.Requests))
		metric(counter, v1alpha1.MetricNRISlow, "Requests of the container runtime that waited too long for their answer.", float64(stats.Slow))
		metric(gauge, v1alpha1.MetricNRISlowest, "The longest that the container runtime waited for an answer.", stats.Slowest.Seconds())
	}
	return all
}

func hostMetrics(h *acthost.Host, metric func(kind prometheus.ValueType, name, help string, value float64, labels ...string)) {
	stats := h.Stats()
	for _, knob := range model.Knobs() {
		metric(prometheus.CounterValue, v1alpha1.MetricWrites, "Writes to cgroup files.", float64(stats.Writes[knob]), "file", knob.String())
		metric(prometheus.CounterValue, v1alpha1.MetricRepairs, "Writes that answered another writer.", float64(stats.Repairs[knob]), "file", knob.String())
	}
	for r, n := range stats.Rejected {
		metric(prometheus.CounterValue, v1alpha1.MetricRejected, "Writes that the kernel refused.", float64(n), "file", r.Knob.String(), "errno", r.Errno)
	}
	metric(prometheus.GaugeValue, v1alpha1.MetricOwnedFiles, "Cgroup files on the undo record.", float64(len(h.Owned())))
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
