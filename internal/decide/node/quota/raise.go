package quota

import (
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// A container that its quota throttles may get a higher quota for a while. Factors are in thousandths of its limit.
//
// What the container may use beyond its limit is bounded by what it left unused before (a token bucket). It earns
// tokens for CPU below its limit and pays tokens for CPU above it. The bucket holds 30 s of its full limit. So over
// five minutes, usage exceeds the limit by at most a tenth, plus the usage in the second before the empty bucket is
// noticed.
//
// Containers of a pod with a limit in spec.resources share that limit, so the pod has one bucket for all of them.
const (
	capacity = 30 * time.Second // capacity of the bucket, as time at the full limit
	up       = 1200
	down     = 800
	maxTimes = 3000
	// A container that was throttled within a second used at least this much of its limit: one period of ten.
	minUsed     = 100
	forgetAfter = 5 * time.Minute // a container without measurements is forgotten after this time
	maxInterval = 5 * time.Second // longest interval between two measurements for which tokens are counted
)

// Raise is the state of a container that its quota has throttled, or of a pod with a limit in spec.resources.
type Raise struct {
	UID    string
	Name   string        // of the container's directory; "": the pod as a whole
	Times  int64         // quota, in thousandths of the limit
	Tokens int64         // CPU time available beyond the limit, in milli-core-milliseconds (microseconds)
	At     time.Duration // of the newest measurement in Tokens and Times
}

// From returns the lowest CPU usage, in milli-cores, at which a container of the pod can be throttled and get a
// higher quota. It returns 0 if no container of the pod ever gets one.
func From(pod *model.Pod, p *model.Policy) int64 {
	if !MayBurst(pod, p) {
		return 0
	}
	var least int64
	for i := range pod.Containers {
		if limit := pod.Containers[i].LeastMilli; limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return max(least*minUsed/1000, 1)
}

// Throttles returns the lowest CPU usage of a pod, in milli-cores, at which the quota of one of its running containers
// can throttle it; 0: none has one.
func Throttles(n *model.Node, pod *model.Pod) int64 {
	var least int64
	for _, name := range n.Tree.Pods[pod.UID].Containers {
		if c := cgroup.ContainerOf(pod, name); c != nil && c.LimitMilli > 0 && (least == 0 || c.LimitMilli < least) {
			least = c.LimitMilli
		}
	}
	if least == 0 {
		return 0
	}
	return max(least*minUsed/1000, 1)
}

// find returns the state of a container; nil if there is none.
func (s *State) find(uid, name string) *Raise {
	of := model.AllByUID(s.Raised, uid, func(r *Raise) string { return r.UID })
	for i := range of {
		if of[i].Name == name {
			return &of[i]
		}
	}
	return nil
}

// raise updates the state of all containers from the measurements and decides the factor of each quota.
func (s State) raise(n *model.Node, p *model.Policy) State {
	if n.Load == nil {
		return s
	}
	var raised []Raise
	for _, pod := range n.Pods {
		group, exists := n.Tree.Pods[pod.UID]
		if !exists || !MayBurst(pod, p) {
			continue
		}
		add := func(name string, used *model.CPUUsage, c limits) {
			if next, needed := s.next(s.find(pod.UID, name), used, c, n.Load); needed {
				next.UID, next.Name = pod.UID, name
				raised = append(raised, next)
			}
		}
		if pod.PodLevelCPU && pod.LeastMilli > 0 {
			add("", usageOf(n.Load, pod.UID, group), limits{pod.LimitMilli, pod.LeastMilli})
			continue
		}
		for _, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && c.LeastMilli > 0 {
				add(name, n.Load.Container(pod.UID, name), limits{c.LimitMilli, c.LeastMilli})
			}
		}
	}
	s.Raised = raised
	return s
}

// usageOf returns the CPU usage of a pod as a whole; nil if it is not measured. It is throttled where one of its
// containers is.
func usageOf(l *model.Load, uid string, group model.PodGroup) *model.CPUUsage {
	pod := l.Pod(uid)
	if pod == nil || pod.CPU.At == 0 {
		return nil
	}
	used := pod.CPU
	for _, name := range group.Containers {
		if c := l.Container(uid, name); c != nil {
			used.Throttled += c.Throttled
		}
	}
	return &used
}

// limits are the CPU limit of a container or pod, and the lower of the old and the new one during a resize, in
// milli-cores.
type limits struct{ limit, least int64 }

// next returns the new state of a container or pod; false: it needs none.
func (s *State) next(last *Raise, used *model.CPUUsage, c limits, l *model.Load) (Raise, bool) {
	most := c.least * capacity.Milliseconds()
	r := Raise{Times: 1000, Tokens: most}
	if last != nil && l.Clock < last.At {
		last = nil // from another boot
	}
	if last != nil {
		r = *last
	}
	switch {
	case used == nil || l.Age(used.At) > maxInterval+time.Second:
		r.Times = 1000
		return r, last != nil && l.Clock-r.At < forgetAfter
	case last == nil && used.Throttled == 0:
		return r, false
	case used.At > r.At:
		if elapsed := used.At - r.At; last != nil && elapsed <= maxInterval+time.Second {
			r.Tokens = min(r.Tokens+(c.least-used.Milli)*elapsed.Milliseconds(), most)
		}
		r.At = used.At
		r.Times = s.times(&r, used)
	}
	if !s.Cool || c.least != c.limit || r.Tokens <= 0 {
		r.Times = 1000
	}
	return r, r.Times > 1000 || r.Tokens < most || used.Throttled > 0
}

// times returns the factor of the quota after a new measurement.
func (s *State) times(r *Raise, used *model.CPUUsage) int64 {
	switch {
	case used.Throttled == 0:
		return max(r.Times*down/1000, 1000)
	case s.Since == 0: // between hot and cool, quotas do not rise
		return r.Times
	}
	return min(r.Times*up/1000, maxTimes)
}

// raised appends the quotas of a pod's containers that are above their limits. The quota of the pod rises by the same
// amount as those of its containers together. A pod with a limit in spec.resources rises as a whole.
func (s *State) raised(settings []model.Setting, n *model.Node, pod *model.Pod, group model.PodGroup) []model.Setting {
	var beyond int64
	period := n.Kubelet.QuotaPeriod
	set := func(dir string, limit int64, quota model.Value, times int64) {
		operands := []model.Operand{limitOf(limit)}
		if times > 0 {
			operands = append(operands, model.Operand{Name: "times", Value: times, Unit: model.UnitTimes})
		}
		settings = append(settings, model.Setting{
			File:  model.File{Dir: dir, Knob: model.Quota},
			Value: quota, Reason: model.Reason{Code: model.QuotaRaised, Operands: operands},
		})
	}
	if r := s.find(pod.UID, ""); r != nil && r.Times > 1000 {
		set(group.Dir, pod.LimitMilli, model.QuotaOf(pod.LimitMilli*r.Times/1000, period), r.Times)
		for j, name := range group.Containers {
			if c := cgroup.ContainerOf(pod, name); c != nil && c.LimitMilli > 0 {
				set(group.Path(j), c.LimitMilli, model.QuotaOf(c.LimitMilli*r.Times/1000, period), r.Times)
			}
		}
		return settings
	}
	for j, name := range group.Containers {
		r := s.find(pod.UID, name)
		if r == nil || r.Times <= 1000 {
			continue
		}
		if c := cgroup.ContainerOf(pod, name); c != nil {
			raised := model.QuotaOf(c.LimitMilli*r.Times/1000, period)
			beyond += raised.Number - model.MilliCPUToQuota(c.LimitMilli, period)
			set(group.Path(j), c.LimitMilli, raised, r.Times)
		}
	}
	if beyond > 0 && pod.LimitMilli > 0 {
		raised := model.QuotaOf(pod.LimitMilli, period)
		raised.Number += beyond
		set(group.Dir, pod.LimitMilli, raised, 0)
	}
	return settings
}
