package node

import (
	"github.com/waterline-io/waterline/internal/decide/node/cpuset"
	"github.com/waterline-io/waterline/internal/decide/node/privilege"
	"github.com/waterline-io/waterline/internal/decide/node/weight"
	"github.com/waterline-io/waterline/internal/model"
)

// Ask is what a pod asks of any node that a policy governs, as far as the policy allows it.
type Ask struct {
	Shares    int64 // CPU weight of its own; 0: none
	Unlimited bool  // its quota is lifted
	CPUs      []int // numbers of CPUs of its own, one per container or one for the pod as a whole; nil: none
	Exclusive bool  // no other pod runs on these CPUs
	Placement model.CPUPlacement
}

// AskOf returns what a pod asks, before it has a node. The scheduler calls it, so that it counts what agents will do.
func AskOf(pod *model.Pod, p *model.Policy) Ask {
	granted, _ := privilege.Decide([]*model.Pod{pod}, p)
	if len(granted) == 0 || p.Mode != model.ModeEnforce {
		return Ask{}
	}
	pod = granted[0]
	ask := Ask{
		Shares: weight.Requested(pod, p), Unlimited: pod.Annotations.Quota.Or(p.Weight.Quota) == model.QuotaUnlimited,
	}
	var mode model.CPUMode
	mode, ask.Placement, ask.CPUs = cpuset.Requested(pod, p)
	ask.Exclusive = mode == model.CPUExclusive
	return ask
}
