package slack

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

func (r *resource) static() bool { return r.sell.Method == model.SellStatic }

// reason returns the reason for the offer, with the operands of the balance.
func (r *resource) reason(a *model.Account, l Ledger, now round) model.Reason {
	offered := plus(a.Offer.Mid, a.Offer.Batch)
	room := plus(a.Room.Mid, a.Room.Batch)
	s := r.steps(a.Capacity)
	s.round = now
	switch {
	case r.sell.Method == "":
		return r.because(model.NotSold, model.Operand{Name: "could", Value: room, Unit: r.unit})
	case !a.Use.Measured:
		return r.because(model.SlackUnknown)
	case a.Use.Age > maxFullAge:
		return r.because(model.SlackStale,
			model.Operand{Name: "age", Value: int64(a.Use.Age / time.Second), Unit: model.UnitSeconds},
			model.Operand{Name: "trusted", Value: trusted(1000, a.Use.Age), Unit: model.UnitTimes},
			model.Operand{Name: "room", Value: room, Unit: r.unit})
	case r.static() && !r.incompressible:
		return r.because(model.SoldStatic,
			model.Operand{Name: "offer", Value: offered, Unit: r.unit},
			model.Operand{Name: "allowance", Value: a.Allow, Unit: r.unit},
			model.Operand{Name: "missing", Value: less(offered, a.Allow), Unit: r.unit})
	case s.roundDown(a.Room.Mid) == 0 && s.roundDown(a.Room.Batch) == 0:
		return r.because(model.SlackNone, r.sum(a)...)
	case l.Mid.delayed(a.Room.Mid, &s) || l.Batch.delayed(a.Room.Batch, &s):
		longest := max(l.Mid.settling(&s), l.Batch.settling(&s))
		settling := model.Operand{Name: "settling", Value: int64(longest / time.Second), Unit: model.UnitSeconds}
		return r.because(model.OfferUnstable, append([]model.Operand{settling}, r.sum(a)...)...)
	case l.Mid.mayGrow(a.Room.Mid, &s) || l.Batch.mayGrow(a.Room.Batch, &s):
		return r.because(model.OfferGrows, r.sum(a)...)
	case r.static():
		fixed := model.Operand{Name: "fixed", Value: part(a.Capacity, r.sell.Ratio, 1000), Unit: r.unit}
		return r.because(model.SoldStatic, append([]model.Operand{fixed}, r.sum(a)...)...)
	case r.sell.Method == model.SellRealtime:
		return r.because(model.SoldRealtime, r.sum(a)...)
	case a.Peaks[model.Hour].Learning:
		return r.because(model.SoldLearning, r.sum(a)...)
	}
	return r.because(model.SoldPredicted, r.sum(a)...)
}

// delayed reports whether the offer would have grown already, or to a higher value, if it were stable.
func (l *Line) delayed(room int64, s *steps) bool {
	return l.margin(s) > 0 && 2*(room-l.Offer) >= 3*s.step
}

func (r *resource) because(code model.Code, operands ...model.Operand) model.Reason {
	return model.Reason{Code: code, Operands: operands}
}

// sum returns the operands of the balance: the room is the first number minus the others.
func (r *resource) sum(a *model.Account) []model.Operand {
	operands := []model.Operand{
		{Name: "ceiling", Value: a.Ceiling, Unit: r.unit},
		{Name: "system", Value: max(a.Use.System, a.Reserved), Unit: r.unit},
	}
	for _, o := range []model.Operand{
		{Name: "stolen", Value: a.Use.Stolen, Unit: r.unit},
		{Name: "daemons", Value: a.Use.Daemons, Unit: r.unit},
		{Name: "unsold", Value: a.Use.Unsold, Unit: r.unit},
	} {
		if o.Value > 0 {
			operands = append(operands, o)
		}
	}
	if r.incompressible {
		operands = append(operands, model.Operand{Name: "watermark", Value: a.Watermark, Unit: r.unit})
	}
	if r.sell.Method == model.SellPredicted {
		operands = append(operands, model.Operand{Name: "peak", Value: a.Prod[model.Hour], Unit: r.unit})
	} else {
		online := plus(a.Use.Online, a.Use.Unmeasured, a.Use.IdleExclusive, a.Use.Protected)
		operands = append(operands, model.Operand{Name: "online", Value: online, Unit: r.unit})
	}
	return operands
}
