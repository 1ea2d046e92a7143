package predict

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// How errors are remembered.
const (
	bins     = 64   // of errors, each of an equal share of the room between base and limit
	halfLife = 672  // quarter-hours learned from until an error counts for half: a week
	least    = 0.08 // share of the room that is left at the default target however well it went
)

// What is assumed of a set of which no errors are known yet, so that the first of them do not decide alone: it counts
// like a day and a half of quarter-hours, and says that the base is exceeded in a tenth of them, by 8 % of the room in
// the mean.
const (
	assumed       = 144
	assumedShare  = 0.1
	assumedExcess = 0.08
)

// asked is a prediction from the beginning of a quarter-hour. Both values are 0 without one.
type asked struct {
	base, peak peak
}

// record is what a predictor knows of its errors for one horizon.
type record struct {
	open    [dayQuarters]asked // predictions that wait for their horizon's end, at their quarter-hour modulo the horizon
	none    float32            // weight of errors that were none: the base was not exceeded
	excess  [bins]float32      // weight of errors by which share of the room the base was exceeded
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
	decay := float32(math.Exp2(-1.0 / halfLife))
	if e.checked == 0 {
		e.assume()
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
	share := 1.0
	if r := room(limit, a.base.value()); r > over {
		share = over / r
	}
	e.excess[min(int(share*bins), bins-1)]++
}

// assume begins with what is assumed.
func (e *record) assume() {
	e.none = assumed * (1 - assumedShare)
	for i := range e.excess {
		e.excess[i] = float32(assumed * assumedAt(i))
	}
}

// assumedAt returns which share of errors is assumed to lie in a bin; the last one has all that are larger.
func assumedAt(bin int) float64 {
	tail := func(i int) float64 { return math.Exp(-float64(i) / bins / assumedExcess) }
	if bin == bins-1 {
		return assumedShare * tail(bin)
	}
	return assumedShare * (tail(bin) - tail(bin+1))
}

// margin returns the share of the room that errors exceeded as seldom as the target says, and no less than what is
// always left. Who accepts more than the usual rate of violations gets a thinner rest as well.
func (e *record) margin(h model.Horizon, target float64) float64 {
	floor := least * min(1, DefaultTarget(h)/target)
	total := float64(e.none)
	if e.checked == 0 {
		total = assumed * (1 - assumedShare)
	}
	for i := range bins {
		total += e.weight(i)
	}
	above, allowed := 0.0, target*total
	for i := bins - 1; i >= 0; i-- {
		w := e.weight(i)
		if above+w > allowed {
			return max((float64(i)+1-(allowed-above)/w)/bins, floor)
		}
		above += w
	}
	return floor
}

// weight returns that of a bin.
func (e *record) weight(bin int) float64 {
	if e.checked == 0 {
		return assumed * assumedAt(bin)
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
