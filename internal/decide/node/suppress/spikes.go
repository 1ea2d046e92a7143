package suppress

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// spikes are rises of online usage that end before any reaction could help. Random load has some in every second, and
// a small node has few services to average them out. If each spike lowered the limit, batch would stay far below the
// CPU that is left on average. During a spike, online pods have precedence over batch by their weights.
//
// A rise was a spike if neither the second in which it began nor the next full second shows half of its height. For
// some time, rises that are no higher are not acted on before the next measurement. A rise that lasts a second is
// never a spike, wherever in a measured second it begins.
type spikes struct {
	Height int64         // in milli-cores
	Faded  time.Duration // when it was lowered last
	Peak   int64         // usage at the height of an undecided rise, in milli-cores
	Half   int64         // usage halfway up
	Seen   time.Duration // time of that rise; 0: none
}

// note records a rise that was acted on; used is the usage before it.
func (s *spikes) note(g *model.Glance, used, rise int64) {
	if s.Seen = g.At; used+rise > s.Peak {
		s.Peak, s.Half = used+rise, used+rise/2
	}
}

// learn decides whether the recorded rise was a spike, as soon as a measurement can show it.
func (s *spikes) learn(n *model.Node) {
	l := n.Load
	if s.Height > 0 && l.Clock-s.Faded >= fade {
		s.Height, s.Faded = s.Height*15/16, l.Clock
	}
	mark := markOf(n, 0)
	used := mark.Pods + mark.Others
	lasted := used >= s.Half
	if s.Seen == 0 || !lasted && mark.At-s.Seen < whole {
		return
	}
	if was := (s.Peak - used) * 5 / 4; !lasted && was > s.Height { // with a margin for the next one
		s.Height, s.Faded = was, l.Clock
	}
	s.Seen, s.Peak, s.Half = 0, 0, 0
}
