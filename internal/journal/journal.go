// Package journal keeps the last rounds of decisions, each with everything it was made from, so that any of them can be
// explained, replayed and turned into a golden test.
//
// A journal is two files of JSON lines: the current one, and the one before it, which is dropped when the current one
// is full. Most lines go on from the one before; [Read] makes whole rounds of them. A line that a kill cut short is
// passed over on reading.
package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/decide/node"
)

// The files of a journal.
const (
	current  = "journal.jsonl"
	previous = "journal.1.jsonl"
)

// Files returns the names of the files of a journal.
func Files() []string { return []string{current, previous} }

// Journal appends rounds. It is not safe for concurrent use.
type Journal struct {
	dir  string
	most int64 // bytes in one of the two files
	file *os.File
	size int64

	last  *node.Round // that the next line can go on from; nil: it must be whole
	since int         // lines, from the last whole one on
	whole int64       // bytes of that
}

// Open continues the journal in a directory. Together its files hold at most about the given number of bytes.
func Open(dir string, bytes int64) (*Journal, error) {
	j := &Journal{dir: dir, most: bytes / 2}
	return j, j.open()
}

func (j *Journal) open() error {
	file, err := os.OpenFile(filepath.Join(j.dir, current), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("opening the journal: %w", err), file.Close())
	}
	j.file, j.size, j.last = file, info.Size(), nil
	j.endLine()
	return nil
}

// endLine ends a line that a kill cut short, or the next one would be part of it. Where it cannot, it is.
func (j *Journal) endLine() {
	var end [1]byte
	if j.size == 0 {
		return
	}
	if _, err := j.file.ReadAt(end[:], j.size-1); err != nil || end[0] == '\n' {
		return
	}
	n, _ := j.file.WriteString("\n")
	j.size += int64(n)
}

// Append adds a round, of which nothing may be changed afterwards. An encoder hands over its line in one piece, and
// keeps the room for it, which is a large part of what the agent needs beside many pods.
func (j *Journal) Append(r *node.Round) error {
	if j.size > 0 && j.size+j.whole > j.most {
		if err := j.turn(); err != nil {
			return err
		}
	}
	l := line{Round: *r}
	if j.last != nil && j.since < wholeEvery {
		l = shorten(r, j.last)
	}
	before := j.size
	if err := json.NewEncoder(lines{j}).Encode(&l); err != nil {
		j.last = nil
		return fmt.Errorf("appending to the journal: %w", err)
	}
	if j.last, j.since = r, j.since+1; !l.GoesOn {
		j.since, j.whole = 1, j.size-before
	}
	return nil
}

// lines takes the lines of a journal.
type lines struct{ j *Journal }

// Write appends one line.
func (l lines) Write(line []byte) (int, error) {
	j := l.j
	n, err := j.file.Write(line)
	if err != nil {
		if n > 0 && j.file.Truncate(j.size) != nil { // the disk is full: half a line would spoil the next one too
			j.size += int64(n)
		}
		return n, err
	}
	j.size += int64(n)
	return n, nil
}

func (j *Journal) turn() error {
	if err := os.Rename(filepath.Join(j.dir, current), filepath.Join(j.dir, previous)); err != nil {
		return fmt.Errorf("turning the journal: %w", err)
	}
	old := j.file
	err := j.open()
	return errors.Join(err, old.Close())
}

// Close closes the journal.
func (j *Journal) Close() error { return j.file.Close() }

// Read yields the rounds in the journal of a directory, oldest first. A line that cannot be read yields an error and is
// passed over.
func Read(dir string) iter.Seq2[node.Round, error] {
	return func(yield func(node.Round, error) bool) {
		for _, name := range []string{previous, current} {
			file, err := os.Open(filepath.Join(dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				yield(node.Round{}, fmt.Errorf("reading the journal: %w", err))
				return
			}
			more := readLines(bufio.NewReader(file), yield)
			_ = file.Close()
			if !more {
				return
			}
		}
	}
}

func readLines(r *bufio.Reader, yield func(node.Round, error) bool) bool {
	for last := (*node.Round)(nil); ; {
		text, err := r.ReadBytes('\n')
		if len(text) > 0 {
			round, failed := parse(text, last)
			if last = &round; failed != nil {
				last, failed = nil, fmt.Errorf("reading a round of the journal: %w", failed)
			}
			if !yield(round, failed) {
				return false
			}
		}
		if err != nil {
			return true
		}
	}
}
