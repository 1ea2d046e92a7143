package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/progress"
)

// screen shows a text that changes. On a terminal each picture replaces the one before in one write, so nothing
// flickers; elsewhere the pictures follow each other.
type screen struct {
	out      io.Writer
	terminal *os.File // nil: it is none
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok && progress.IsTerminal(out) && os.Getenv("TERM") != "dumb" {
		s.terminal = file
	}
	return s
}

// Control sequences of terminals (ECMA-48, and DEC's private modes that all terminals know).
const (
	toSecondScreen = "\x1b[?1049h\x1b[?25l" // with the cursor hidden
	toFirstScreen  = "\x1b[?25h\x1b[?1049l"
	home           = "\x1b[H"
	clearToEnd     = "\x1b[K" // of the line
	clearBelow     = "\x1b[J"
	bold, normal   = "\x1b[1m", "\x1b[0m"
)

// open prepares the terminal, which there must be, for pictures and keys. It returns the keys that are pressed, and
// what puts the terminal back.
func (s *screen) open(ctx context.Context) (keys <-chan byte, closed func()) {
	pressed := make(chan byte)
	_, _ = io.WriteString(s.out, toSecondScreen)
	restore := func() {}
	in := int(os.Stdin.Fd())
	if old, err := unix.IoctlGetTermios(in, getTermios); err == nil {
		raw := *old
		raw.Lflag &^= unix.ICANON | unix.ECHO // signals stay, so Ctrl-C works as ever
		if unix.IoctlSetTermios(in, setTermios, &raw) == nil {
			restore = func() { _ = unix.IoctlSetTermios(in, setTermios, old) }
			go readKeys(ctx, pressed)
		}
	}
	return pressed, func() {
		restore()
		_, _ = io.WriteString(s.out, toFirstScreen)
	}
}

// readKeys reads keys until the process ends: a read from a terminal cannot be interrupted.
func readKeys(ctx context.Context, pressed chan<- byte) {
	in := bufio.NewReader(os.Stdin)
	for {
		key, err := in.ReadByte()
		if err != nil {
			return
		}
		select {
		case pressed <- key:
		case <-ctx.Done():
			return
		}
	}
}

// show shows a picture, cut to the terminal. Its second line is a heading.
func (s *screen) show(picture string) error {
	if s.terminal == nil {
		_, err := io.WriteString(s.out, picture+"\n")
		return err
	}
	columns, rows := 1<<10, 1<<20 // enough for everything, where the terminal does not tell its size
	if size, err := unix.IoctlGetWinsize(int(s.terminal.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		columns, rows = int(size.Col), int(size.Row)
	}
	_, err := io.WriteString(s.out, frame(picture, columns, rows, os.Getenv("NO_COLOR") == ""))
	return err
}

// frame turns a picture into what is written to a terminal.
func frame(picture string, columns, rows int, styled bool) string {
	var b strings.Builder
	b.WriteString(home)
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	for i, line := range lines[:min(len(lines), rows)] {
		if i > 0 {
			b.WriteString("\n")
		}
		if utf8.RuneCountInString(line) > columns {
			line = string([]rune(line)[:columns])
		}
		if i == 1 && styled {
			line = bold + line + normal
		}
		b.WriteString(line + clearToEnd)
	}
	b.WriteString(clearBelow)
	return b.String()
}

// pauseAfter is how long to wait after a picture took so long to make: a second, and ten times as long at least, so
// that a large cluster is not kept busy.
func pauseAfter(took time.Duration) time.Duration { return max(time.Second, 10*took) }
