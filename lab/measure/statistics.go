package measure

import (
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest of sorted values that at least a part q of them does not exceed; 0 if there are none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// Median returns the median of values, which need not be sorted: of an even number the mean of the middle two. There
// must be at least one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Mean returns the mean of values; 0 if there are none.
func Mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// oneSided95 are the 0.95 quantiles of Student's t distribution for 1 to 30 degrees of freedom, as in any table of it.
var oneSided95 = [...]float64{
	6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
	1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
}

// UpperRatio returns the upper bound, at 95 % confidence, of the geometric mean of ratios that were measured one after
// another, each above 0; false for fewer than two. It takes their logarithms as normally distributed.
func UpperRatio(ratios []float64) (bound float64, known bool) {
	n := len(ratios)
	if n < 2 {
		return 0, false
	}
	logs := make([]float64, n)
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	mean, squares := Mean(logs), 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	t := oneSided95[min(n-1, len(oneSided95))-1]
	return math.Exp(mean + t*math.Sqrt(squares/float64(n-1)/float64(n))), true
}

// Round rounds a figure to a number of decimals, so that a file of figures can be read.
func Round(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

// Millis converts to milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PercentOff returns by how many percent a figure differs from the one that it should be.
func PercentOff(is, should float64) float64 { return 100 * (is/should - 1) }
