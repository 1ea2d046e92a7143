package quota

import (
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// When online pods may use more than their limits for moments. Parts are in thousandths of the capacity, of what is left under
// the waterline.
const (
	hot  = 50               // with less, nobody may
	cool = 150              // with more for settle, they may again
	rest = 10 * time.Second // how long
	old  = 10 * time.Second // a measurement that is older shows nothing
)

// State is what must be remembered from one round to the next. Times are on the clock of [model.Load].
type State struct {
	Cool  bool          // online pods may burst
	Since time.Duration // from when on the node has been cool; 0: it is not
	Seen  time.Duration // when it was last measured what is left

	Raised []Raise // containers that their quotas have stopped, ordered by pod and name
}

// follow notes how much is left on the node. Between hot and cool everything stays as it is.
func (s State) follow(n *model.Node, left *model.Slack) State {
	if n.Load == nil || left == nil {
		return State{}
	}
	now, a := n.Load.Clock, &left.CPU
	if now < s.Since || now < s.Seen {
		s = State{Raised: s.Raised} // of another boot
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

// MayBurst reports whether any container of a pod may ever use more than its limit for moments: it is online, and the kubelet
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

// burst adds what lets the containers of a pod save up quota that they do not use: as much as one period's, which is the most that the
// kernel takes. The pod's is the sum of its containers', because what one of them uses the pod uses; but what the kernel takes
// at most, too. Both are found anew in each round from the limits, and from the lower ones while a resize is under way: the
// kernel refuses a quota below the burst, and the kubelet must not be refused.
func burst(settings []model.Setting, n *model.Node, p *model.Policy, pod *model.Pod, group model.PodGroup, s *State) []model.Setting {
	k := &n.Kubelet
	if !MayBurst(pod, p) || !k.Known || !k.CFSQuota || k.StaticCPUs && pod.QoS == model.Guaranteed {
		return settings
	}
	settings = s.raised(settings, n, pod, group)
	if n.Tree.NoBurst {
		return settings
	}
	save := func(dir string, micros, limit int64) {
		reason := model.Reason{Code: model.BurstAllowed, Operands: []model.Operand{{Name: "limit", Value: limit, Unit: model.UnitMilli}}}
		if !s.Cool {
			micros, reason = 0, model.Reason{Code: model.NodeHot}
		}
		settings = append(settings, model.Setting{File: model.File{Dir: dir, Knob: model.Burst}, Value: model.Number(micros), Reason: reason})
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
	for _, name := range group.Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil && c.LeastMilli > 0 {
			save(group.Dir+"/"+name, model.MilliCPUToQuota(c.LeastMilli, k.QuotaPeriod), c.LeastMilli)
		}
	}
	return settings
}
