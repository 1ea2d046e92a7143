package model

import (
	"sort"
	"time"
)

// PodCycles is how many CPU cycles and instructions the tasks of a pod took while they ran. Both are sums since the
// agent began to count the pod, so a difference of two samples is what happened between them. Where counters take turns
// on a CPU, the kernel counts for a part of the time, and both sums are scaled up alike: their ratio is exact, their
// amounts are estimates.
type PodCycles struct {
	UID          string        // as in the pod's cgroup
	At           time.Duration // time of the last sample, on the clock of [Load]; 0: nothing was counted yet
	Cycles       int64
	Instructions int64
}

// FindCycles returns what was counted of a pod; nil if it is not counted. The counts are ordered by UID.
func FindCycles(counts []PodCycles, uid string) *PodCycles {
	i := sort.Search(len(counts), func(i int) bool { return counts[i].UID >= uid })
	if i == len(counts) || counts[i].UID != uid {
		return nil
	}
	return &counts[i]
}
