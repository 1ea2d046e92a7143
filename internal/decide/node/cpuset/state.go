package cpuset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Limit on moves. Without it, a tenant whose pod changes its request all the time could move the other pods of the
// node as often.
const (
	moveWindow = time.Minute
	maxMoves   = 30 // pods that change CPUs while they run, per window
)

// State is the state between rounds: the assignments. The zero value knows nothing, as after the loss of the state
// file.
type State struct {
	Known       bool // assignments were decided before; otherwise they are read from the cgroups
	Allocations []Allocation
	Moves       []time.Time // in the last window, ascending
	Once        []string    // UIDs of pods that had their own CPUs before, ascending
	// Shared is the list for pods without their own set in the last plan. The runtime sets it when a container starts.
	Shared model.CPUSet `json:",omitzero"`
}

// Allocation is the CPUs of one container, or of a pod as a whole.
type Allocation struct {
	UID       string
	Container string // "": the pod as a whole
	Mode      model.CPUMode
	CPUs      model.CPUSet
}

func compareAllocation(a, b Allocation) int {
	return cmp.Or(strings.Compare(a.UID, b.UID), strings.Compare(a.Container, b.Container))
}

// of returns the assignments of a pod, a part of s.Allocations.
func (s *State) of(uid string) []Allocation {
	return model.AllByUID(s.Allocations, uid, func(a *Allocation) string { return a.UID })
}

// recent returns the moves that still count.
func (s *State) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(s.Moves), func(at time.Time) bool {
		return now.Sub(at) >= moveWindow || at.After(now) // if the clock was set back, moves would count for ever
	})
}

// Active reports whether the rule has work on a node: a pod requests CPUs, has some, or had some and must not get
// them back from the runtime. While the rule is not active, it decides no cpuset.cpus.
func (s *State) Active(pods []*model.Pod, p *model.Policy) bool {
	if len(s.Allocations) > 0 || len(s.Once) > 0 {
		return true
	}
	return slices.ContainsFunc(pods, func(pod *model.Pod) bool {
		mode, _ := requested(pod, p)
		return mode != model.CPUNone && !pod.Ended
	})
}

// Needed reports whether the CPU topology must be known: the rule is active, or batch is limited to some CPUs.
func (s *State) Needed(pods []*model.Pod, p *model.Policy) bool {
	if s.Active(pods, p) {
		return true
	}
	return p.Suppress.On() &&
		slices.ContainsFunc(pods, func(pod *model.Pod) bool { return pod.Class == model.ClassBE && !pod.Ended })
}

// requested returns the CPU mode and placement that a pod requests: by its annotation, or else by the first policy rule
// that selects it and sets a CPU mode. The default is CPUNone.
func requested(pod *model.Pod, p *model.Policy) (model.CPUMode, model.CPUPlacement) {
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
