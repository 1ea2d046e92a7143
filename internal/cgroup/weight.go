package cgroup

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// SharesToWeight converts shares to a v2 weight (1 to 10000) by the linear formula of KEP-2254. The kubelet
// uses this formula for pods and QoS classes up to at least 1.36 (pkg/kubelet/cm/cgroup_manager_linux.go). All
// siblings must use the same formula, so Waterline uses it at those levels too.
func SharesToWeight(shares int64) int64 {
	return 1 + (model.ClampShares(shares)-model.MinShares)*9999/(model.MaxShares-model.MinShares)
}

// WeightToShares returns the smallest number of shares that [SharesToWeight] converts to this weight. The
// kubelet's own inverse rounds down, so converting its result again gives another weight.
func WeightToShares(weight int64) int64 {
	const span = model.MaxShares - model.MinShares
	weight = min(max(weight, 1), 10000)
	return model.MinShares + ((weight-1)*span+9998)/9999
}

// ContainerWeight converts shares to the v2 weight of a container, as runc from 1.3.2 and crun from 1.23 do.
// The formula is quadratic in the logarithm and maps 1024 shares to the kernel's default weight of 100. Older
// versions use [SharesToWeight].
func ContainerWeight(shares int64) int64 {
	switch {
	case shares <= model.MinShares:
		return 1
	case shares >= model.MaxShares:
		return 10000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}
