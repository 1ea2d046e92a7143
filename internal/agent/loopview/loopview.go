// Package loopview holds what the agent's loop shows of itself. It is apart from the agent for programs that explain
// recorded rounds on machines without cgroups.
package loopview

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// View is the knowledge of the loop between two rounds. It is valid only during the function that receives it.
type View struct {
	Node     func(now time.Time) model.Node // as a round would observe it; only if Found
	Found    bool                           // the kubelet's cgroups were found
	Pods     []*model.Pod
	Policy   model.Policy
	State    node.State
	Plan     *model.Plan // of the last round
	Load     *model.Load // nil: nothing is measured
	Tree     model.Tree
	Files    func(match func(dir string) bool) []model.FileStatus
	Topology func() (*model.Topology, error)
	Age      time.Duration         // of the agent
	Repairs  map[model.Knob]uint64 // writes since then that answered another writer
	Troubles map[string]string     // errors that stand, by the operation that fails
}
