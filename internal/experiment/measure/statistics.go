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

// Round rounds a figure to a number of decimals, so that a file of figures can be read.
func Round(x float64, decimals int) float64 {
	p := math.Pow10(decimals)
	return math.Round(x*p) / p
}

// Millis converts to milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PercentOff returns by how many percent a figure differs from the one that it should be.
func PercentOff(is, should float64) float64 { return 100 * (is/should - 1) }
