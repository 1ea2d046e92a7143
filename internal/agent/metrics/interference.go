package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// trials counts the suspects of interference and the outcomes of throttling them.
type trials struct {
	last                    time.Duration // when the last suspect was named
	named                   [2]uint64     // suspects that are not batch, suspects that are
	helped, undone, unclear uint64
}

// note records the change from one round to the next.
func (c *trials) note(before, now *model.Interference) {
	if now != nil && now.Named.Suspect != "" && now.NamedAt != c.last {
		c.last = now.NamedAt
		if now.Named.Code == model.SuspectNamed {
			c.named[1]++
		} else {
			c.named[0]++
		}
	}
	if before == nil {
		return
	}
	for i := range before.Throttles {
		was := &before.Throttles[i]
		if was.Code != model.ThrottleTried {
			continue
		}
		is := now.Throttle(was.UID)
		switch {
		case is != nil && is.Code == model.ThrottleTried:
		case is != nil && is.Code == model.ThrottleKept && is.Times == was.Times:
			c.helped++
		case now != nil && now.Undone.UID == was.UID:
			c.undone++
		default:
			c.unclear++
		}
	}
}

// collect makes the metrics.
func (c *trials) collect(now *model.Interference, metric emit) {
	for i, batch := range []string{"false", "true"} {
		metric(prometheus.CounterValue, v1alpha1.MetricInterferenceSuspects,
			"Suspects: pods that likely make an online pod wait.", float64(c.named[i]), "batch", batch)
	}
	for outcome, n := range map[string]uint64{"helped": c.helped, "undone": c.undone, "unclear": c.unclear} {
		metric(prometheus.CounterValue, v1alpha1.MetricInterferenceTrials,
			"Trials: times that a batch pod was throttled for an online pod.", float64(n), "outcome", outcome)
	}
	throttled := 0
	if now != nil {
		throttled = len(now.Throttles)
	}
	metric(prometheus.GaugeValue, v1alpha1.MetricInterferenceThrottled,
		"Batch pods that are throttled for an online pod now.", float64(throttled))
}
