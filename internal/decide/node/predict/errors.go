package predict

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// How errors are remembered: in units of the scaled room (see scale).
const (
	bins  = 64   // of errors, each of an equal part of reach
	reach = 2    // units; errors that are larger count as so many
	least = 0.08 // units that are left at the default target however well it went
)

// Parts of the limit between which the unit of errors grows with the base (see scale).
const (
	leastScale = 0.01
	fullScale  = 0.3
)

// learning says how fast the errors of a horizon are learned, and which errors are assumed of a new set, so that its
// first errors do not decide alone. A day's errors count less, because 96 of them share a peak.
type learning struct {
	halfLife float64 // quarter-hours learned from until an error counts for half
	assumed  float64 // quarter-hours that count as learned at the beginning
	share    float64 // of them in which the base is exceeded
	excess   float64 // units by which it is exceeded in the mean
}

func learningOf(h model.Horizon) learning {
	if h == model.Day {
		return learning{halfLife: 4 * week * dayQuarters, assumed: 6 * week * dayQuarters, share: 0.2, excess: 0.08}
	}
	return learning{halfLife: week * dayQuarters, assumed: 6 * dayQuarters, share: 0.1, excess: 0.08}
}

// scale returns which part of the room above a base is one unit of errors, from 0 to 1. From three tenths of the limit
// on it is the whole room. Below, it falls with the square root of the base, because a set that uses little errs by
// little: counts of independent events deviate by the square root of their mean.
func scale(limit, base float64) float64 {
	return min(math.Sqrt(max(base/limit, leastScale)/fullScale), 1)
}

// asked is a prediction from the beginning of a quarter-hour. Both values are 0 without one.
type asked struct {
	base, peak peak
}

// record is the history of a predictor's errors for one horizon.
type record struct {
	open    [dayQuarters]asked // predictions that wait for their horizon's end, at their quarter-hour modulo the horizon
	none    float32            // weight of errors that were none: the base was not exceeded
	excess  [bins]float32      // weight of errors by how many units the base was exceeded
	misses  float32            // weight of predictions that were exceeded
	checked float32            // weight of all predictions that were checked
}

// ask notes a prediction.
func (e *record) ask(h model.Horizon, current int64, base, predicted float64) {
	a := asked{}
	if base > 0 {
		a = asked{encode(base), encode(predicted)}
	}
	e.open[index(current, quarters(h))] = a
}

// forget drops the predictions that were not made in the quarter-hours from one to another, which went unseen.
func (e *record) forget(h model.Horizon, before, current int64) {
	n := quarters(h)
	if current < before {
		before, current = current-1, before+1
	}
	for i := int64(1); i < min(current-before, n+1); i++ {
		e.open[index(before+i, n)] = asked{}
	}
}

// learn compares the prediction that was made at the beginning of a quarter-hour with what came of it.
func (e *record) learn(h model.Horizon, at int64, came peak, limit float64) {
	a := e.open[index(at, quarters(h))]
	if a.base == 0 {
		return
	}
	decay := float32(math.Exp2(-1 / learningOf(h).halfLife))
	if e.checked == 0 {
		e.assume(h)
	}
	e.none *= decay
	for i := range e.excess {
		e.excess[i] *= decay
	}
	e.misses *= decay
	e.checked = e.checked*decay + 1
	if came > a.peak {
		e.misses++
	}
	over := came.value() - a.base.value()
	if over <= 0 {
		e.none++
		return
	}
	// Above the limit, or with next to no room, the error is as large as can be.
	units := float64(reach)
	if unit := scale(limit, a.base.value()) * room(limit, a.base.value()); unit*reach > over {
		units = over / unit
	}
	e.excess[min(int(units*bins/reach), bins-1)]++
}

// assume begins with what is assumed.
func (e *record) assume(h model.Horizon) {
	l := learningOf(h)
	e.none = float32(l.assumed * (1 - l.share))
	for i := range e.excess {
		e.excess[i] = float32(assumedBins[h][i])
	}
}

// assumedAt returns which share of errors is assumed to lie in a bin; the last one has all that are larger.
func (l learning) assumedAt(bin int) float64 {
	tail := func(i int) float64 { return math.Exp(-float64(i) * reach / bins / l.excess) }
	if bin == bins-1 {
		return l.share * tail(bin)
	}
	return l.share * (tail(bin) - tail(bin+1))
}

// margin returns the units that errors exceeded as seldom as the target says. It is never below the minimum, which is
// smaller for a target above the default.
func (e *record) margin(h model.Horizon, target float64) float64 {
	floor := least * min(1, DefaultTarget/target)
	total := float64(e.none)
	if e.checked == 0 {
		l := learningOf(h)
		total = l.assumed * (1 - l.share)
	}
	for i := range bins {
		total += e.weight(h, i)
	}
	above, allowed := 0.0, target*total
	for i := bins - 1; i >= 0; i-- {
		w := e.weight(h, i)
		if above+w > allowed {
			return max((float64(i)+1-(allowed-above)/w)*reach/bins, floor)
		}
		above += w
	}
	return floor
}

// assumedBins are the assumed weights of all bins, which do not change.
var assumedBins = func() (all [model.Horizons][bins]float64) {
	for h := range model.Horizons {
		l := learningOf(h)
		for i := range bins {
			all[h][i] = l.assumed * l.assumedAt(i)
		}
	}
	return all
}()

// weight returns that of a bin.
func (e *record) weight(h model.Horizon, bin int) float64 {
	if e.checked == 0 {
		return assumedBins[h][bin]
	}
	return float64(e.excess[bin])
}

// missed returns which share of predictions was exceeded.
func (e *record) missed() float64 {
	if e.checked == 0 {
		return 0
	}
	return float64(e.misses / e.checked)
}
