package pool

import "github.com/waterline-io/waterline/internal/model"

// Size is what a NodeManager offers to containers.
type Size = model.Size

// whole returns the floor and the whole steps above it that are allowed, up to the ceiling.
func whole(allowed, floor, ceiling, step int64) int64 {
	step = max(step, 1)
	return min(floor+max(allowed-floor, 0)/step*step, max(ceiling, floor))
}
