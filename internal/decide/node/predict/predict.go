// Package predict predicts the peak usage of a set of pods in the next hour and in the next day, from its past alone.
//
// Its state is a week of quarter-hours, each with its peak, and the errors of past predictions. The first gives a base:
//
//   - for an hour, the peak of the last hour or the usage around this time on other days, whichever is higher, plus
//     three quarters of a short-term standard deviation. They cover new load and load that returns.
//   - for a day, the peak of the week.
//
// The errors give a margin: a part of the room between base and limit, so that usage would have exceeded its own past
// predictions as rarely as the target says. Below three tenths of the limit the part is smaller: what uses little errs
// by little. docs/design/predict.md has the figures for each part.
//
// A gap is a gap: missing samples, clock steps and a suspended machine leave quarter-hours unmeasured and teach
// nothing.
package predict

import (
	"math"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// quarters returns how many quarter-hours a horizon is.
func quarters(h model.Horizon) int64 {
	if h == model.Day {
		return dayQuarters
	}
	return hourQuarters
}

// Quarter-hours, of which the past is made.
const (
	quarter      = 15 * time.Minute
	hourQuarters = 4
	dayQuarters  = 24 * hourQuarters
	week         = 7 // days
	slack        = 3 // quarter-hours by which a daily load may come earlier or later
	past         = week*dayQuarters + slack + 1
)

// When something is known, in measured quarter-hours: of an hour to come after a day, of a day to come after two,
// because a peak seen once is not yet a pattern. For the same reason errors made earlier are not learned from.
const (
	knowsHour = dayQuarters
	knowsDay  = 2 * dayQuarters
)

// Until an hour to come is known, this share of the room between base and limit is added to the base: the first of them
// at the beginning, the second once an hour was measured. docs/design/predict.md has the figures.
const (
	earlyMargin = 0.5
	laterMargin = 0.3
)

// Data up to maxFullAge counts fully; from maxAge on it counts nothing.
const (
	maxFullAge = 5 * time.Minute
	maxAge     = time.Hour
)

// DefaultTarget is the default fraction of predictions that usage may exceed.
const DefaultTarget = 0.02

// Weights of an hour's base.
const (
	highestDay    = 0.25 // of the highest of the other days; their mean has the rest
	highestAhead  = 0.5  // the same in OtherDays
	deviations    = 0.75 // short-term standard deviations that are added
	deviationLife = time.Hour
)

// Config is the configuration of a predictor. Its values have one unit, any: milli-cores, bytes, percent.
type Config struct {
	Limit  float64                 // most that the set can use, usually the capacity of its node; > 0
	Target [model.Horizons]float64 // share of predictions of each horizon that may be exceeded, in (0, 1); 0: the default
	// peak that other pods of the same workload owners suggest, used until enough was measured; 0: none
	Prior float64
	// Early allows the next hour to be predicted from use alone until enough was measured, if that gives less than the
	// prior. Young is what pods that began lately may need beyond their use meanwhile, >= 0.
	Early bool
	Young float64
}

// bounded reports whether the limit is valid. Only then can a part of it be predicted.
func (c *Config) bounded() bool { return c.Limit > 0 && c.Limit <= highestSample }

func (c *Config) target(h model.Horizon) float64 {
	if t := c.Target[h]; t > 0 && t < 1 {
		return t
	}
	return DefaultTarget
}

// Prediction is what will be used at most.
type Prediction struct {
	Peak  float64       // never below the last sample, and above the limit only if that sample was
	Known bool          // false: too little was measured, or too long ago; Peak then is the limit, or comes from the prior
	Prior bool          // too little was measured of the set itself, and Peak comes from the prior as well
	Early bool          // too little was measured, and Peak is what is used now with a larger margin
	Age   time.Duration // of the last sample; 0 if there is none
	Base  float64       // the past's part of Peak
	// Share of the room between base and limit that was added.
	Margin float64
	// Missed is the share of this predictor's own predictions for this horizon that were exceeded, from 0 to 1: the last
	// week counts for half. Checked is how many quarter-hours it rests on.
	Missed  float64
	Checked float64
}

// Predictor is all that is remembered of one set of pods. It is a plain value: a copy is independent. The zero value
// has seen nothing.
type Predictor struct {
	seen    bool       // anything
	last    int64      // time of the newest sample, in nanoseconds since 1970
	value   float64    // newest sample
	peaks   [past]peak // of quarter-hours, at their number modulo past; those up to the one of the newest sample
	mean    float64    // short-term
	spread  float64    // short-term variance
	around  peak       // this and what follows is renewed with each quarter-hour: used around this time of other days
	highest peak       // of all quarter-hours
	count   int        // of measured quarter-hours
	errors  [model.Horizons]record
}

// Observe takes a sample: what the set used at a time, best over the minute up to it or over five. What is not a finite
// number, or negative, is not a sample.
func (p *Predictor) Observe(c Config, at time.Time, value float64) {
	if math.IsNaN(value) || value < 0 || value > highestSample {
		return
	}
	now := at.UnixNano()
	if !p.seen {
		p.seen, p.mean, p.last = true, value, now
	}
	before, current := slot(p.last), slot(now)
	if before != current {
		p.turn(c, before, current)
	}
	p.settle(value, time.Duration(now-p.last))
	most := &p.peaks[place(current)]
	*most = max(*most, encode(value))
	p.last, p.value = now, value
}

// turn goes on to another quarter-hour. If the clock was set back, what was seen of the time that comes again is
// forgotten.
func (p *Predictor) turn(c Config, before, current int64) {
	step := current - before
	for i := int64(1); i <= min(step, past); i++ {
		p.peaks[place(before+i)] = 0
	}
	for i := int64(0); i < min(-step, past); i++ {
		p.peaks[place(before-i)] = 0
	}
	for h := range model.Horizons {
		e := &p.errors[h]
		if step < 0 || step > 1 {
			e.forget(h, before, current)
		}
		if from := current - quarters(h); c.bounded() && p.covered(from, current) {
			e.learn(h, from, p.most(from, current), c.Limit)
		}
	}
	p.renew(current)
	for h := range model.Horizons {
		p.errors[h].ask(h, current, 0, 0)
		if p.count >= knowsDay && c.bounded() {
			base := p.base(h, current-1)
			p.errors[h].ask(h, current, base, base+p.margin(&c, h, base)*room(c.Limit, base))
		}
	}
}

// settle moves the short-term mean and variance on. After a gap a sample weighs no more than one of five minutes.
func (p *Predictor) settle(value float64, passed time.Duration) {
	if passed <= 0 {
		return
	}
	weight := 1 - math.Exp2(-float64(min(passed, maxFullAge))/float64(deviationLife))
	d := value - p.mean
	p.mean += weight * d
	p.spread = (1 - weight) * (p.spread + weight*d*d)
}

// renew computes anew what stays the same for a quarter-hour.
func (p *Predictor) renew(current int64) {
	p.highest, p.count = 0, 0
	for _, v := range p.peaks {
		p.highest = max(p.highest, v)
		if v != 0 {
			p.count++
		}
	}
	p.around = p.daily(current)
}

// daily returns what was used on other days in the hour from this quarter-hour on, or a little earlier or later: mostly
// their mean, and a part of the highest, so that one odd day neither counts for a week nor is forgotten; but no less
// than a week ago, for loads that come once a week.
func (p *Predictor) daily(current int64) peak {
	return p.onOtherDays(current, hourQuarters, highestDay, func(from, to int64) bool { return true })
}

// onOtherDays is daily for so many quarter-hours, with the weight of the highest day and the days on which a time
// counts.
func (p *Predictor) onOtherDays(current, quarters int64, weight float64, counts func(from, to int64) bool) peak {
	highest, sum, days := 0.0, 0.0, 0.0
	var most peak
	for d := int64(1); d <= week; d++ {
		from := current - d*dayQuarters - slack
		to := from + 2*slack + quarters + 1
		most = 0
		if counts(from, to) {
			most = p.most(from, to) // in the end that of a week ago
		}
		if most == 0 {
			continue
		}
		v := most.value()
		highest = max(highest, v)
		sum += v
		days++
	}
	if days == 0 {
		return 0
	}
	return max(encode(weight*highest+(1-weight)*sum/days), most)
}

// OtherDays returns the highest use of other days in so many quarter-hours, up to a day, that begin at a time of the
// day. It is not a prediction: it has no margin for errors, and does not know what is used now. It is 0 if no other day
// was measured in that time, or if the last sample is too old.
func (p *Predictor) OtherDays(at time.Time, quarters int64) float64 {
	if !p.seen || time.Duration(at.UnixNano()-p.last) >= maxAge {
		return 0
	}
	return p.onOtherDays(slot(at.UnixNano()), min(quarters, dayQuarters), highestAhead, p.covered).value()
}

// most returns the highest peak of quarter-hours, without the last; 0 if none was measured.
func (p *Predictor) most(from, to int64) peak {
	var most peak
	for s := from; s < to; s++ {
		most = max(most, p.peaks[place(s)])
	}
	return most
}

// covered says whether of the quarter-hours from one to before another three in four were measured: what happened then
// is known.
func (p *Predictor) covered(from, to int64) bool {
	n := int64(0)
	for s := from; s < to; s++ {
		if p.peaks[place(s)] != 0 {
			n++
		}
	}
	return 4*n >= 3*(to-from)
}

// base returns the past's part of a prediction that is made in a quarter-hour.
func (p *Predictor) base(h model.Horizon, current int64) float64 {
	if h == model.Day {
		return max(p.highest, p.peaks[place(current)]).value()
	}
	recent := p.most(current-hourQuarters+1, current+1)
	return max(recent, p.around).value() + deviations*math.Sqrt(p.spread)
}

// room is what lies between a base and the limit.
func room(limit, base float64) float64 { return max(limit-base, 0) }

// margin returns the part of the room above a base that past errors ask for, from 0 to 1. The configuration must be
// bounded.
func (p *Predictor) margin(c *Config, h model.Horizon, base float64) float64 {
	return min(p.errors[h].margin(h, c.target(h))*scale(c.Limit, base), 1)
}

// Predict says what will be used at most from a time on, from what was seen until the last sample. As that gets older
// the prediction moves to the limit.
func (p *Predictor) Predict(c Config, at time.Time, h model.Horizon) Prediction {
	e := &p.errors[h]
	r := Prediction{Missed: e.missed(), Checked: float64(e.checked)}
	if p.seen {
		r.Age = max(time.Duration(at.UnixNano()-p.last), 0)
		r.Base = p.base(h, slot(p.last))
	}
	r.Peak = max(r.Base, p.value)
	if !c.bounded() {
		return r // nothing can be said about what is left of something unknown
	}
	r.Base = min(r.Base, c.Limit)
	r.Margin = p.margin(&c, h, r.Base)
	peak := r.Base + r.Margin*room(c.Limit, r.Base)
	if r.Known = p.knows(h); !r.Known {
		if r.Prior = c.Prior > 0; r.Prior {
			peak = min(max(peak, c.Prior), c.Limit)
		} else {
			peak = c.Limit
		}
		if early := p.early(c, &r); h == model.Hour && early < peak {
			peak, r.Margin, r.Prior, r.Early = early, max(r.Margin, p.earlyMargin()), false, true
		}
	}
	if r.Age > maxFullAge {
		doubt := min(float64(r.Age-maxFullAge)/float64(maxAge-maxFullAge), 1)
		peak += doubt * room(c.Limit, peak)
		r.Known = r.Known && r.Age < maxAge
	}
	r.Peak = max(peak, p.value)
	return r
}

// early returns what a set will use at most within an hour of which too little was measured, by what it uses now; the
// limit if that is not allowed, or if nothing was measured. It is no less than the base with the usual margin.
func (p *Predictor) early(c Config, r *Prediction) float64 {
	if !c.Early || !p.seen {
		return c.Limit
	}
	return min(r.Base+max(r.Margin, p.earlyMargin())*room(c.Limit, r.Base)+max(c.Young, 0), c.Limit)
}

// earlyMargin is the share of the room that is added to a base, by how much of the hour before was measured. What was
// measured earlier is not in the base.
func (p *Predictor) earlyMargin() float64 {
	missing, now := 0.0, slot(p.last)
	for s := now - hourQuarters; s < now; s++ {
		if p.peaks[place(s)] == 0 {
			missing += 1. / hourQuarters
		}
	}
	return laterMargin + missing*(earlyMargin-laterMargin)
}

// knows says whether enough was measured to predict.
func (p *Predictor) knows(h model.Horizon) bool {
	if h == model.Day {
		return p.count >= knowsDay
	}
	return p.count >= knowsHour
}
