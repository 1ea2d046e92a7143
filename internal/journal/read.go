package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/waterline-io/waterline/internal/decide/node"
)

// Read yields the rounds in the journal of a directory, oldest first. A line that cannot be used yields an error with
// its file and its number, from 1, and is passed over.
func Read(dir string) iter.Seq2[node.Round, error] { return ReadFiles(files(dir)...) }

// files returns the files of the journal in a directory, the older one first.
func files(dir string) (found []string) {
	for _, name := range []string{previous, current} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	return found
}

// ReadFiles yields the rounds in the files of one journal, as [Read] does.
func ReadFiles(files ...string) iter.Seq2[node.Round, error] {
	return func(yield func(node.Round, error) bool) {
		for _, path := range files {
			file, err := os.Open(path)
			if err != nil {
				yield(node.Round{}, fmt.Errorf("reading the journal: %w", err))
				return
			}
			more := readLines(file, path, yield)
			_ = file.Close()
			if !more {
				return
			}
		}
	}
}

// ReadFrom yields the rounds that a reader delivers, as [Read] does. Errors call it by the given name.
func ReadFrom(r io.Reader, name string) iter.Seq2[node.Round, error] {
	return func(yield func(node.Round, error) bool) { readLines(r, name, yield) }
}

// maxLine bounds a line, in bytes. The line of a node with 250 pods has less than 1 MiB.
const maxLine = 64 << 20

func readLines(from io.Reader, name string, yield func(node.Round, error) bool) bool {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	var last *node.Round
	var packed unpacker
	n := 0
	for lines.Scan() {
		n++
		var round node.Round
		text, err := packed.unpack(lines.Bytes())
		if err == nil {
			round, err = parse(text, last)
		}
		if last = &round; err != nil {
			last, err = nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if !yield(round, err) {
			return false
		}
	}
	if err := lines.Err(); err != nil {
		return yield(node.Round{}, fmt.Errorf("%s:%d: %w", name, n+1, err))
	}
	return true
}

// Unpack writes the text of the lines of a journal: JSON, of a round or of what is new in it. Lines that cannot be
// unpacked are left out.
func Unpack(to io.Writer, from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	var packed unpacker
	for lines.Scan() {
		text, err := packed.unpack(lines.Bytes())
		if err != nil {
			continue
		}
		if _, err := to.Write(append(bytes.TrimSuffix(text, []byte("\n")), '\n')); err != nil {
			return fmt.Errorf("unpacking a journal: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("unpacking a journal: %w", err)
	}
	return nil
}

// Find returns the journals at a path, each as its files: of a run directory, of every directory below a directory, or
// a single file. Any other file whose name ends in .jsonl is a journal by itself.
func Find(path string) ([][]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	if !info.IsDir() {
		if name := filepath.Base(path); name != current && name != previous {
			return [][]string{{path}}, nil
		}
		return [][]string{files(filepath.Dir(path))}, nil
	}
	var all [][]string
	err = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		dir, name := filepath.Split(path)
		switch last := len(all) - 1; {
		case err != nil || d.IsDir() || filepath.Ext(name) != ".jsonl":
		case name == current && last >= 0 && all[last][0] == dir+previous: // it sorts before the current one
			all[last] = append(all[last], path)
		default:
			all = append(all, []string{path})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking for journals: %w", err)
	}
	return all, nil
}

// Copy writes the content of the journal in a directory, which may be in use, oldest first. The last line may be cut
// short.
func Copy(to io.Writer, dir string) error {
	const attempts = 3
	for range attempts {
		// In this order: what turns in between is then the same file twice, and is not missing.
		newer, err := os.Open(filepath.Join(dir, current))
		if err != nil {
			return fmt.Errorf("reading the journal: %w", err)
		}
		older, err := os.Open(filepath.Join(dir, previous))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			_, err = io.Copy(to, newer)
			return errors.Join(err, newer.Close())
		case err != nil:
			return errors.Join(fmt.Errorf("reading the journal: %w", err), newer.Close())
		}
		if !sameFile(newer, older) {
			_, err = io.Copy(to, io.MultiReader(older, newer))
			return errors.Join(err, newer.Close(), older.Close())
		}
		if err := errors.Join(newer.Close(), older.Close()); err != nil {
			return err
		}
	}
	return errors.New("reading the journal: it was rotated again during each attempt")
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	y, err2 := b.Stat()
	return errors.Join(err, err2) == nil && os.SameFile(x, y)
}
