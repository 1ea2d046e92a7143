package suppress

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// whole is how long after a moment a measurement tells of a second that lies wholly after it: a second, and some.
const whole = 1200 * time.Millisecond

// react notes that batch is given less, and what that must free. What is decided before the last reaction was seen to have an
// effect is part of it.
func (f *follow) react() {
	r := model.Reaction{At: f.now, From: f.state.Milli, To: f.target, Used: f.a.Use.Batch}
	if last := &f.state.Reaction; last.At != 0 && !last.Seen {
		r.From, r.Used = last.From, last.Used // it goes on
	}
	r.Expected = max(r.Used-r.To, 0)
	f.state.Reaction = r
}

// observe notes what the last reaction freed: by the first measurement of batch of which all the time lies after it.
func (f *follow) observe() {
	r := &f.state.Reaction
	if at := f.n.Load.Classes[model.BestEffort].CPU.At; r.At != 0 && !r.Seen && at-r.At >= whole {
		r.Seen, r.Observed = true, r.Used-f.a.Use.Batch
	}
}
