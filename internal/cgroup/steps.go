package cgroup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Step is one write that a plan needs, to a file whose value is From and becomes To.
type Step struct {
	model.File
	From, To Raw
}

// Steps sorts writes in place into an order in which the kernel accepts each. The order is total, so a plan
// always gives the same sequence. Its rules:
//
//   - Quotas, weights and memory: writes that loosen go before writes that tighten. Parents are loosened before their
//     children, and children tightened before their parents. On v1 a child's quota, relative to its period, must fit
//     into its parent's at every moment (EINVAL). On v2, and for memory, the order only keeps a group from being
//     limited in between to less than both its old and its new value.
//   - Lists of CPUs come first, in the reverse order: groups that only leave CPUs go before groups that enter CPUs, so
//     that no group runs on a CPU that has just become exclusive to another. Children are narrowed before their parents
//     (EBUSY on v1), and parents widened before their children (EACCES on v1).
//   - Idle: an idle group takes no weight (EINVAL) and loses its old one. So cpu.idle is cleared before weights are
//     written, and set after them.
//   - Burst: the burst must fit into the quota at every moment (EINVAL). So it is lowered before all quotas, and raised
//     after them.
func Steps(steps []Step) {
	slices.SortFunc(steps, func(a, b Step) int {
		if c := cmp.Compare(a.stage(), b.stage()); c != 0 {
			return c
		}
		la, lb := a.loosens(), b.loosens()
		if a.Knob == model.Cpuset {
			la, lb = !a.enters(), !b.enters()
		}
		switch {
		case la && !lb:
			return -1
		case lb && !la:
			return 1
		}
		depth := cmp.Compare(strings.Count(a.Dir, "/"), strings.Count(b.Dir, "/"))
		if la == (a.Knob == model.Cpuset) {
			depth = -depth
		}
		return cmp.Or(depth, a.File.Compare(b.File))
	})
}

// stage returns the number of the stage to which the write belongs. Stages are executed in order.
func (s Step) stage() int {
	late := s.Knob == model.Burst || s.Knob == model.Idle
	switch {
	case s.Knob == model.Cpuset:
		return 0
	case late && s.To.Number < s.From.Number:
		return 1
	case late:
		return 3
	}
	return 2
}

// loosens reports whether the write raises the value of the group. Unlimited is the highest quota, memory limit
// and protection.
func (s Step) loosens() bool {
	if s.Knob == model.Quota {
		return model.Value(s.To).QuotaCPUs() > model.Value(s.From).QuotaCPUs()
	}
	if s.Knob.OfMemory() {
		return s.From.Number != model.Unlimited && (s.To.Number == model.Unlimited || s.To.Number > s.From.Number)
	}
	return s.To.Number > s.From.Number
}

// enters reports whether the write lets the group run on additional CPUs.
func (s Step) enters() bool {
	if s.From.List == model.Inherited || s.To.List == model.Inherited {
		return s.To.List == model.Inherited
	}
	from, err1 := model.ParseCPUs(s.From.List)
	to, err2 := model.ParseCPUs(s.To.List)
	return err1 != nil || err2 != nil || !to.Within(from)
}
