package dataset

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/internal/sim/trace"
)

// maxLine is the length of the longest accepted row, in bytes.
const maxLine = 1 << 16

// rows reads a file of comma-separated values. The first line has the names of the columns.
type rows struct {
	name    string // of the file, for errors
	scanner *bufio.Scanner
	closers []io.Closer
	line    int      // of the current row, from 1
	header  []string // names of the columns
	cells   []string // of the current row
	again   bool     // the current row is not the names of the columns, and is the next one
	kept    int      // number of values kept so far
	step    int64    // length of a step, in seconds
	lenient bool     // rows that cannot be used are skipped
	read    int      // rows
	skipped int      // of these
	first   error    // why the first of them was
}

// each calls do for each row. An error of do ends it, or skips the row if the file is read leniently.
func (r *rows) each(do func() error) error {
	for r.next() {
		r.read++
		err := do()
		switch {
		case err == nil:
			continue
		case !r.lenient || errors.Is(err, errTooMany):
			return err
		case r.first == nil:
			r.first = err
		}
		r.skipped++
	}
	if err := r.err(); err != nil {
		return err
	}
	if r.skipped*100 > r.read {
		return fmt.Errorf("%d of %d rows cannot be used, which is more than one in a hundred; the first: %w", r.skipped,
			r.read, r.first)
	}
	return nil
}

func openRows(file string) (*rows, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading a trace: %w", err)
	}
	from, closers := io.Reader(f), []io.Closer{f}
	if strings.HasSuffix(file, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("unpacking trace %s: %w", file, err)
		}
		from, closers = z, []io.Closer{z, f}
	}
	r, err := newRows(file, from)
	if err != nil {
		closeAll(closers)
		return nil, err
	}
	r.closers = closers
	return r, nil
}

func closeAll(closers []io.Closer) {
	for _, c := range closers {
		c.Close()
	}
}

// newRows starts to read rows. It returns an error if there is no first line.
func newRows(name string, from io.Reader) (*rows, error) {
	r := &rows{name: name, scanner: bufio.NewScanner(from), step: trace.Step}
	r.scanner.Buffer(make([]byte, 0, 4096), maxLine)
	if !r.next() {
		if err := r.err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("trace %s is empty: its first line must name the columns", name)
	}
	r.header = append(r.header, r.cells...)
	return r, nil
}

func (r *rows) close() { closeAll(r.closers) }

// next moves to the next row that is not empty and reports whether there is one.
func (r *rows) next() bool {
	if r.again {
		r.again = false
		return true
	}
	for r.scanner.Scan() {
		r.line++
		text := strings.TrimSuffix(r.scanner.Text(), "\r")
		if text != "" {
			r.cells = append(r.cells[:0], strings.Split(text, ",")...)
			return true
		}
	}
	return false
}

// err returns the error that ended the rows, nil at the end of the file.
func (r *rows) err() error {
	if err := r.scanner.Err(); err != nil {
		return fmt.Errorf("reading trace %s after line %d: %w", r.name, r.line, err)
	}
	return nil
}

// columns returns the indexes of the columns with these names.
func (r *rows) columns(names ...string) ([]int, error) {
	found := make([]int, len(names))
	for i, name := range names {
		found[i] = -1
		for j, h := range r.header {
			if h == name {
				found[i] = j
			}
		}
		if found[i] < 0 {
			return nil, fmt.Errorf("trace %s has no column %q; its first line is %q. The first line must name the columns %s",
				r.name, name, strings.Join(r.header, ","), strings.Join(names, ", "))
		}
	}
	return found, nil
}

// text returns a cell of the current row.
func (r *rows) text(column int) (string, error) {
	if column >= len(r.cells) {
		return "", fmt.Errorf("trace %s, line %d: %d columns, but %q is column %d",
			r.name, r.line, len(r.cells), r.header[column], column+1)
	}
	return r.cells[column], nil
}

// maxNumber is far above any use in any unit, and small enough for sums not to overflow.
const maxNumber = 1e18

// number returns a cell as a number that is not negative.
func (r *rows) number(column int) (float64, error) {
	text, err := r.text(column)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > maxNumber {
		return 0, r.bad(column, text, "a number that is not negative")
	}
	return v, nil
}

// seconds returns a cell as a time in whole seconds.
func (r *rows) seconds(column int) (int64, error) {
	text, err := r.text(column)
	if err != nil {
		return 0, err
	}
	const latest = 1 << 40 // far beyond any epoch in seconds, and small enough to multiply
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > latest {
		wanted := "a time in whole seconds"
		if err == nil && v > latest {
			wanted += "; divide milliseconds by 1000"
		}
		return 0, r.bad(column, text, wanted)
	}
	return v, nil
}

func (r *rows) bad(column int, text, wanted string) error {
	return fmt.Errorf("trace %s, line %d: %s is %q, not %s", r.name, r.line, r.header[column], text, wanted)
}

// errTooMany means that a file has more values than are kept.
var errTooMany = errors.New("too many values")

// keep counts a kept value. It returns an error if there are more than maxValues.
func (r *rows) keep() error {
	if r.kept++; r.kept > maxValues {
		return fmt.Errorf("trace %s, line %d: %w: more than %d of %d s; split the file", r.name, r.line, errTooMany,
			maxValues, r.step)
	}
	return nil
}

// label returns the name of a machine with the name of the file in front.
func (r *rows) label(machine string) string {
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(r.name), ".gz"), ".csv")
	if machine == "" {
		return base
	}
	return base + "/" + machine
}
