package pool

import "fmt"

// Size is what a NodeManager offers to containers.
type Size struct {
	MemoryMiB int64
	VCores    int64
}

// fits reports whether one size fits into another.
func (s Size) fits(into Size) bool { return s.MemoryMiB <= into.MemoryMiB && s.VCores <= into.VCores }

// or returns the larger of each amount.
func (s Size) or(o Size) Size { return Size{max(s.MemoryMiB, o.MemoryMiB), max(s.VCores, o.VCores)} }

// and returns the smaller of each amount.
func (s Size) and(o Size) Size { return Size{min(s.MemoryMiB, o.MemoryMiB), min(s.VCores, o.VCores)} }

// String returns the size for people.
func (s Size) String() string { return fmt.Sprintf("%dMiB,%dvcores", s.MemoryMiB, s.VCores) }

// whole returns the floor and the whole steps above it that are allowed, up to the ceiling.
func whole(allowed, floor, ceiling, step int64) int64 {
	step = max(step, 1)
	return min(floor+max(allowed-floor, 0)/step*step, max(ceiling, floor))
}
