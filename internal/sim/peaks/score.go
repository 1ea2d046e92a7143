// Package peaks scores predictors of the peak of a machine's usage on traces.
//
// At a time a predictor sees the past only and says the most that will be used until the horizon. It is violated if more
// is used; it saves what it leaves of the machine's limit.
package peaks

import (
	"slices"

	"github.com/waterline-io/waterline/internal/sim/trace"
)

// warmUp is how many values a predictor sees before it is scored: two days.
const warmUp = 2 * day

// Score sums up how good a predictor was.
type Score struct {
	Name      string
	Times     int     // predictions that were scored
	Violated  int     // of them: more was used
	Shortfall float64 // sum of what was used beyond the prediction, in limits
	Saved     float64 // sum of what the prediction left, in limits
}

// Violations is the share of predictions that were exceeded, from 0 to 1.
func (s *Score) Violations() float64 { return float64(s.Violated) / float64(max(s.Times, 1)) }

// Savings is the mean of what predictions left of the limit, as a share of it.
func (s *Score) Savings() float64 { return s.Saved / float64(max(s.Times, 1)) }

// MeanShortfall is the mean of what was used beyond the prediction, as a share of the limit.
func (s *Score) MeanShortfall() float64 { return s.Shortfall / float64(max(s.Times, 1)) }

func (s *Score) add(predicted, peak, limit float64) {
	s.Times++
	if predicted < peak-1e-9 {
		s.Violated++
	}
	s.Saved += 1 - predicted/limit
	s.Shortfall += max(0, peak-predicted) / limit
}

// Baselines scores the published predictors on a machine, and the one that knows the future, and adds to the scores.
func Baselines(m *trace.Machine, every, horizon int, scores map[string]*Score) {
	all := baselines()
	p := past{parts: m.Parts, total: m.Total(), limit: m.Limit(), day: newHistogram(day), halfDay: newHistogram(day / 2)}
	for now := range p.total {
		p.observe(now)
		if now < warmUp || now%every != 0 || now+horizon >= len(p.total) {
			continue
		}
		peak := slices.Max(p.total[now+1 : now+1+horizon])
		add(scores, Oracle, peak, peak, p.limit)
		p.prepare()
		for _, b := range all {
			add(scores, b.name, min(b.predict(&p, horizon), p.limit), peak, p.limit)
		}
	}
}

func add(scores map[string]*Score, name string, predicted, peak, limit float64) {
	if scores[name] == nil {
		scores[name] = &Score{Name: name}
	}
	scores[name].add(predicted, peak, limit)
}
