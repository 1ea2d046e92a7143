package quota

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// How a container's quota follows its need above its limit. Factors are in thousandths of the limit.
//
// What a container may use beyond its limit is bounded by what it left before: it has tokens for saved of its whole limit at
// most, earns what it uses less than the limit, and pays what it uses more. So it is never more than a tenth above its limit over
// five minutes, but for what it uses in the second until it is seen that the tokens are spent.
const (
	saved    = 30 * time.Second
	up       = 1200
	down     = 800
	highest  = 3000
	nearby   = 100             // thousandths of its limit that a container uses at least over a second in which it was stopped: one period's quota of ten
	forget   = 5 * time.Minute // after which a container is forgotten that is not measured any more
	together = 5 * time.Second // the longest time between two measurements over which tokens are reckoned
)

// Raise is what is remembered of a container that its quota has stopped.
type Raise struct {
	UID    string
	Name   string        // of its directory
	Times  int64         // its quota, in thousandths of its limit
	Tokens int64         // CPU time that it may use beyond its limit, in milli-core-milliseconds, which are microseconds
	At     time.Duration // of the last measurement that counts in it
}

// From returns how much CPU a pod uses at least, in milli-cores, when a container of it may be stopped by its quota and helped;
// 0: none is ever helped.
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
	return max(least*nearby/1000, 1)
}

// find returns what is remembered of a container; nil: nothing.
func (s *State) find(uid, name string) *Raise {
	i, found := slices.BinarySearchFunc(s.Raised, Raise{UID: uid, Name: name}, compareRaises)
	if !found {
		return nil
	}
	return &s.Raised[i]
}

func compareRaises(a, b Raise) int {
	if c := strings.Compare(a.UID, b.UID); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// raise brings what is remembered of containers up to date with what was measured, and decides by how much the quota of each is
// above its limit.
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
		for _, name := range group.Containers {
			c := cgroup.ContainerOf(pod, name)
			if c == nil || c.LeastMilli == 0 {
				continue
			}
			r, used := s.find(pod.UID, name), n.Load.Container(pod.UID, name)
			if next, kept := s.next(r, used, c, n.Load); kept {
				next.UID, next.Name = pod.UID, name
				raised = append(raised, next)
			}
		}
	}
	s.Raised = raised
	return s
}

// next returns what is to be remembered of a container; false: nothing.
func (s *State) next(last *Raise, used *model.CPUUsage, c *model.Container, l *model.Load) (Raise, bool) {
	most := c.LeastMilli * saved.Milliseconds()
	r := Raise{Times: 1000, Tokens: most}
	if last != nil && l.Clock < last.At {
		last = nil // of another boot
	}
	if last != nil {
		r = *last
	}
	switch {
	case used == nil || l.Age(used.At) > together+time.Second:
		r.Times = 1000
		return r, last != nil && l.Clock-r.At < forget
	case last == nil && used.Throttled == 0:
		return r, false
	case used.At > r.At:
		if elapsed := used.At - r.At; last != nil && elapsed <= together+time.Second {
			r.Tokens = min(r.Tokens+(c.LeastMilli-used.Milli)*elapsed.Milliseconds(), most)
		}
		r.At = used.At
		r.Times = s.times(&r, used)
	}
	if !s.Cool || c.LeastMilli != c.LimitMilli || r.Tokens <= 0 {
		r.Times = 1000
	}
	return r, r.Times > 1000 || r.Tokens < most || used.Throttled > 0
}

// times returns how high the quota is to be after a new measurement.
func (s *State) times(r *Raise, used *model.CPUUsage) int64 {
	switch {
	case used.Throttled == 0:
		return max(r.Times*down/1000, 1000)
	case s.Since == 0: // nothing is raised while it is only warm
		return r.Times
	}
	return min(r.Times*up/1000, highest)
}

// raised adds the quotas of a pod's containers that are above their limits, and of the pod, which is above its own by as much
// as they are together.
func (s *State) raised(settings []model.Setting, n *model.Node, pod *model.Pod, group model.PodGroup) []model.Setting {
	var beyond int64
	period := n.Kubelet.QuotaPeriod
	set := func(dir string, limit, micros int64, times int64) {
		operands := []model.Operand{{Name: "limit", Value: limit, Unit: model.UnitMilli}}
		if times > 0 {
			operands = append(operands, model.Operand{Name: "times", Value: times, Unit: model.UnitTimes})
		}
		settings = append(settings, model.Setting{
			File: model.File{Dir: dir, Knob: model.Quota}, Value: model.Number(micros), Reason: model.Reason{Code: model.QuotaRaised, Operands: operands},
		})
	}
	for _, name := range group.Containers {
		r := s.find(pod.UID, name)
		if r == nil || r.Times <= 1000 {
			continue
		}
		if c := cgroup.ContainerOf(pod, name); c != nil {
			micros := model.MilliCPUToQuota(c.LimitMilli*r.Times/1000, period)
			beyond += micros - model.MilliCPUToQuota(c.LimitMilli, period)
			set(group.Dir+"/"+name, c.LimitMilli, micros, r.Times)
		}
	}
	if beyond > 0 && pod.LimitMilli > 0 {
		set(group.Dir, pod.LimitMilli, model.MilliCPUToQuota(pod.LimitMilli, period)+beyond, 0)
	}
	return settings
}
