package suppress

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// spikes are rises that were over before anything could be done about them. Load that comes at random has some in every second, and
// a small node has few services to level them out: were each a reason to give batch less, batch would stay at what is left at their
// height, far below what is left in the mean of any second. Online pods come first in them by weight.
//
// So a rise of which neither the second in which it came nor the whole one after that shows half was one, and for some time a rise that
// is no higher is not acted on before the next measurement. What lasts a second is no spike, wherever in a second it begins.
type spikes struct {
	Height int64         // in milli-cores
	Faded  time.Duration // when it last became less
	Peak   int64         // what was used at the height of a rise of which it is not known yet, in milli-cores
	Half   int64         // what was used halfway up
	Seen   time.Duration // when it was last seen; 0: there is none
}

// note takes in a rise that is acted on, from what was used before it.
func (s *spikes) note(g *model.Glance, used, rise int64) {
	if s.Seen = g.At; used+rise > s.Peak {
		s.Peak, s.Half = used+rise, used+rise/2
	}
}

// learn finds out whether a rise was a spike, as soon as a measurement can tell.
func (s *spikes) learn(l *model.Load) {
	if s.Height > 0 && l.Clock-s.Faded >= fade {
		s.Height, s.Faded = s.Height*15/16, l.Clock
	}
	mark := markOf(l, 0)
	used := mark.Pods + mark.Others
	lasted := used >= s.Half
	if s.Seen == 0 || !lasted && mark.At-s.Seen < whole {
		return
	}
	if was := (s.Peak - used) * 5 / 4; !lasted && was > s.Height { // the next one may be a little higher
		s.Height, s.Faded = was, l.Clock
	}
	s.Seen, s.Peak, s.Half = 0, 0, 0
}
