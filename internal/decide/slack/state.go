package slack

import "time"

// How an offer follows the room that there is for it. It shrinks at once, and grows slowly: what is sold too late is lost,
// what is sold too early is taken from somebody. The room must have been clear of the offer for as long as hold, so that the
// agent sees more than the quiet moment of a busy service, and still be so by data that is as good as new; then the offer grows by a tenth of the capacity at most, and at
// most once a minute, so that each growth is seen to do no harm before the next.
const (
	hold   = 45 * time.Second
	minute = time.Minute
	growth = 100 // of what could be sold at most, in thousandths
	grain  = 25  // of the capacity, in thousandths: the steps in which offers are made, so that noise writes nothing
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

// clear reports whether a room is so far above an offer that it is worth while to grow.
func (s *steps) clear(room, offer int64) bool { return 2*(room-offer) >= 3*s.step }

// whole rounds down to whole steps.
func (s *steps) whole(v int64) int64 { return v - v%s.step }

// follow moves an offer to where it may be with this room.
func (l Line) follow(room int64, s steps) Line {
	l.Offer = s.whole(min(amount(l.Offer), room))
	switch {
	case !s.clear(room, l.Offer):
		l.Since, l.Lowest = 0, 0
		return l
	case l.Since == 0 || !s.watched:
		l.Since, l.Lowest = s.clock, room
		return l
	}
	l.Lowest = min(amount(l.Lowest), room)
	if !s.fresh || s.clock-l.Since < hold || l.Grown != 0 && s.clock-l.Grown < minute {
		return l
	}
	l.Offer = s.whole(min(l.Lowest, l.Offer+s.growth))
	l.Since, l.Lowest, l.Grown = 0, 0, s.clock
	return l
}
