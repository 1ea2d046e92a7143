package slack

import "time"

// An offer follows its room. It falls at once and grows slowly: selling too late loses work, selling too early takes
// resources from online pods. Before the offer grows, it settles: for minSettling, the room must stay clear of the
// offer, so that the agent sees more than one quiet moment of a busy service, and the newest measurement must be
// fresh. Then the offer grows by at most a tenth of the capacity, and at most once a minute, so that each step proves
// harmless before the next. The first offer since the boot has no history to protect and is whole after the settling
// time: a fresh node sells in its first minute. Memory is whole only where the boot is ten minutes ago: online pods
// that still start have not filled theirs.
//
// An offer that falls again within three hours is unstable: its room goes up and down, or down repeatedly. Each such
// fall doubles the settling time. While the settling time is increased, a fall leaves a margin below the room, so
// that the next small dip changes nothing.
const (
	minSettling = 45 * time.Second
	maxSettling = 30 * time.Minute // longest settling time
	// Falls closer together make an offer unstable. Each such time without a fall halves the settling time.
	stableAfter = 3 * time.Hour
	minute      = time.Minute
	growth      = 100 // largest growth, in thousandths of what could be sold
	stepSize    = 25  // step size of offers in thousandths of the capacity, so that noise writes nothing
	marginSteps = 2   // margin of an unstable offer below the room, in steps
	// Time after the boot by which online pods have started and filled their memory.
	filled = 10 * time.Minute
)

// State is the state between rounds. It belongs to one boot of the machine. With the zero value, as after a boot,
// nothing is offered yet.
type State struct {
	Clock  time.Duration // of the previous round
	CPU    Ledger
	Memory Ledger
}

// Ledger is the state of one resource.
type Ledger struct {
	Measured time.Duration // time of the measurement behind the last offer
	Mid      Line
	Batch    Line
}

// Line is the state of one offer.
type Line struct {
	Offer      int64
	ClearSince time.Duration // since when the room has been clear of the offer; 0: it is not
	Lowest     int64         // lowest room since then
	Grown      time.Duration // time of the last growth; 0: never
	// Time of the last fall; falls within a minute count as one; 0: never.
	Fell     time.Duration `json:",omitempty"`
	Settling time.Duration `json:",omitempty"` // settling time at the last fall; 0: never
}

// round is the time of a decision on the boot clock.
type round struct {
	clock   time.Duration
	gapless bool // the previous round was recent, so that no measurement was missed
}

// steps limits the movement of an offer.
type steps struct {
	round
	fresh  bool  // the room comes from fresh measurements
	step   int64 // offers are multiples of this
	growth int64 // largest growth at once
	whole  bool  // a first offer may be whole
}

// steps returns the limits for the offers of a resource. A fixed offer above the capacity grows faster: with a tenth
// of the capacity per minute, an offer of three times the capacity would take half an hour.
func (r *resource) steps(capacity int64) steps {
	s := steps{step: max(part(capacity, stepSize, 1000), r.step)}
	sold := capacity
	if ratio := part(capacity, r.sell.Ratio, 1000); !r.incompressible && r.static() {
		sold = max(sold, ratio)
	}
	s.growth = max(part(sold, growth, 1000), s.step)
	return s
}

// roundDown rounds down to a multiple of the step.
func (s *steps) roundDown(v int64) int64 { return v - v%s.step }

// settling returns the settling time. It halves with each period of `stableAfter` without a fall.
func (l *Line) settling(s *steps) time.Duration {
	return min(max(max(l.Settling, 0)>>min(l.sinceFall(s)/stableAfter, 62), minSettling), maxSettling)
}

// sinceFall returns the time since the last fall.
func (l *Line) sinceFall(s *steps) time.Duration { return max(s.clock-l.Fell, 0) }

// margin returns the margin below the room.
func (l *Line) margin(s *steps) int64 {
	if l.settling(s) > minSettling {
		return marginSteps * s.step
	}
	return 0
}

// first reports whether nothing was offered yet.
func (l *Line) first() bool { return l.Offer == 0 && l.Grown == 0 && l.Fell == 0 }

// ended returns the line while nothing is sold, as between two windows. Its history stays; mode Disabled ends that too.
func (l Line) ended() Line {
	l.Offer, l.ClearSince, l.Lowest = 0, 0, 0
	return l
}

// mayGrow reports whether the room exceeds the offer enough to grow: by one and a half steps.
func (l *Line) mayGrow(room int64, s *steps) bool { return 2*(room-l.margin(s)-l.Offer) >= 3*s.step }

// follow returns the offer after a round with this room.
func (l Line) follow(room int64, s steps) Line {
	if l.Offer > room {
		l = l.fall(room, s)
	}
	l.Offer = s.roundDown(amount(l.Offer))
	switch {
	case !l.mayGrow(room, &s):
		l.ClearSince, l.Lowest = 0, 0
		return l
	case l.ClearSince == 0 || !s.gapless:
		l.ClearSince, l.Lowest = s.clock, room
		return l
	}
	l.Lowest = min(amount(l.Lowest), room)
	if !s.fresh || s.clock-l.ClearSince < l.settling(&s) || l.Grown != 0 && s.clock-l.Grown < minute {
		return l
	}
	most := l.Offer + s.growth
	if s.whole && l.first() {
		most = l.Lowest
	}
	l.Offer = s.roundDown(min(l.Lowest, most))
	l.Grown = s.clock
	if !l.mayGrow(l.Lowest, &s) {
		l.ClearSince, l.Lowest = 0, 0 // the offer has reached the room
	}
	return l
}

// fall lowers an offer to its room and updates its stability. Falls within a minute count as one.
func (l Line) fall(room int64, s steps) Line {
	if fell := l.sinceFall(&s); l.Fell == 0 || fell >= minute {
		l.Settling = l.settling(&s)
		if l.Fell != 0 && fell < stableAfter {
			l.Settling = min(2*l.Settling, maxSettling)
		}
		l.Fell = s.clock
	}
	l.Offer = less(room, l.margin(&s))
	return l
}
