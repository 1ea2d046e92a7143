package slack

import "math/bits"

// most is the highest amount that is reckoned with: a pebibyte of memory, a billion CPUs. Whatever is above is that much,
// so that no sum can overflow.
const most = 1 << 50

// amount returns a number that somebody wrote or measured, in the range that is reckoned with.
func amount(v int64) int64 { return min(max(v, 0), most) }

// plus adds amounts.
func plus(vs ...int64) int64 {
	var sum int64
	for _, v := range vs {
		sum = amount(sum + amount(v))
	}
	return sum
}

// less takes amounts from one, as far as it goes.
func less(v int64, vs ...int64) int64 { return max(amount(v)-plus(vs...), 0) }

// part returns v·n/of, rounded down.
func part(v, n, of int64) int64 {
	high, low := bits.Mul64(uint64(amount(v)), uint64(max(n, 0)))
	if of <= 0 || high >= uint64(of) {
		return most
	}
	quotient, _ := bits.Div64(high, low, uint64(of))
	return int64(min(quotient, most))
}
