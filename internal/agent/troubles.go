package agent

import (
	"log/slog"
	"sync"
	"time"
)

// troubles logs what goes wrong without repeating itself: a trouble that stays the same is one line, one that keeps
// changing its words is a line a minute, and its end is a line.
type troubles struct {
	log *slog.Logger

	mu     sync.Mutex
	last   map[string]trouble
	counts map[string]uint64
}

type trouble struct {
	text   string
	logged time.Time
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, last: map[string]trouble{}, counts: map[string]uint64{}}
}

// report takes the outcome of one kind of work. A nil error means that it went well.
func (t *troubles) report(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, troubled := t.last[what]
	if err == nil {
		if troubled {
			delete(t.last, what)
			t.log.Info("well again", "what", what)
		}
		return
	}
	t.counts[what]++
	text := err.Error()
	if troubled && (old.text == text || time.Since(old.logged) < time.Minute) {
		return
	}
	t.last[what] = trouble{text: text, logged: time.Now()}
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
