package agent

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// departures counts which pods were asked to leave, and what came of that.
type departures struct {
	requests           [len(evictReasons)]uint64
	expected, observed int64 // bytes
}

// evictReasons are those for which a pod should leave.
var evictReasons = [...]model.Code{model.MemoryExhausted, model.BatchStarved}

// note takes in what one round made of the one before.
func (d *departures) note(before, now *model.Evictions) {
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
func (d *departures) collect(now *model.Evictions, metric func(kind prometheus.ValueType, name, help string, value float64, labels ...string)) {
	for i, code := range evictReasons {
		metric(prometheus.GaugeValue, v1alpha1.MetricHot, "Whether the node sells nothing, by why.", flag(now.HotFor().Code == code), "reason", string(code))
		metric(prometheus.CounterValue, v1alpha1.MetricEvictionRequests, "Batch pods that were asked to leave.", float64(d.requests[i]), "reason", string(code))
	}
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionExpected, "Memory that pods were to free that left.", float64(d.expected))
	metric(prometheus.CounterValue, v1alpha1.MetricEvictionObserved, "Memory that was left once they were gone.", float64(d.observed))
}

// leaves says why a pod should leave.
func leaves(e *model.Eviction) string {
	line := fmt.Sprintf("%s/%s should leave the node: %s", e.Namespace, e.Name, e.Reason)
	if e.Withheld != nil {
		line += "; it is only said: " + e.Withheld.String()
	}
	return line
}

// leaving says which pod should leave, whether the node is hot, and what came of the last one, a line each.
func leaving(e *model.Evictions, pods []*model.Pod, clock time.Duration) []string {
	if e == nil {
		return nil
	}
	var lines []string
	if e.Hot.Code != "" {
		lines = append(lines, "the node is hot and sells nothing: "+e.Hot.String())
	}
	if e.Request != nil {
		lines = append(lines, leaves(e.Request))
	}
	if f := &e.Frozen; f.UID != "" {
		lines = append(lines, nameOf(pods, f.UID)+" stands still: "+f.Reason.String())
	}
	if l := &e.Last; l.UID != "" {
		observed := "not known yet"
		if l.Seen {
			observed = fmt.Sprintf("%.2f GiB", float64(l.Observed)/(1<<30))
		}
		lines = append(lines, fmt.Sprintf("%s left %v ago; relief expected %.2f GiB, observed %s", nameOf(pods, l.UID), (clock-l.At).Round(time.Second), float64(l.Expected)/(1<<30), observed))
	}
	return lines
}
