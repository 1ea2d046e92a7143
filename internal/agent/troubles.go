package agent

import (
	"log/slog"
	"sync"
	"time"
)

// troubles logs what goes wrong without repeating itself: a trouble that stays the same is one line, one that keeps
// changing its words or comes and goes is a line a minute, and the end of one that was logged is a line.
type troubles struct {
	log *slog.Logger

	mu     sync.Mutex
	last   map[string]trouble
	counts map[string]uint64
}

type trouble struct {
	text   string
	logged time.Time
	stands bool // it is not over
	said   bool // it has been logged since it began
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, last: map[string]trouble{}, counts: map[string]uint64{}}
}

// report takes the outcome of one kind of work. A nil error means that it went well.
func (t *troubles) report(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.last[what]
	if err == nil {
		if old.said {
			t.log.Info("well again", "what", what)
		}
		if old.stands {
			old.stands, old.said = false, false
			t.last[what] = old
		}
		return
	}
	t.counts[what]++
	text := err.Error()
	if old.said && old.text == text {
		return
	}
	if known && time.Since(old.logged) < time.Minute {
		old.stands = true
		t.last[what] = old
		return
	}
	t.last[what] = trouble{text: text, logged: time.Now(), stands: true, said: true}
	t.log.Warn("trouble", "what", what, "err", text)
}

// each calls f for every kind of work that ever failed, with the number of times.
func (t *troubles) each(f func(what string, count uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, count := range t.counts {
		f(what, count)
	}
}
