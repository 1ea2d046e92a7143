// Package journal keeps the last rounds of decisions, each with everything it was made from, so that any of them can be
// explained, replayed and turned into a golden test.
//
// A journal is two files of JSON lines: the current one, and the one before it, which is dropped when the current one
// is full. Most lines go on from the one before, and all are compressed; [Read] makes whole rounds of them, and
// [Unpack] text. A line that a kill cut short is passed over on reading.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
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

	last  *node.Round // that the next line can go on from, with numbers of its own; nil: it must be whole
	since int         // lines, from the last whole one on
	whole int64       // bytes of that

	packer packer
	kept   kept
}

// kept is what a journal keeps of a round: the round, and the numbers that observers measure anew in the same places.
type kept struct {
	round node.Round
	load  model.Load
	pods  []model.PodUsage
	waits []model.PodWait
}

// keep copies the numbers of a round, and returns the round with the copies. They are valid until the next call.
func (k *kept) keep(r *node.Round) *node.Round {
	k.round = *r
	n := &k.round.Node
	if n.Load != nil {
		k.load, k.pods = *n.Load, append(k.pods[:0], n.Load.Pods...)
		n.Load, k.load.Pods = &k.load, k.pods
	}
	k.waits = append(k.waits[:0], n.Waits...)
	n.Waits = k.waits
	return &k.round
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

// Append adds a round, of which nothing may be changed afterwards except the usage and the waits that were
// measured. It keeps the room for a line, which is a large part of what the agent needs beside many pods.
func (j *Journal) Append(r *node.Round) error {
	if j.size > 0 && j.size+j.whole > j.most {
		if err := j.turn(); err != nil {
			return err
		}
	}
	l := line{Round: *r, Format: textFormat}
	if j.last != nil && j.since < fullLineInterval {
		l = shorten(r, j.last)
	}
	before := j.size
	text, err := j.packer.pack(&l)
	if err == nil {
		err = j.write(text)
	}
	if err != nil {
		j.last = nil
		return fmt.Errorf("appending to the journal: %w", err)
	}
	if j.last, j.since = j.kept.keep(r), j.since+1; !l.GoesOn {
		j.since, j.whole = 1, j.size-before
	}
	return nil
}

func (j *Journal) write(line []byte) error {
	n, err := j.file.Write(line)
	if err != nil {
		if n > 0 && j.file.Truncate(j.size) != nil { // the disk is full: half a line would spoil the next one too
			j.size += int64(n)
		}
		return err
	}
	j.size += int64(n)
	return nil
}

func (j *Journal) turn() error {
	// Without the file, somebody removed it, or it was renamed before and a new one could not be opened then.
	err := os.Rename(filepath.Join(j.dir, current), filepath.Join(j.dir, previous))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotating the journal: %w", err)
	}
	old := j.file
	if err := j.open(); err != nil {
		return err // the next round tries again; the old file stays, and is full
	}
	return old.Close()
}

// Close closes the journal.
func (j *Journal) Close() error { return j.file.Close() }
