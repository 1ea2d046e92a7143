package node

import (
	"github.com/waterline-io/waterline/internal/decide/node/predict"
	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// DecideKnowing is [Decide] with peaks that somebody else predicted.
func DecideKnowing(peaks slack.Peaks, n model.Node, policy model.Policy, state State) (model.Plan, State) {
	return decide(n, policy, state,
		func(_ *model.Node, _, _ model.Use, s predict.State) (cpus, bytes [model.Horizons]model.Peak, next predict.State) {
			return peaks.CPU, peaks.Memory, s
		})
}
