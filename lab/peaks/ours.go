package peaks

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/dataset"
)

// ScoreWaterline scores Waterline's predictor on a machine, once for each target rate of violations, and adds
// to the score with the same index. A target of 0 is the predictor's default.
func ScoreWaterline(m *dataset.Machine, every int, h model.Horizon, targets []float64, scores []Score) {
	total, limit := m.Total(), m.Limit()
	horizon := values(h)
	configs := make([]predict.Config, len(targets))
	for i, t := range targets {
		configs[i].Limit = limit
		configs[i].Target[h] = t
	}
	var p predict.Predictor
	for now, v := range total {
		at := time.Unix(m.Times[now], 0)
		p.Observe(configs[0], at, v)
		if now < warmUp || now%every != 0 || now+horizon >= len(total) {
			continue
		}
		peak := slices.Max(total[now+1 : now+1+horizon])
		for i, c := range configs {
			scores[i].add(min(p.Predict(c, at, h).Peak, limit), peak, limit)
		}
	}
}
