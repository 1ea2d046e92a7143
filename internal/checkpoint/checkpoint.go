// Package checkpoint keeps a document in a file that is whole or not there: behind a line with its kind, version and checksum,
// replaced in one step. A reader never takes half a document, or one of another kind, for the real one.
//
// Nothing is synced to the disk: what stands in such a file must outlive this process, not the kernel, because it is about
// cgroups, which do not outlive that either.
package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
)

// ErrDamaged is in the chain of the error about a document that does not read as it was written. That never comes of being
// killed, only of another hand or a failing disk.
var ErrDamaged = errors.New("damaged document")

// Kind is the first word and the version of a document, such as "waterline-undo 1".
type Kind string

func (k Kind) header(body []byte) string {
	return string(k) + " crc32 " + strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 16)
}

// Seal returns what stands in the file of a document.
func (k Kind) Seal(body []byte) []byte {
	return append([]byte(k.header(body)+"\n"), body...)
}

// Open returns the document in a file's content. The error has [ErrDamaged] in its chain.
func (k Kind) Open(content []byte) ([]byte, error) {
	header, body, found := bytes.Cut(content, []byte("\n"))
	if !found || string(header) != k.header(body) {
		return nil, fmt.Errorf("%w: it does not start with %q and its checksum", ErrDamaged, k)
	}
	return body, nil
}

// Write replaces the document at a path.
func (k Kind) Write(path string, body []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, k.Seal(body), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}

// Read gives the document at a path to a parser. One that is damaged, or that the parser does not take, is moved aside to
// path.damaged; then the error has [ErrDamaged] in its chain, and it is as if there were none. Other errors mean that the
// file is there but could not be read, [fs.ErrNotExist] that there is none.
func (k Kind) Read(path string, parse func(body []byte) error) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	body, err := k.Open(content)
	if err == nil {
		if err = parse(body); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	aside := path + ".damaged"
	if renameErr := os.Rename(path, aside); renameErr != nil {
		return errors.Join(fmt.Errorf("setting %s aside: %w", path, renameErr), errors.New(err.Error()))
	}
	return fmt.Errorf("%s: %w; it was moved to %s", path, err, aside)
}
