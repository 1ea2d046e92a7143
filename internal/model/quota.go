package model

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// DefaultQuotaPeriod is the kubelet's default CFS period, in microseconds.
const DefaultQuotaPeriod = 100_000

// minQuota is the smallest CFS quota that the kernel accepts, in microseconds (kernel/sched/core.c,
// min_cfs_quota_period).
const minQuota = 1_000

// MilliCPUToQuota converts a CPU limit in milli-cores to a CFS quota in microseconds exactly as the kubelet does. The
// result is never below the kernel's minimum of 1 ms. Without a limit it is 0, which container runtimes read as
// "leave it unlimited". period is the CFS period in microseconds.
func MilliCPUToQuota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

// QuotaOf returns the CFS quota of a CPU limit in milli-cores, see [MilliCPUToQuota], with its period in microseconds.
func QuotaOf(milli, period int64) Value {
	return Value{Number: MilliCPUToQuota(milli, period), Period: period}
}

// QuotaCPUs returns how many CPUs a quota allows, [math.Inf] without a limit. Equal quotas of different periods give
// the same result.
func (v Value) QuotaCPUs() float64 {
	if v.Number == Unlimited {
		return math.Inf(1)
	}
	return float64(v.Number) / float64(cmp.Or(v.Period, DefaultQuotaPeriod))
}

// quota returns a quota and its period as cpu.max holds them, with -1 for "max".
func (v Value) quota() string {
	return strconv.FormatInt(v.Number, 10) + " " + strconv.FormatInt(v.Period, 10)
}

// parseQuota is the inverse of [Value.quota].
func parseQuota(text string) (Value, bool) {
	number, period, _ := strings.Cut(text, " ")
	n, err1 := strconv.ParseInt(number, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	return Value{Number: n, Period: p}, err1 == nil && err2 == nil && p > 0
}
