// Package peaks scores predictors of a machine's peak use on traces, Waterline's and published ones.
//
// At each scored time a predictor knows only the past and predicts the highest use until the horizon. A prediction is
// violated if the machine uses more. It saves the part of the machine's limit above the prediction.
package peaks

import (
	"slices"

	"github.com/waterline-io/waterline/lab/dataset"
)

// warmUp is the number of values before the first scored prediction: two days.
const warmUp = 2 * day

// Score sums up the quality of a predictor.
type Score struct {
	Name      string
	Times     int     // scored predictions
	Violated  int     // predictions below the peak use
	Shortfall float64 // sum of the use above the predictions, in limits
	Saved     float64 // sum of the savings of the predictions, in limits
}

// Violations returns the rate of violated predictions, from 0 to 1.
func (s *Score) Violations() float64 { return float64(s.Violated) / float64(max(s.Times, 1)) }

// Savings returns the mean savings of a prediction, as a share of the limit.
func (s *Score) Savings() float64 { return s.Saved / float64(max(s.Times, 1)) }

// MeanShortfall returns the mean use above the prediction, as a share of the limit.
func (s *Score) MeanShortfall() float64 { return s.Shortfall / float64(max(s.Times, 1)) }

func (s *Score) add(predicted, peak, limit float64) {
	s.Times++
	if predicted < peak-1e-9 {
		s.Violated++
	}
	s.Saved += 1 - predicted/limit
	s.Shortfall += max(0, peak-predicted) / limit
}

// ScoreBaselines scores the published predictors on a machine, and the oracle, which knows the future. It adds
// to the scores.
func ScoreBaselines(m *dataset.Machine, every, horizon int, scores map[string]*Score) {
	all := baselines()
	p := past{
		parts: m.Parts, total: m.Total(), limit: m.Limit(), day: newHistogram(day), halfDay: newHistogram(day / 2),
	}
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
