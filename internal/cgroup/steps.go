package cgroup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/internal/model"
)

// Step is one write that a plan needs: a file that holds From and is to hold To.
type Step struct {
	model.File
	From, To Raw
}

// Steps orders writes in place so that the kernel accepts each: what loosens goes before what tightens, parents are
// loosened before their children and children tightened before their parents. On v1 a child's quota must fit into its
// parent's at every moment, both ways (EINVAL); on v2, and of memory, the order only avoids that a group is held in between
// to less than it had before and is to have. The order is total, so that one plan always gives one sequence.
//
// Lists of CPUs come first and the other way round: who leaves CPUs goes before who enters some, so that nobody is seen on
// a CPU that has just become another's own. Children are narrowed before their parents (EBUSY on v1) and parents widened
// before their children (EACCES on v1).
//
// An idle group takes no weight (EINVAL), and forgets the one it had. So a group stops being idle before weights are written,
// and becomes so after them.
//
// What a group may save up must fit into its quota at every moment (EINVAL), so it is lowered before all quotas, and raised
// after them.
//
// A group that is frozen is let go on before it gets other values, and one that is to be frozen has them before.
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

// stage returns in which of the parts that follow each other the write comes.
func (s Step) stage() int {
	late := s.Knob == model.Burst || s.Knob == model.Idle || s.Knob == model.Freeze
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

// loosens reports whether the write gives the group more than it had. No quota, and no memory limit, is more than any, and so
// is protection of everything.
func (s Step) loosens() bool {
	if s.Knob == model.Quota || s.Knob.OfMemory() {
		return s.From.Number != model.Unlimited && (s.To.Number == model.Unlimited || s.To.Number > s.From.Number)
	}
	return s.To.Number > s.From.Number
}

// enters reports whether the write lets the group run on a CPU that it could not run on before.
func (s Step) enters() bool {
	if s.From.List == model.Inherited || s.To.List == model.Inherited {
		return s.To.List == model.Inherited
	}
	from, err1 := model.ParseCPUs(s.From.List)
	to, err2 := model.ParseCPUs(s.To.List)
	return err1 != nil || err2 != nil || !to.Within(from)
}
