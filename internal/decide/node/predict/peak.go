package predict

import "math"

// peak is a value in 16 bits, rounded up by less than 0.4 %: exponent and the eight highest bits of the mantissa of a
// 32-bit float, and 1 more, so that 0 can say that there is none. Peaks compare as their values do.
type peak uint16

const dropped = 15 // bits of the mantissa

// highestPeak is the largest that is finite.
const highestPeak = peak(0x7f7fffff>>dropped) + 1

// highestSample is the largest value that is taken for a sample, so that sums of some cannot overflow.
const highestSample = math.MaxFloat32 / 1024

// encode rounds up, so that no peak is forgotten.
func encode(v float64) peak {
	v = min(v, math.MaxFloat32)
	f := float32(v)
	if float64(f) < v {
		f = math.Nextafter32(f, math.MaxFloat32)
	}
	return min(peak((math.Float32bits(f)+1<<dropped-1)>>dropped)+1, highestPeak)
}

func (p peak) value() float64 {
	if p == 0 {
		return 0
	}
	return float64(math.Float32frombits(uint32(p-1) << dropped))
}

// slot returns the number of the quarter-hour of a time in nanoseconds.
func slot(nanoseconds int64) int64 {
	n := nanoseconds / int64(quarter)
	if nanoseconds%int64(quarter) < 0 {
		n--
	}
	return n
}

// place returns where the peak of a quarter-hour stands.
func place(slot int64) int { return index(slot, past) }

// index returns a number modulo another, never negative.
func index(slot, n int64) int { return int(((slot % n) + n) % n) }
