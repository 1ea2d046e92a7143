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
// parent's at every moment, both ways (EINVAL); on v2 the order only avoids needless throttling in between. The order is
// total, so that one plan always gives one sequence.
func Steps(steps []Step) {
	slices.SortFunc(steps, func(a, b Step) int {
		la, lb := a.loosens(), b.loosens()
		switch {
		case la && !lb:
			return -1
		case lb && !la:
			return 1
		}
		depth := cmp.Compare(strings.Count(a.Dir, "/"), strings.Count(b.Dir, "/"))
		if !la {
			depth = -depth
		}
		return cmp.Or(depth, a.File.Compare(b.File))
	})
}

// loosens reports whether the write gives the group more than it had. No quota is more than any.
func (s Step) loosens() bool {
	if s.Knob == model.Quota {
		return s.From != model.Unlimited && (s.To == model.Unlimited || s.To > s.From)
	}
	return s.To > s.From
}
