package yarn

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// Resource is an amount of memory and CPU.
type Resource = model.Size

// MiB returns how many whole MiB fit into that many bytes; 0 if bytes is negative.
func MiB(bytes int64) int64 { return max(bytes, 0) >> 20 }

// VCores returns how many whole vcores fit into that many milli-CPUs, with perCPU vcores to one CPU. It returns 0 if an
// argument is negative or not a number.
func VCores(milliCPU int64, perCPU float64) int64 {
	// Rounding errors must not cost a vcore: 1000 × 0.001 × 3 may be 2.9999999999999996.
	const tolerance = 1e-9
	v := math.Floor(float64(milliCPU)*perCPU/1000 + tolerance)
	switch {
	case !(v > 0) || milliCPU < 0:
		return 0
	case v > math.MaxInt32: // a vcore count is a Java int
		return math.MaxInt32
	}
	return int64(v)
}
