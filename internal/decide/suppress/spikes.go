package suppress

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// spikes are rises that were over before anything could be done about them. Load that comes at random has some in every second, and
// a small node has few services to level them out: were each a reason to give batch less, batch would stay at what is left at their
// height, far below what is left in the mean of any second. Online pods come first in them by weight.
//
// So a rise that the first whole second after it does not show was one, and for some time a rise that is no higher is not acted on
// before the next measurement.
type spikes struct {
	Height int64         // in milli-cores
	Faded  time.Duration // when it last became less
	Peak   int64         // what was used at the height of a rise of which it is not known yet, in milli-cores
	Seen   time.Duration // when it was last seen; 0: there is none
}

// note takes in a rise that is acted on.
func (b *spikes) note(g *model.Glance, peak int64) {
	if b.Seen == 0 {
		b.Peak = 0
	}
	b.Seen, b.Peak = g.At, max(b.Peak, peak)
}

// learn finds out whether a rise was a spike, as soon as a measurement can tell.
func (b *spikes) learn(l *model.Load) {
	if l.Clock < b.Seen || l.Clock < b.Faded {
		*b = spikes{} // of another boot
	}
	if b.Height > 0 && l.Clock-b.Faded >= fade {
		b.Height, b.Faded = b.Height*15/16, l.Clock
	}
	if level := levelOf(l); b.Seen != 0 && level.at-b.Seen >= whole {
		if was := (b.Peak - level.sum()) * 5 / 4; was > b.Height { // the next one may be a little higher
			b.Height, b.Faded = was, l.Clock
		}
		b.Seen = 0
	}
}
