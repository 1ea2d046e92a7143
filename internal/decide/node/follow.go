package node

import (
	"slices"

	"github.com/waterline-io/waterline/internal/decide/node/memory"
	"github.com/waterline-io/waterline/internal/decide/node/quota"
	"github.com/waterline-io/waterline/internal/model"
)

// UsesCPUs reports whether the node's topology counts in the next round: a pod asks for CPUs of its own or has some, batch is
// kept to some CPUs, or a list of CPUs must still be given back.
func UsesCPUs(pods []*model.Pod, policy *model.Policy, owned []model.Owned, state *State) bool {
	return policy.Mode != model.ModeDisabled && state.CPUs.Needed(pods, policy) || slices.ContainsFunc(owned, func(o model.Owned) bool { return o.Knob == model.Cpuset })
}

// BindsAll reports whether the CPUs of every pod may depend on what others have: a pod asks for CPUs of its own or has some.
func BindsAll(pods []*model.Pod, policy *model.Policy, state *State) bool {
	return policy.Mode != model.ModeDisabled && state.CPUs.Active(pods, policy)
}

// Follows reports whether a plan under this policy may name files of the pod's own cgroup or of its containers, so that it
// has to be watched. Where CPUs of one's own are used, that is every pod; where there is batch, every BestEffort pod; and where the
// kernel has group identities and is to be told, every online pod; and where their memory is protected, those that request some.
func Follows(pod *model.Pod, policy *model.Policy, tree *model.Tree, bindsAll, batch bool) bool {
	if pod.Ended || policy.Mode == model.ModeDisabled {
		return false
	}
	if bindsAll || batch && pod.QoS == model.BestEffort || pod.Annotations.Shares != 0 || pod.Annotations.Quota != "" || pod.Self || pod.Critical || pod.Grant != (model.Grant{}) ||
		pod.Class == model.ClassBE && (policy.Suppress.On() || policy.Protect.Interference) || quota.MayBurst(pod, policy) ||
		tree.NoIdentity == "" && policy.Weight.Identity && pod.Class.Online() || tree.V2 && memory.Protects(pod, policy) {
		return true
	}
	for i := range policy.Pods {
		if policy.Pods[i].Selector.Matches(pod.Labels) {
			return true
		}
	}
	return false
}
