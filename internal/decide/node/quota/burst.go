package quota

import (
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// Thresholds for bursting. Fractions are in thousandths of the capacity and apply to the room under the waterline.
const (
	hot  = 50  // below: the node is hot, no pod may burst
	cool = 150 // above for the rest time: pods may burst again
	rest = 10 * time.Second
	old  = 10 * time.Second // older measurements do not count
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Cool  bool          // online pods may burst
	Since time.Duration // since when the node has been above cool; 0: it is not
	Seen  time.Duration // time of the newest measurement of the room

	Raised []Raise // containers that their quotas have throttled, ordered by pod and name
}

// follow updates the state with the room on the node. Between hot and cool it stays as it is.
func (s State) follow(n *model.Node, left *model.Slack) State {
	if n.Load == nil || left == nil {
		return State{}
	}
	now, a := n.Load.Clock, &left.CPU
	if now < s.Since || now < s.Seen {
		s = State{Raised: s.Raised} // from another boot
	}
	if a.Use.Measured && a.Use.Age <= old {
		s.Seen = max(now-a.Use.Age, s.Seen)
	}
	switch {
	case s.Seen == 0 || now-s.Seen > old || a.Use.Measured && a.Allow < a.Capacity*hot/1000:
		s.Cool, s.Since = false, 0
	case !a.Use.Measured:
	case a.Allow <= a.Capacity*cool/1000:
		s.Since = 0
	case s.Since == 0:
		s.Since = now
	default:
		s.Cool = s.Cool || now-s.Since >= rest
	}
	return s
}

// MayBurst reports whether any container of the pod may ever exceed its limit: the pod is online, and the kubelet
// limits it.
func MayBurst(pod *model.Pod, p *model.Policy) bool {
	if !p.Protect.Burst || pod.Ended || !pod.Class.Online() {
		return false
	}
	for i := range pod.Containers {
		if pod.Containers[i].LeastMilli > 0 {
			return true
		}
	}
	return false
}

// burst appends the burst settings of a pod and its containers. A burst is one period's quota, the maximum that the
// kernel accepts. The pod's burst is the sum over its containers, because their usage is the pod's usage, but at most
// one period's quota as well.
//
// Bursts are computed from the limits in each round, during a resize from the lower of the old and new limits. The
// kernel refuses a quota below the burst, and the kubelet's write of the new quota must not fail.
func burst(
	settings []model.Setting, n *model.Node, p *model.Policy, pod *model.Pod, group model.PodGroup, s *State,
	whys *model.Reasons,
) []model.Setting {
	k := &n.Kubelet
	if !MayBurst(pod, p) || !k.Known || !k.CFSQuota || k.StaticCPUs && pod.QoS == model.Guaranteed {
		return settings
	}
	settings = s.raised(settings, n, pod, group)
	if n.Tree.NoBurst {
		return settings
	}
	save := func(dir string, micros, limit int64) {
		reason := model.Reason{Code: model.NodeHot}
		if s.Cool {
			reason = *whys.Of(model.BurstAllowed, limitOf(limit))
		} else {
			micros = 0
		}
		settings = append(settings, model.Setting{
			File: model.File{Dir: dir, Knob: model.Burst}, Value: model.Number(micros), Reason: reason,
		})
	}
	if pod.LeastMilli > 0 {
		var sum int64
		for i := range pod.Containers {
			if c := &pod.Containers[i]; c.LeastMilli > 0 && !c.Init {
				sum += model.MilliCPUToQuota(c.LeastMilli, k.QuotaPeriod)
			}
		}
		save(group.Dir, min(sum, model.MilliCPUToQuota(pod.LeastMilli, k.QuotaPeriod)), pod.LeastMilli)
	}
	for j, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil && c.LeastMilli > 0 {
			save(group.Path(j), model.MilliCPUToQuota(c.LeastMilli, k.QuotaPeriod), c.LeastMilli)
		}
	}
	return settings
}
