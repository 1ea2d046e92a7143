package decide

import "github.com/waterline-io/waterline/internal/model"

// Follows reports whether a plan under this policy may name files of the pod's own cgroup, so that it has to be watched.
func Follows(pod *model.Pod, policy *model.Policy) bool {
	if pod.Ended || policy.Mode == model.ModeOff {
		return false
	}
	if pod.Asks.Shares != 0 || pod.Asks.Quota != "" || pod.Self || pod.Critical {
		return true
	}
	for i := range policy.Pods {
		if policy.Pods[i].Selector.Matches(pod.Labels) {
			return true
		}
	}
	return false
}
