// Package metrics remembers what an agent's rounds measured and decided, and makes the agent's Prometheus metrics of
// it.
package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	acthost "github.com/waterline-io/waterline/internal/act/host"
	"github.com/waterline-io/waterline/internal/model"
)

// Recorder remembers what rounds measured and decided. It belongs to the agent's loop.
type Recorder struct {
	figures   figures
	trials    trials
	evictions evictions

	rounds   uint64
	audits   uint64
	duration time.Duration // of the last round

	reclaimWanted, reclaimFreed uint64 // bytes
}

// Round records a round: the plan before it, its own, and how long it took from observation to the last write.
func (r *Recorder) Round(before, now *model.Plan, took time.Duration) {
	r.trials.note(before.Interference, now.Interference)
	r.evictions.note(before.Evict, now.Evict)
	r.rounds++
	r.duration = took
}

// Measured records a measurement and the plan that rests on it.
func (r *Recorder) Measured(l *model.Load, pods []*model.Pod, plan *model.Plan) {
	r.figures.note(l, pods, plan)
}

// Pressure returns how much tasks of the node waited in the last minute; nil while that is not known. The load is the
// last measurement; nil: there is none.
func (r *Recorder) Pressure(l *model.Load) *model.NodePressure {
	if l == nil {
		return nil
	}
	return r.figures.waited(l.Clock)
}

// Throttled returns the CPU that batch pods requested and could not use in the last minute, in milli-cores; nil while
// that is not known. The load is as of [Recorder.Pressure].
func (r *Recorder) Throttled(l *model.Load) *int64 {
	if l == nil {
		return nil
	}
	mean, ok := r.figures.suppressed.mean(&r.figures.at, l.Clock, time.Minute)
	if !ok {
		return nil
	}
	milli := max(int64(math.Round(1000*mean)), 0)
	return &milli
}

// Audit records a complete comparison of plan and kernel.
func (r *Recorder) Audit() { r.audits++ }

// Reclaimed records what came of reclaiming memory.
func (r *Recorder) Reclaimed(m model.Reclaimed) {
	r.reclaimWanted += uint64(m.Requested)
	r.reclaimFreed += uint64(m.Freed)
}

// View is what the metrics show beside what was recorded: the state of the agent now.
type View struct {
	Node           *model.Node // as the last round observed it
	Policy         *model.Policy
	Plan           *model.Plan
	Load           *model.Load        // nil: nothing is measured
	Sampled        *model.SampledPods // nil: no waits are sampled
	Owned          int                // files on the undo record
	Files          acthost.Stats
	Watching       bool              // no file must be polled
	BadAnnotations map[string]uint64 // by key
	Errors         func(f func(what string, count uint64))
	Lean           bool // makes the metrics of the lean profile only
}

// emit makes one metric. Labels are names and values by turns.
type emit func(kind prometheus.ValueType, name, help string, value float64, labels ...string)

// Collect makes the metrics.
func (r *Recorder) Collect(v *View) []prometheus.Metric {
	var all []prometheus.Metric
	metric := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		desc := prometheus.NewDesc(name, help, names, nil)
		all = append(all, prometheus.MustNewConstMetric(desc, kind, value, values...))
	}
	if !v.Lean {
		r.collect(v, metric)
		return all
	}
	part := newLean(metric)
	r.collect(v, part.metric)
	part.finish()
	return all
}

// collect makes all metrics.
func (r *Recorder) collect(v *View, metric emit) {
	podMetrics(v.Node.Pods, metric)
	planMetrics(v.Plan, metric)
	if v.Load != nil {
		r.figures.collect(v.Load.Clock, metric)
		accounts(v.Plan.Slack, metric)
	}
	sampled(v.Sampled, metric)
	fileMetrics(v, metric)
	if v.Policy.Protect.Interference {
		r.trials.collect(v.Plan.Interference, metric)
	}
	if v.Policy.Protect.EvictPerHour > 0 {
		r.evictions.collect(v.Plan.Evict, metric)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	for key, n := range v.BadAnnotations {
		metric(counter, v1alpha1.MetricBadAnnotations, "Annotations that could not be used.", float64(n), "key", key)
	}
	v.Errors(func(what string, n uint64) {
		metric(counter, v1alpha1.MetricErrors, "Operations that failed.", float64(n), "operation", what)
	})
	metric(counter, v1alpha1.MetricRounds, "Rounds of decisions.", float64(r.rounds))
	metric(counter, v1alpha1.MetricAudits, "Complete comparisons of plan and kernel.", float64(r.audits))
	metric(gauge, v1alpha1.MetricRoundSeconds, "Time that the last round took, from observation to the last write.",
		r.duration.Seconds())
	metric(counter, v1alpha1.MetricReclaimRequested, "Memory requested from batch pods before it was short.",
		float64(r.reclaimWanted))
	metric(counter, v1alpha1.MetricReclaimFreed, "Bytes reclaimed from batch pods before memory was short.",
		float64(r.reclaimFreed))
	metric(gauge, v1alpha1.MetricPodsKnown, "1 once the pods of this node were listed.", flag(v.Node.PodsKnown))
	metric(gauge, v1alpha1.MetricWatching, "0 while files must be polled for lack of inotify watches.", flag(v.Watching))
}

// podMetrics counts the pods.
func podMetrics(pods []*model.Pod, metric emit) {
	byClass := map[model.QoSClass]int{}
	weighted := 0
	for _, pod := range pods {
		byClass[pod.QoS]++
		if pod.Annotations.Shares != 0 {
			weighted++
		}
	}
	for q := model.Guaranteed; q <= model.BestEffort; q++ {
		metric(prometheus.GaugeValue, v1alpha1.MetricPods, "Pods of this node.", float64(byClass[q]), "qos", q.String())
	}
	metric(prometheus.GaugeValue, v1alpha1.MetricWeightedPods, "Pods with a usable weight annotation.", float64(weighted))
}

// sampled counts the online pods whose waits are sampled.
func sampled(n *model.SampledPods, metric emit) {
	if n == nil {
		return
	}
	const help = "Online pods by how many of their tasks' waits for CPUs are sampled: some where a pod has more than 16 " +
		"tasks, where a node has more than 2,048, or where tasks end within seconds."
	for tasks, count := range map[string]int{"all": n.All, "some": n.Some, "none": n.None} {
		metric(prometheus.GaugeValue, v1alpha1.MetricSampledPods, help, float64(count), "tasks", tasks)
	}
}

// planMetrics shows which files are deferred, and which CPUs are in which pool.
func planMetrics(plan *model.Plan, metric emit) {
	deferred := map[model.Code]int{}
	for _, s := range plan.Settings {
		if s.Deferred != nil {
			deferred[s.Deferred.Code]++
		}
	}
	for code, n := range deferred {
		metric(prometheus.GaugeValue, v1alpha1.MetricDeferredFiles, "Files of the plan that are not written now.", float64(n),
			"reason", string(code))
	}
	cpus := plan.CPUs
	if cpus == nil {
		return
	}
	const help = "CPUs of this node, by pool; while no pod requests CPUs of its own there are none."
	for pool, set := range map[string]model.CPUSet{
		"reserved": cpus.Reserved, "exclusive": cpus.Exclusive, "share": cpus.Share, "shared": cpus.Shared,
	} {
		metric(prometheus.GaugeValue, v1alpha1.MetricCPUs, help, float64(set.Len()), "pool", pool)
	}
}

// fileMetrics counts writes to cgroup files.
func fileMetrics(v *View, metric emit) {
	counter := prometheus.CounterValue
	for _, knob := range model.Knobs() {
		metric(counter, v1alpha1.MetricWrites, "Writes to cgroup files.", float64(v.Files.Writes[knob]), "file",
			knob.String())
		metric(counter, v1alpha1.MetricRepairs, "Writes that answered another writer.", float64(v.Files.Repairs[knob]),
			"file", knob.String())
	}
	for r, n := range v.Files.Rejected {
		metric(counter, v1alpha1.MetricRejected, "Writes that the kernel refused.", float64(n), "file", r.Knob.String(),
			"errno", r.Errno)
	}
	metric(prometheus.GaugeValue, v1alpha1.MetricOwnedFiles, "Cgroup files on the undo record.", float64(v.Owned))
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
