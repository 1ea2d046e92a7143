package decide

import (
	"github.com/waterline-io/waterline/internal/decide/predict"
	"github.com/waterline-io/waterline/internal/decide/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// NodeKnowing is [Node] with peaks that somebody else predicted.
func NodeKnowing(peaks slack.Peaks, n model.Node, policy model.Policy, state State) (model.Plan, State) {
	return node(n, policy, state, func(_ *model.Node, _, _ model.Use, s predict.State) (cpus, bytes [model.Horizons]model.Peak, next predict.State) {
		return peaks.CPU, peaks.Memory, s
	})
}
