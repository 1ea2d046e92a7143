package cpuset

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// The bound on moves. A tenant whose pod changes its mind all the time would otherwise have every other pod of the node
// put elsewhere as often.
const (
	moveWindow = time.Minute
	maxMoves   = 30 // pods that are given other CPUs while they run, in one window
)

// State is what the rule must remember: who has which CPUs. The zero value knows nothing, as after a state file was lost.
type State struct {
	Known       bool // this was decided before; otherwise it is gathered from what the cgroups were told
	Allocations []Allocation
	Moves       []time.Time // of the last window, ascending
	Once        []string    // UIDs of pods that had CPUs of their own and have none now, ascending
}

// Allocation is the CPUs that one container, or a pod as a whole, has for its own.
type Allocation struct {
	UID       string
	Container string // "": the pod as a whole
	Mode      model.CPUMode
	CPUs      model.CPUSet
}

func compareAllocation(a, b Allocation) int {
	return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Container, b.Container))
}

// of returns the CPUs that a pod holds, a part of s.Allocations.
func (s *State) of(uid string) []Allocation {
	from := sort.Search(len(s.Allocations), func(i int) bool { return s.Allocations[i].UID >= uid })
	to := from
	for to < len(s.Allocations) && s.Allocations[to].UID == uid {
		to++
	}
	return s.Allocations[from:to:to]
}

// recent returns the moves that still count.
func (s *State) recent(now time.Time) []time.Time {
	// A clock that was set back would make moves count for ever.
	return slices.DeleteFunc(slices.Clone(s.Moves), func(at time.Time) bool { return now.Sub(at) >= moveWindow || at.After(now) })
}

// Active reports whether the rule has anything to do on a node: a pod asks for CPUs, or has some, or had some and must be
// kept from old ones. While it is not active, no cgroup is told on which CPUs to run.
func (s *State) Active(pods []*model.Pod, p *model.Policy) bool {
	if len(s.Allocations) > 0 || len(s.Once) > 0 {
		return true
	}
	return slices.ContainsFunc(pods, func(pod *model.Pod) bool {
		mode, _ := asked(pod, p)
		return mode != model.CPUNone && !pod.Ended
	})
}

// Needed reports whether it must be known which CPUs there are: the rule is active, or batch is kept to some of them.
func (s *State) Needed(pods []*model.Pod, p *model.Policy) bool {
	if s.Active(pods, p) {
		return true
	}
	return p.Suppress.On() && p.Suppress.By != model.SuppressByQuota && slices.ContainsFunc(pods, func(pod *model.Pod) bool { return pod.Class == model.ClassBE && !pod.Ended })
}

// asked returns what a pod asks for, by its annotation or else by the first rule of the policy that selects it and speaks of
// CPUs. Nothing is CPUNone.
func asked(pod *model.Pod, p *model.Policy) (model.CPUMode, model.CPUPlacement) {
	if pod.Annotations.CPUs != "" {
		return pod.Annotations.CPUs, pod.Annotations.Placement
	}
	for i := range p.Pods {
		if rule := &p.Pods[i]; rule.CPUs != "" && rule.Selects(pod) {
			return rule.CPUs, rule.Placement
		}
	}
	return model.CPUNone, ""
}
