package model

// The kernel's limits for cpu.shares on cgroup v1 (kernel/sched/sched.h), which the kubelet and the annotation use too.
const (
	MinShares    = 2
	MaxShares    = 262144
	SharesPerCPU = 1024
)

// Unlimited is the CFS quota, or the memory limit, of a group that has none. It is what cpu.cfs_quota_us reads on cgroup v1;
// cgroup v2 says "max", and memory.limit_in_bytes the most that it can hold.
const Unlimited = -1

// DefaultQuotaPeriod is the CFS period, in microseconds, of a kubelet whose configuration does not say otherwise.
const DefaultQuotaPeriod = 100_000

// minQuota is the smallest CFS quota the kernel takes, in microseconds (kernel/sched/core.c, min_cfs_quota_period).
const minQuota = 1_000

// MilliCPUToShares converts a CPU request in milli-cores to shares exactly as the kubelet does
// (pkg/kubelet/cm/helpers_linux.go, 1.36): 1024 a CPU, rounded down, at least 2, at most 262144.
func MilliCPUToShares(milli int64) int64 {
	return ClampShares(milli * SharesPerCPU / 1000)
}

// ClampShares brings a number of shares into the range the kernel accepts.
func ClampShares(shares int64) int64 {
	return min(max(shares, MinShares), MaxShares)
}

// MilliCPUToQuota converts a CPU limit in milli-cores to a CFS quota in microseconds exactly as the kubelet does: never
// below the kernel's minimum of 1 ms, and 0, which the runtimes read as "leave it unlimited", for no limit at all.
// period is the CFS period in microseconds.
func MilliCPUToQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

// Claim is one runnable sibling at some level of the cgroup hierarchy, as [Divide] sees it.
type Claim struct {
	Weight float64 // its shares or weight; only the ratio to its siblings counts
	Limit  float64 // the most it can use: its quota, its threads or what it wants, in the unit of the amount divided
}

// Divide splits an amount of CPU among siblings as the kernel's fair scheduler does: in proportion to their weights,
// and what one cannot use goes to the others in the same proportion. The result has one entry a claim; their sum is the
// amount, or the sum of all limits where that is less.
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
