package model

// The kernel's limits for cpu.shares on cgroup v1 (kernel/sched/sched.h). The kubelet and the cpu-share annotation
// use the same limits.
const (
	MinShares    = 2
	MaxShares    = 262144
	SharesPerCPU = 1024
)

// Unlimited is the value of a CFS quota or a memory limit that is not set. cpu.cfs_quota_us on cgroup v1 reads -1;
// cgroup v2 files read "max"; memory.limit_in_bytes reads the highest value that it can store.
const Unlimited = -1

// MilliCPUToShares converts a CPU request in milli-cores to shares exactly as the kubelet does
// (pkg/kubelet/cm/helpers_linux.go, 1.36): 1024 per CPU, rounded down, at least 2, at most 262144.
func MilliCPUToShares(milli int64) int64 {
	return ClampShares(milli * SharesPerCPU / 1000)
}

// ClampShares limits a number of shares to the range that the kernel accepts.
func ClampShares(shares int64) int64 {
	return min(max(shares, MinShares), MaxShares)
}

// Claim is one runnable group among siblings in the cgroup hierarchy: an input of [Divide].
type Claim struct {
	Weight float64 // shares or weight; only the ratio to the siblings counts
	// Most that the group can use (its quota, its threads or its demand), in the unit of the amount divided.
	Limit float64
}

// Divide splits an amount of CPU among siblings as the kernel's fair scheduler does: in proportion to their weights.
// What a sibling cannot use goes to the others in the same proportion. The result has one entry per claim. The
// entries add up to the amount, or to the sum of all limits if that is less.
func Divide(amount float64, claims []Claim) []float64 {
	got := make([]float64, len(claims))
	full := make([]bool, len(claims))
	for {
		var weights, rest float64 = 0, amount
		for i, c := range claims {
			if full[i] {
				rest -= got[i]
			} else {
				weights += c.Weight
			}
		}
		if weights == 0 {
			return got
		}
		settled := true
		for i, c := range claims {
			if !full[i] && rest*c.Weight/weights >= c.Limit {
				got[i], full[i], settled = c.Limit, true, false
			}
		}
		if settled {
			for i, c := range claims {
				if !full[i] {
					got[i] = rest * c.Weight / weights
				}
			}
			return got
		}
	}
}
