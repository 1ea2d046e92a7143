package contention

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How the limit follows the CPU that is left. Fractions are in thousandths of the capacity.
const (
	deadBand      = 25               // smaller changes do not change the limit
	minCalm       = 3 * time.Second  // the limit does not rise for this long after it fell
	maxCalm       = 30 * time.Second // the most: that time doubles each time the limit falls again soon after it rose
	raiseInterval = time.Second      // between two raises of the limit
	maxRaise      = 100              // largest raise, but never less than one CPU

	noTarget = -1
)

// arithmetic is the limit that follows from the CPU that online pods leave under the waterline. It falls at once and
// rises slowly.
type arithmetic struct {
	Known  bool
	Milli  int64         // limit of batch
	Shrunk time.Duration // when the limit fell last
	Looked time.Duration // when a raise was last considered
	Least  int64         // lowest target since the later of the two; none: there was none yet
	Grown  time.Duration // when the limit rose last
	Calm   time.Duration // wait after a fall
}

// minBatch returns the CPU that the policy lets batch keep.
func (r *round) minBatch() int64 { return r.cpu.Capacity * r.p.Suppress.MinBatch / 1000 }

// decide sets the limit, and returns it as CPUs and parts.
//
// When measurements stop, the account shrinks with the age of the last one, and the limit with it. An agent that has
// just started has no measurement; stopping batch then would stop it at each start of an agent.
func (r *round) decide(memory int64) *model.Suppression {
	s := &r.state
	if !r.p.Suppress.On() {
		s.Arithmetic, s.CPUs, s.Parts, s.Reaction = arithmetic{}, 0, nil, model.Reaction{}
		return nil
	}
	measured := r.cpu.Use.Measured
	if !measured && !s.Arithmetic.Known {
		return nil
	}
	r.why = model.Reason{Code: model.SlackUnknown}
	if measured {
		r.follow()
	}
	r.limit = s.Arithmetic.Milli
	if r.onHarm && measured {
		r.bear()
	}
	quotas, core := r.means()
	r.count(quotas, core)
	r.divide(memory)
	s.Reaction.Observe(r.n.Load.Classes[model.BestEffort].CPU.At, r.cpu.Use.Batch)
	return &model.Suppression{
		Milli: r.limit, CPUs: s.CPUs, Cores: !quotas && core > 1, Parts: s.Parts, Reason: r.why, Reaction: s.Reaction,
		// A limit of less than one CPU, or one core, cannot be expressed as a number of CPUs.
		Quotas: !r.free() && (quotas || r.limit < int64(core)*1000),
	}
}

// follow moves the limit by arithmetic towards what is left.
func (r *round) follow() {
	s, a := &r.state.Arithmetic, r.cpu
	target := max(a.Allow, min(r.minBatch(), a.Capacity))
	r.explain(target)
	band := a.Capacity * deadBand / 1000
	if s.Least == noTarget || target < s.Least {
		s.Least = target
	}
	switch {
	case !s.Known, !r.Batch.Running:
		// No batch pod runs, so no online pod is affected.
		s.Known, s.Milli, s.Least, s.Looked = true, target, noTarget, r.now
	case target < s.Milli-band, target < s.Milli && (target == r.minBatch() || target <= band):
		if !r.onHarm {
			r.state.Reaction.Reduce(r.now, s.Milli, target, r.cpu.Use.Batch)
		}
		s.Calm = s.patience(r.now)
		s.Milli, s.Shrunk, s.Least = target, r.now, noTarget
	case r.now-s.Shrunk < max(s.Calm, minCalm) || r.now-s.Looked < raiseInterval:
		if target > s.Milli+band {
			r.why.Code = model.BatchSettling
		}
	default:
		if s.Least > s.Milli+band {
			s.Milli, s.Grown = min(s.Least, s.Milli+max(a.Capacity*maxRaise/1000, 1000)), r.now
		}
		if target > s.Milli+band {
			r.why.Code = model.BatchGrows
		}
		s.Looked, s.Least = r.now, noTarget
	}
}

// patience returns the wait after the limit falls now. If the online load swings, batch stays at the limit of the
// highest load instead of following each swing.
func (a *arithmetic) patience(now time.Duration) time.Duration {
	was := max(a.Calm, minCalm)
	switch {
	case a.Grown <= a.Shrunk:
		return was // the limit has not risen since the last fall
	case now-a.Grown < was:
		return min(2*was, maxCalm)
	}
	return max(was/2, minCalm)
}

// explain sets the reason for the target.
func (r *round) explain(target int64) {
	code := model.BatchAllowed
	switch {
	case target == r.minBatch() && target > 0:
		code = model.BatchMinimum
	case r.cpu.Use.Age > maxUseAge:
		code = model.SlackStale
	}
	r.why = model.Reason{Code: code, Operands: []model.Operand{{Name: "left", Value: r.cpu.Allow, Unit: model.UnitMilli}}}
	if least := r.minBatch(); least > 0 {
		r.why.Operands = append(r.why.Operands, model.Operand{Name: "minBatch", Value: least, Unit: model.UnitMilli})
	}
}
