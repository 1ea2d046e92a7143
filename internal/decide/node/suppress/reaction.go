package suppress

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// whole is the time after a moment until a measurement covers a full second after it: one second and a margin.
const whole = 1200 * time.Millisecond

// react records a reduction of the limit and the usage that it must free. A reduction that follows before the effect
// of the previous one was measured continues that one.
func (f *follow) react(from, to int64) {
	r := model.Reaction{At: f.now, From: from, To: to, Used: f.a.Use.Batch}
	if last := &f.state.Reaction; last.At != 0 && !last.Seen {
		r.From, r.Used = last.From, last.Used // it continues the previous reduction
	}
	r.Expected = max(r.Used-r.To, 0)
	f.state.Reaction = r
}

// observe records what the last reduction freed: by the first measurement of batch that lies completely after it.
func (f *follow) observe() {
	r := &f.state.Reaction
	if at := f.n.Load.Classes[model.BestEffort].CPU.At; r.At != 0 && !r.Seen && at-r.At >= whole {
		r.Seen, r.Observed = true, r.Used-f.a.Use.Batch
	}
}
