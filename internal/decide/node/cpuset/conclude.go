package cpuset

import (
	"cmp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// breathe takes exclusive CPUs back, from the youngest pod first, if no CPU is left for the other pods because CPUs
// went offline.
func (r *round) breathe(claims []*claim) {
	if !r.pool.Minus(r.exclusive).Empty() {
		return
	}
	byAge := slices.Clone(claims)
	slices.SortFunc(byAge, func(a, b *claim) int {
		return cmp.Or(b.pod.Created.Compare(a.pod.Created), strings.Compare(b.pod.UID, a.pod.UID))
	})
	for _, c := range byAge {
		if !r.pool.Minus(r.exclusive).Empty() {
			return
		}
		for _, h := range c.base {
			if h.Mode == model.CPUExclusive {
				r.exclusive = r.exclusive.Minus(h.CPUs)
				r.state.Allocations = slices.DeleteFunc(r.state.Allocations, func(o Allocation) bool {
					return o.UID == h.UID
				})
				c.why = model.Reason{
					Code: model.CPUsLost, Fix: "CPUs of this node went offline, and one must be left for the others",
				}
			}
		}
		if c.why.Code == model.CPUsLost {
			c.base = nil
		}
	}
}

// conclude sets the condition of a pod.
func (r *round) conclude(c *claim) {
	if c.forced && len(c.had) > 0 {
		r.notice(c.pod, model.Reason{
			Code: model.CPUsLost, Key: "cpu-manager", Text: string(c.mode),
			Fix: "its CPUs went offline, the kubelet assigned them to another pod, or the policy gives isolated CPUs no more",
		})
	}
	switch {
	case c.mode == model.CPUNone:
	case c.later:
		r.wait(c.pod)
	case c.why.Code == model.CPUsUnknown && r.young(c.pod):
		r.wait(c.pod)
	case c.why.Code != "":
		r.report(c.pod, c.mode, c.why)
	default:
		r.grant(c)
	}
}

// young reports whether a pod need not be informed yet that the CPUs are not known: an agent that has just started
// queries the kubelet first. It schedules a round for the time when the pod must be informed.
func (r *round) young(p *model.Pod) bool {
	old := p.Created.Add(noticeDelay)
	if p.CPUCondition.Reason != "" {
		return true
	}
	if r.n.Now.Before(old) {
		r.wake(old)
		return true
	}
	return false
}

// remember records the pods that had their own CPUs before. The runtime may still have the old list for a container,
// and would write it again at an update of the container.
func (r *round) remember(before *State) {
	uids := slices.Clone(before.Once)
	for _, h := range before.Allocations {
		uids = append(uids, h.UID)
	}
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		_, exists := r.n.Tree.Pods[uid]
		if exists && len(r.state.of(uid)) == 0 {
			r.state.Once = append(r.state.Once, uid)
		}
	}
}
