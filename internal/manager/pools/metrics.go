package pools

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// shown is what a pool's metrics show.
type shown struct {
	phases      map[pool.Phase]int
	total, used v1alpha1.YARNResources
	containers  int32
	reachable   bool
	requests    uint64
	steps       map[stepOutcome]uint64
}

type stepOutcome struct {
	verb   pool.Verb
	result string
}

// count counts a step that was carried out.
func (k *keeper) count(verb pool.Verb, err error) {
	result := "done"
	if err != nil {
		result = "failed"
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.shown.steps == nil {
		k.shown.steps = map[stepOutcome]uint64{}
	}
	k.shown.steps[stepOutcome{verb, result}]++
}

// show keeps what the metrics show.
func (k *keeper) show(r *round, s *v1alpha1.WorkerPoolStatus) {
	phases := map[pool.Phase]int{}
	for _, pl := range r.places {
		phases[pl.step.Phase]++
	}
	reachable := r.state.Known || r.crew != nil && r.crew.in.Known
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shown.phases, k.shown.total, k.shown.used, k.shown.containers = phases, s.Total, s.Used, s.Containers
	k.shown.reachable = reachable
	if c := k.observer.Cluster; c != nil {
		k.shown.requests = c.Requests.Load()
	}
}

// Collect makes the metrics of all pools by calling metric for each value, with names and values of labels in turn.
func (c *Controller) Collect(
	metric func(kind prometheus.ValueType, name, help string, value float64, labels ...string),
) {
	c.mu.Lock()
	keepers := maps.Clone(c.keepers)
	c.mu.Unlock()
	for _, key := range sortedKeys(keepers) {
		k := keepers[key]
		k.mu.Lock()
		s := k.shown
		s.steps = maps.Clone(k.shown.steps)
		k.mu.Unlock()
		one := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
			metric(kind, name, help, value, append([]string{"namespace", k.namespace, "pool", k.name}, labels...)...)
		}
		for phase, n := range s.phases {
			one(prometheus.GaugeValue, v1alpha1.MetricPoolWorkers, "Workers of a pool.", float64(n), "phase", string(phase))
		}
		for kind, amount := range map[string]v1alpha1.YARNResources{"offered": s.total, "used": s.used} {
			one(prometheus.GaugeValue, v1alpha1.MetricPoolMemory, "Memory of a pool's workers.",
				amount.Memory.AsApproximateFloat64(), "amount", kind)
			one(prometheus.GaugeValue, v1alpha1.MetricPoolVCores, "Vcores of a pool's workers.", float64(amount.VCores),
				"amount", kind)
		}
		one(prometheus.GaugeValue, v1alpha1.MetricPoolContainers, "Containers on a pool's workers.", float64(s.containers))
		reachable := 0.0
		if s.reachable {
			reachable = 1
		}
		one(prometheus.GaugeValue, v1alpha1.MetricPoolRM, "1 while a pool's ResourceManager answers.", reachable)
		one(prometheus.CounterValue, v1alpha1.MetricPoolRequests, "Requests to a pool's ResourceManager.",
			float64(s.requests))
		for o, n := range s.steps {
			one(prometheus.CounterValue, v1alpha1.MetricPoolSteps, "Steps of a pool's workers.", float64(n),
				"verb", string(o.verb), "outcome", o.result)
		}
	}
}
