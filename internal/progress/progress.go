// Package progress reports how far a long command is, and shows that to a person.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Step is one report of an experiment or a simulation.
type Step struct {
	Experiment string
	Doing      string        // what the experiment does now
	Now        string        // the figure of the moment; "": none
	Elapsed    time.Duration // part of Total that has passed
	Total      time.Duration // length of what it does now; 0: unknown
}

// Line shows steps. On a terminal one line changes in place, elsewhere each new step gets a line.
type Line struct {
	w        io.Writer
	terminal bool
	last     string
}

// NewLine returns a Line that writes to w.
func NewLine(w io.Writer) *Line { return &Line{w: w, terminal: IsTerminal(w)} }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

const clearLine = "\r\x1b[K"

// Show shows a step.
func (l *Line) Show(s Step) {
	step := s.Experiment + ": " + s.Doing
	if !l.terminal {
		if step != l.last && s.Total > 0 {
			fmt.Fprintf(l.w, "%s, %.0f s\n", step, s.Total.Seconds())
		} else if step != l.last {
			fmt.Fprintln(l.w, step)
		}
		l.last = step
		return
	}
	fmt.Fprint(l.w, clearLine, step)
	if s.Total > 0 {
		const cells = 20
		done := min(int(cells*s.Elapsed/s.Total), cells)
		fmt.Fprintf(l.w, "  %s%s  %2.0f / %.0f s", strings.Repeat("█", done), strings.Repeat("░", cells-done),
			s.Elapsed.Round(time.Second).Seconds(), s.Total.Seconds())
	}
	if s.Now != "" {
		fmt.Fprint(l.w, "  ", s.Now)
	}
}

// End clears the line that changes in place.
func (l *Line) End() {
	if l.terminal {
		fmt.Fprint(l.w, clearLine)
	}
}
