// Package faillog logs what goes wrong in an agent that runs for months.
package faillog

import (
	"log/slog"
	"sync"
	"time"
)

// Log logs failures without repeating itself. A failure that stays the same is one line, one that keeps changing its
// text, or comes and goes, is one line a minute, and the end of a failure that was logged is one line. It is safe for
// concurrent use.
type Log struct {
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

// New returns a log that writes to another.
func New(log *slog.Logger) *Log {
	return &Log{log: log, last: map[string]trouble{}, counts: map[string]uint64{}}
}

// Report takes the outcome of one kind of work; nil means success.
func (t *Log) Report(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.last[what]
	if err == nil {
		if old.said {
			t.log.Info("recovered", "operation", what)
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
	t.log.Warn("failed", "operation", what, "err", text)
}

// Each calls f for every kind of work that ever failed, with the number of failures.
func (t *Log) Each(f func(what string, count uint64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for what, count := range t.counts {
		f(what, count)
	}
}

// Standing returns the errors of the kinds of work that failed last time, by the kind of work. It is nil without any.
func (t *Log) Standing() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all map[string]string
	for what, trouble := range t.last {
		if !trouble.stands {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[what] = trouble.text
	}
	return all
}

// Warn logs a message that is no failure of the agent's own.
func (t *Log) Warn(message string, args ...any) { t.log.Warn(message, args...) }

// Info logs a message that is no failure.
func (t *Log) Info(message string, args ...any) { t.log.Info(message, args...) }
