package fakerm

import (
	"maps"
	"net/http"
	"slices"
)

// lose notes that containers did not end by themselves, so their application asks for them again.
func (r *RM) lose(lost []container) {
	for _, c := range lost {
		r.landed[c.demand]--
	}
}

// pending returns what waits for nodes with a label.
func (r *RM) pending(label string) (sum Size) {
	for name, d := range r.demands {
		if d.Label == label && d.All > 0 {
			sum = sum.plus(d.Size.times(d.All - r.landed[name]))
		}
	}
	return sum
}

type usageJSON struct {
	Label   string     `json:"partitionName"`
	Used    amountJSON `json:"used"`
	Pending amountJSON `json:"pending"`
}

type queueJSON struct {
	Type      string `json:"type"`
	Path      string `json:"queuePath"`
	Name      string `json:"queueName"`
	Resources struct {
		Usages []usageJSON `json:"resourceUsagesByPartition"`
	} `json:"resources"`
}

// serveScheduler shows one queue, with a part of the fields of a real one.
func (r *RM) serveScheduler(w http.ResponseWriter) {
	q := queueJSON{Type: "capacitySchedulerLeafQueueInfo", Path: "root.default", Name: "default"}
	for _, label := range append([]string{""}, slices.Sorted(maps.Keys(r.labels))...) {
		q.Resources.Usages = append(q.Resources.Usages, usageJSON{label, amount(Size{}), amount(r.pending(label))})
	}
	if r.faults.OtherScheduler {
		answer(w, map[string]any{"scheduler": map[string]any{"schedulerInfo": map[string]any{"type": "fairScheduler"}}})
		return
	}
	answer(w, map[string]any{"scheduler": map[string]any{"schedulerInfo": map[string]any{
		"type": "capacityScheduler", "queueName": "root", "queues": map[string]any{"queue": []queueJSON{q}},
	}}})
}
