package slack

import "time"

// How an offer follows the room that there is for it. It shrinks at once, and grows slowly: what is sold too late is lost,
// what is sold too early is taken from somebody. The room must have been clear of the offer for as long as hold, so that the
// agent sees more than the quiet moment of a busy service, and still be so by data that is as good as new; then the offer grows
// by a tenth of the capacity at most, and at most once a minute, so that each growth is seen to do no harm before the next.
//
// An offer that falls again within three hours is restless: its room goes up and down, or down and down. Each such fall doubles
// the time that the room must be clear for, and leaves a margin under the room, so that the next dip does not write again.
const (
	hold    = 45 * time.Second
	longest = 30 * time.Minute // as long as a room must be clear, at most
	again   = 3 * time.Hour    // falls that are less apart make an offer restless; each such time without one calms it down
	minute  = time.Minute
	growth  = 100 // of what could be sold at most, in thousandths
	grain   = 25  // of the capacity, in thousandths: the steps in which offers are made, so that noise writes nothing
	margin  = 2   // steps under the room to which a restless offer falls
)

// State is what must survive from one round to the next. It is of one boot of the machine: with the zero value, as after a
// boot, offers start at nothing and grow.
type State struct {
	Clock  time.Duration // of the round before
	CPU    Ledger
	Memory Ledger
}

// Ledger is what must survive of one resource.
type Ledger struct {
	Measured time.Duration // when what the last offer rests on was measured
	Mid      Line
	Batch    Line
}

// Line is an offer that follows its room.
type Line struct {
	Offer  int64
	Since  time.Duration // from when on the room has been clear above the offer; 0: it is not
	Lowest int64         // room since then
	Grown  time.Duration // when the offer grew last; 0: never
	Fell   time.Duration `json:",omitempty"` // when the offer fell last; falls of the same minute are one; 0: never
	Settle time.Duration `json:",omitempty"` // how long the room had to be clear when it fell; 0: never
}

// round is when, on the machine's clock since boot, is decided.
type round struct {
	clock   time.Duration
	watched bool // the round before was a moment ago, so that nothing was missed between
}

// steps is how an offer may move.
type steps struct {
	round
	fresh  bool  // the room is by data that is as good as new
	step   int64 // offers are whole steps
	growth int64 // the most that an offer grows at once
}

// steps returns how the offers of a resource may move. A fixed part of the capacity that is above it grows faster: a tenth
// of the capacity a minute would take half an hour to come to three times of it.
func (r *resource) steps(capacity int64) steps {
	s := steps{step: max(part(capacity, grain, 1000), r.step)}
	sold := capacity
	if ratio := part(capacity, r.sell.Ratio, 1000); !r.firm && r.static() {
		sold = max(sold, ratio)
	}
	s.growth = max(part(sold, growth, 1000), s.step)
	return s
}

// whole rounds down to whole steps.
func (s *steps) whole(v int64) int64 { return v - v%s.step }

// watch returns how long the room must be clear before the offer grows. It is halved for each time without a fall.
func (l *Line) watch(s *steps) time.Duration {
	return min(max(max(l.Settle, 0)>>min(l.quiet(s)/again, 62), hold), longest)
}

// quiet returns how long ago the offer fell.
func (l *Line) quiet(s *steps) time.Duration { return max(s.clock-l.Fell, 0) }

// under returns how far below the room the offer is kept.
func (l *Line) under(s *steps) int64 {
	if l.watch(s) > hold {
		return margin * s.step
	}
	return 0
}

// clear reports whether a room is so far above the offer that it is worth while to grow: by one and a half steps.
func (l *Line) clear(room int64, s *steps) bool { return 2*(room-l.under(s)-l.Offer) >= 3*s.step }

// follow moves an offer to where it may be with this room.
func (l Line) follow(room int64, s steps) Line {
	if l.Offer > room {
		l = l.fall(room, s)
	}
	l.Offer = s.whole(amount(l.Offer))
	switch {
	case !l.clear(room, &s):
		l.Since, l.Lowest = 0, 0
		return l
	case l.Since == 0 || !s.watched:
		l.Since, l.Lowest = s.clock, room
		return l
	}
	l.Lowest = min(amount(l.Lowest), room)
	if !s.fresh || s.clock-l.Since < l.watch(&s) || l.Grown != 0 && s.clock-l.Grown < minute {
		return l
	}
	l.Offer = s.whole(min(l.Lowest, l.Offer+s.growth))
	l.Grown = s.clock
	if !l.clear(l.Lowest, &s) {
		l.Since, l.Lowest = 0, 0 // all of what was seen is offered
	}
	return l
}

// fall takes an offer back that is above its room, and notes how restless it is. What falls within a minute falls once.
func (l Line) fall(room int64, s steps) Line {
	if quiet := l.quiet(&s); l.Fell == 0 || quiet >= minute {
		l.Settle = l.watch(&s)
		if l.Fell != 0 && quiet < again {
			l.Settle = min(2*l.Settle, longest)
		}
		l.Fell = s.clock
	}
	l.Offer = less(room, l.under(&s))
	return l
}
