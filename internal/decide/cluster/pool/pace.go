package pool

import (
	"cmp"
	"slices"
)

// Pace leaves resizes beyond a number to later rounds: first those that grow most. It changes the steps of [Next] for
// the same input.
func Pace(in *Input, steps []Step, most int) {
	var all []int
	for i, s := range steps {
		if s.Verb == Resize {
			all = append(all, i)
		}
	}
	if len(all) <= most {
		return
	}
	growth := func(i int) int64 {
		m, _ := in.Workers[i].Manager()
		return max(steps[i].Size.MemoryMiB-m.Total.MemoryMiB, 0) // a resize is of a NodeManager that lives
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(growth(a), growth(b)) })
	for _, i := range all[most:] {
		steps[i].Leave(in.Workers[i].Pod)
	}
}
