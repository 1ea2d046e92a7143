package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// amounts returns an account as pages get it: capacity, ceiling, system, online, batch, offer, bound, allowance; nil if
// nothing was measured.
func amounts(a *account, samples int64) []any {
	if samples == 0 {
		return nil
	}
	return []any{a.capacity / samples, a.ceiling / samples, a.system / samples, a.online / samples, a.batch / samples,
		a.offer / samples, a.bound / samples, a.allowance / samples}
}

// cluster answers with the cluster now and in the past.
func (s *Server) cluster(r *http.Request, c *caller) (any, error) {
	if err := s.mustListNodes(r.Context(), c); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	if age := now.Sub(s.summed); s.summary == nil || age >= viewInterval || age < 0 {
		plain, err := json.Marshal(s.summarize(now))
		if err != nil {
			return nil, fmt.Errorf("encoding the cluster: %w", err)
		}
		s.summary, s.summed = &encoded{plain, zip(plain)}, now
	}
	return s.summary, nil
}

// summarize returns the sums of the cluster, now and in the past.
func (s *Server) summarize(now time.Time) map[string]any {
	all := s.sums(now)
	points := func(from []point) [][]any {
		to := make([][]any, 0, len(from))
		for i := range from {
			p := &from[i]
			to = append(to, []any{p.at, p.samples * int64(fine/time.Second), p.nodes / int(p.samples),
				amounts(&p.cpu, p.samples), amounts(&p.memory, p.samples)})
		}
		return to
	}
	return map[string]any{
		"began": s.began.Unix(), "instance": s.instance,
		"now": map[string]any{
			"nodes": all.nodes, "absent": all.absent, "batchUnknown": all.unknown,
			"cpu": amounts(&all.cpu, 1), "memory": amounts(&all.memory, 1),
		},
		"hour": points(s.history.fine.points), "day": points(s.history.coarse.points),
		"batchCoreHours": hours(s.history.batch), "soldCoreHours": hours(s.history.sold),
		"measuredSeconds": int64(s.history.measured.Seconds()),
	}
}

// hours converts core-seconds, to a thousandth.
func hours(coreSeconds float64) float64 { return float64(int64(coreSeconds/3.6)) / 1000 }

var errStarting = problem{http.StatusServiceUnavailable,
	"The manager has just started and has not listed the cluster's NodeReports yet."}
