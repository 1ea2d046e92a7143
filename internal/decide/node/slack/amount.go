package slack

import "math/bits"

// maxAmount is the highest amount in computations: a pebibyte of memory, a billion CPUs. Higher values count as this
// much, so that no sum can overflow.
const maxAmount = 1 << 50

// amount limits a configured or measured number to the range 0 to maxAmount.
func amount(v int64) int64 { return min(max(v, 0), maxAmount) }

// plus adds amounts.
func plus(vs ...int64) int64 {
	var sum int64
	for _, v := range vs {
		sum = amount(sum + amount(v))
	}
	return sum
}

// less subtracts amounts from v; the result is at least 0.
func less(v int64, vs ...int64) int64 { return max(amount(v)-plus(vs...), 0) }

// part returns v·n/of, rounded down.
func part(v, n, of int64) int64 {
	high, low := bits.Mul64(uint64(amount(v)), uint64(max(n, 0)))
	if of <= 0 || high >= uint64(of) {
		return maxAmount
	}
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(min(quotient, maxAmount))
}
