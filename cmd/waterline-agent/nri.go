package main

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/nri"
)

// runtimePlugin connects the agent to the container runtime. It collects the metrics of that.
type runtimePlugin struct {
	socket string
	lean   bool                       // collects only whether the runtime is connected
	client atomic.Pointer[nri.Client] // nil: the agent has not started yet
}

// connect makes the client that asks the agent where containers are placed, and when they may start.
func (p *runtimePlugin) connect(answers agent.Answers, log *faillog.Log) agent.Runtime {
	client := nri.New(nri.Config{
		Socket: p.socket, Report: log.Report, Place: answers.Place, Start: answers.Start, Runs: answers.Runs,
	})
	p.client.Store(client)
	return client
}

// collectors are several collectors as one.
type collectors []prometheus.Collector

// Describe implements [prometheus.Collector].
func (all collectors) Describe(out chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (all collectors) Collect(out chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(out)
	}
}

// Describe implements [prometheus.Collector]. It describes nothing: without a client there are no series.
func (p *runtimePlugin) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (p *runtimePlugin) Collect(out chan<- prometheus.Metric) {
	client := p.client.Load()
	if client == nil {
		return
	}
	stats := client.Stats()
	connected := 0.0
	if stats.Connected {
		connected = 1
	}
	metric := func(kind prometheus.ValueType, name, help string, value float64) {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	metric(gauge, v1alpha1.MetricNRIConnected, "1 while the container runtime asks where its containers may run.",
		connected)
	if p.lean {
		return
	}
	metric(counter, v1alpha1.MetricNRIRequests, "Requests of the container runtime that were answered.",
		float64(stats.Requests))
	metric(counter, v1alpha1.MetricNRISlow, "Requests of the container runtime that waited too long for their answer.",
		float64(stats.Slow))
	metric(counter, v1alpha1.MetricNRILate, "Batch containers that started before their limits were written.",
		float64(stats.Late))
	metric(gauge, v1alpha1.MetricNRISlowest, "The longest that the container runtime waited for an answer.",
		stats.Slowest.Seconds())
}
