package peaks

import (
	"math"
	"slices"
)

// Numbers of trace values.
const (
	day      = 24 * 12
	twoHours = 2 * 12
)

// Names of the oracle and of the published predictors in the tables.
const (
	Oracle        = "oracle"
	FixedRatio    = "fixed ratio (0.9 × limit)"
	LastValue     = "last value"
	DayP95        = "p95 of 24 h"
	DayMax        = "max of 24 h"
	HoursMax      = "max of 2 h"
	NSigmaShort   = "N-sigma, n=5, 2 h"
	NSigmaLong    = "N-sigma, n=3, 24 h"
	PartsP99      = "sum of the parts' p99, 24 h"
	Google        = "max of N-sigma and the parts' p99"
	VPA           = "decayed p90 × 1.15 (VPA)"
	DecayedP95    = "decayed p95 × 1.10, 24 h"
	Koordinator   = "decayed p95 × 1.10, 12 h (Koordinator)"
	DecayedP98    = "decayed p98 × 1.10, 24 h"
	SeasonalMax   = "max around then of 2 days × 1.1"
	SeasonalOrNow = "max around then of 2 days, or now × 1.1"
)

// past is the input of the published predictors: the use of a machine up to now.
type past struct {
	parts    [][]float64
	total    []float64
	limit    float64
	day      histogram // half-life 24 h
	halfDay  histogram // half-life 12 h
	sorted   []float64 // scratch buffer of quantile
	now      int
	partsP99 float64
	dayP95   float64
}

// histogram is the decaying histogram of VPA and Koordinator. Its buckets grow by 5 % each, starting at a
// thousandth of the limit.
type histogram struct {
	weight [142]float64 // the last bucket contains the limit
	unit   float64      // weight of a new value; it grows, which is the same as old weights shrinking
	growth float64
	sum    float64
}

func newHistogram(halfLife int) histogram {
	return histogram{unit: 1, growth: math.Exp2(1 / float64(halfLife))}
}

func (h *histogram) add(share float64) {
	b := int(math.Log(max(share, 1e-3)/1e-3) / math.Log(1.05))
	h.weight[min(b, len(h.weight)-1)] += h.unit
	h.sum += h.unit
	if h.unit *= h.growth; h.unit > 1e100 { // without scaling it overflows after some months of values
		for i := range h.weight {
			h.weight[i] /= h.unit
		}
		h.sum /= h.unit
		h.unit = 1
	}
}

// quantile returns the upper end of the bucket that contains the quantile, as a share of the limit.
func (h *histogram) quantile(q float64) float64 {
	below := 0.0
	for b, w := range h.weight {
		if below += w; w > 0 && below >= q*h.sum {
			return 1e-3 * math.Pow(1.05, float64(b+1))
		}
	}
	return 1
}

// quantile returns a quantile of values by linear interpolation.
func (p *past) quantile(values []float64, q float64) float64 {
	p.sorted = append(p.sorted[:0], values...)
	slices.Sort(p.sorted)
	i := q * float64(len(p.sorted)-1)
	low := int(i)
	high := min(low+1, len(p.sorted)-1)
	return p.sorted[low] + (p.sorted[high]-p.sorted[low])*(i-float64(low))
}

// sigma returns the mean plus n standard deviations.
func sigma(values []float64, n float64) float64 {
	count := float64(len(values))
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / count
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	return mean + n*math.Sqrt(squares/(count-1))
}

// observe moves on to the next value of the trace.
func (p *past) observe(now int) {
	p.now = now
	share := p.total[now] / p.limit
	p.day.add(share)
	p.halfDay.add(share)
}

// last returns the last n values up to now.
func (p *past) last(of []float64, n int) []float64 { return of[p.now+1-n : p.now+1] }

// baseline is a published predictor.
type baseline struct {
	name    string
	predict func(p *past, horizon int) float64
}

// prepare computes the values that several predictors share.
func (p *past) prepare() {
	p.partsP99 = 0
	for _, part := range p.parts {
		p.partsP99 += p.quantile(p.last(part, day), 0.99)
	}
	p.partsP99 = min(p.partsP99, p.limit)
	p.dayP95 = p.quantile(p.last(p.total, day), 0.95)
}

// around returns the highest use in the same hours of the two days before, extended by 30 minutes at either
// end.
func (p *past) around(horizon int) float64 {
	most := 0.0
	for d := 1; d <= 2; d++ {
		i := p.now - day*d
		for _, v := range p.total[max(0, i+1-6):min(p.now+1, i+1+horizon+6)] {
			most = max(most, v)
		}
	}
	return most
}

// baselines lists the published predictors. They know the limit, and predictions are capped at it.
func baselines() []baseline {
	return []baseline{
		{FixedRatio, func(p *past, _ int) float64 { return 0.9 * p.limit }},
		{LastValue, func(p *past, _ int) float64 { return p.total[p.now] }},
		{DayP95, func(p *past, _ int) float64 { return p.dayP95 }},
		{DayMax, func(p *past, _ int) float64 { return slices.Max(p.last(p.total, day)) }},
		{HoursMax, func(p *past, _ int) float64 { return slices.Max(p.last(p.total, twoHours)) }},
		{NSigmaShort, func(p *past, _ int) float64 { return sigma(p.last(p.total, twoHours), 5) }},
		{NSigmaLong, func(p *past, _ int) float64 { return sigma(p.last(p.total, day), 3) }},
		{PartsP99, func(p *past, _ int) float64 { return p.partsP99 }},
		{Google, func(p *past, _ int) float64 { return max(sigma(p.last(p.total, twoHours), 5), p.partsP99) }},
		{VPA, func(p *past, _ int) float64 { return p.day.quantile(0.9) * p.limit * 1.15 }},
		{DecayedP95, func(p *past, _ int) float64 { return p.day.quantile(0.95) * p.limit * 1.1 }},
		{Koordinator, func(p *past, _ int) float64 { return p.halfDay.quantile(0.95) * p.limit * 1.1 }},
		{DecayedP98, func(p *past, _ int) float64 { return p.day.quantile(0.98) * p.limit * 1.1 }},
		{SeasonalMax, func(p *past, horizon int) float64 { return p.around(horizon) * 1.1 }},
		{SeasonalOrNow, func(p *past, horizon int) float64 { return max(p.around(horizon), p.total[p.now]*1.1) }},
	}
}
