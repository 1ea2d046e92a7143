// Package checkpoint keeps a document in a file. The first line of the file has the kind, version and checksum of the
// document, and a new document replaces the whole file in one rename. So a reader never accepts half a document, or a
// document of another kind.
//
// Files are not synced to disk. They must outlive this process, but not the kernel, because they describe cgroups,
// which do not outlive the kernel either.
package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// ErrDamaged is in the chain of an error about a document that differs from what was written. A kill of this
// process never damages a document; another writer or a failing disk can.
var ErrDamaged = errors.New("damaged document")

// Kind is the kind and version of a document, such as "waterline-undo 1".
type Kind string

func (k Kind) header(body []byte) string {
	return string(k) + " crc32 " + strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 16)
}

// Encode returns the file content for a document.
func (k Kind) Encode(body []byte) []byte {
	return append([]byte(k.header(body)+"\n"), body...)
}

// Decode returns the document in a file content. Its error has [ErrDamaged] in its chain.
func (k Kind) Decode(content []byte) ([]byte, error) {
	header, body, found := bytes.Cut(content, []byte("\n"))
	if !found || string(header) != k.header(body) {
		return nil, fmt.Errorf("%w: the first line is not %q with the checksum of the rest", ErrDamaged, k)
	}
	return body, nil
}

// Write replaces the document in the file at a path.
func (k Kind) Write(path string, body []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, k.Encode(body), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("replacing %s: %w", path, err)
	}
	return nil
}

// Aside returns the path to which [Kind.SetAside] moves a document of this kind and version.
func (k Kind) Aside(path string) string {
	_, version, _ := strings.Cut(string(k), " ")
	return path + ".v" + version
}

// SetAside moves the document at a path out of the way if it is of the same kind and of another version, whose owner
// finds it with [Kind.Aside] when it runs again. It returns the new path; "": the document stays.
func (k Kind) SetAside(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	other, ok := k.version(content)
	if !ok || other == k {
		return "", nil
	}
	aside := other.Aside(path)
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("moving %s to %s: %w", path, aside, err)
	}
	return aside, nil
}

// version returns the kind and version of a content; false: it is no whole document of this kind.
func (k Kind) version(content []byte) (Kind, bool) {
	header, _, _ := bytes.Cut(content[:min(len(content), 100)], []byte(" crc32 "))
	mine, _, _ := strings.Cut(string(k), " ")
	name, version, _ := strings.Cut(string(header), " ")
	_, notNumber := strconv.ParseUint(version, 10, 16)
	_, damaged := Kind(header).Decode(content)
	return Kind(header), name == mine && notNumber == nil && damaged == nil
}

// Read passes the document at a path to parse. If the document is damaged, or parse returns an error, Read
// renames the file to path.damaged and returns an error with [ErrDamaged] in its chain; the caller continues
// without a document. Other errors: [fs.ErrNotExist] if there is no file, else the file could not be read.
func (k Kind) Read(path string, parse func(body []byte) error) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	body, err := k.Decode(content)
	if err == nil {
		if err = parse(body); err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	damaged := path + ".damaged"
	if renameErr := os.Rename(path, damaged); renameErr != nil {
		return errors.Join(fmt.Errorf("moving %s to %s: %w", path, damaged, renameErr), errors.New(err.Error()))
	}
	return fmt.Errorf("%s: %w; the file was moved to %s", path, err, damaged)
}
