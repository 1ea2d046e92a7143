package yarn

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxExclude bounds an exclude file in bytes.
const maxExclude = 16 << 20

// ExcludeFile is a ResourceManager's list of hosts to decommission. Others may have hosts in it too, which stay. A file
// whose name ends in .xml has Hadoop's XML format, with a time for each host; another one has a host a line.
type ExcludeFile struct{ Dir, Name string }

func (f ExcludeFile) xml() bool { return strings.HasSuffix(f.Name, ".xml") }

// Read returns the content; that of a file that does not exist is empty.
func (f ExcludeFile) Read() ([]byte, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of exclude files: %w", err)
	}
	defer root.Close()
	file, err := root.Open(f.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the exclude file: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxExclude+1))
	if err == nil && len(content) > maxExclude {
		err = fmt.Errorf("it has more than %d bytes", maxExclude)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the exclude file: %w", err)
	}
	return content, nil
}

// Write replaces the file, so that a ResourceManager that reads it meanwhile sees the old or the new content. The mode
// stays; the owner becomes this process's.
func (f ExcludeFile) Write(content []byte) error {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return fmt.Errorf("opening the directory of exclude files: %w", err)
	}
	defer root.Close()
	mode := fs.FileMode(0o644)
	if is, err := root.Stat(f.Name); err == nil {
		mode = is.Mode().Perm()
	}
	next := "." + f.Name + ".waterline"
	file, err := root.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return fmt.Errorf("writing the exclude file: %w", err)
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err == nil {
		err = root.Rename(next, f.Name)
	}
	if err != nil {
		return fmt.Errorf("writing the exclude file: %w", err)
	}
	return nil
}

// Hosts returns the hosts of a file.
func (f ExcludeFile) Hosts(content []byte) (map[string]bool, error) {
	all := map[string]bool{}
	if !f.xml() {
		for line := range strings.Lines(string(content)) {
			line, _, _ = strings.Cut(line, "#")
			for host := range strings.FieldsSeq(line) {
				all[strings.ToLower(host)] = true
			}
		}
		return all, nil
	}
	_, err := editXML(content, func(host string) bool { all[host] = true; return true }, nil)
	return all, err
}

// With returns the content with some hosts added, which have this time, and others removed.
func (f ExcludeFile) With(content []byte, add map[string]time.Duration, remove map[string]bool) ([]byte, error) {
	stays := func(host string) bool {
		_, again := add[host]
		return !again && !remove[host]
	}
	if f.xml() {
		return editXML(content, stays, add)
	}
	var b bytes.Buffer
	for line := range strings.Lines(string(content)) {
		text, comment, commented := strings.Cut(strings.TrimRight(line, "\r\n"), "#")
		was := strings.Fields(text)
		left := slices.DeleteFunc(slices.Clone(was), func(host string) bool { return !stays(strings.ToLower(host)) })
		if len(left) == 0 && len(was) > 0 && !commented {
			continue
		}
		if len(left) < len(was) {
			text = strings.Join(left, " ")
		}
		if commented {
			text += "#" + comment
		}
		b.WriteString(text + "\n")
	}
	for _, host := range slices.Sorted(maps.Keys(add)) {
		b.WriteString(host + "\n")
	}
	return b.Bytes(), nil
}

// editXML copies a document without the host elements of hosts that do not stay, and adds others at the end.
func editXML(content []byte, stays func(host string) bool, add map[string]time.Duration) ([]byte, error) {
	var out bytes.Buffer
	if len(bytes.TrimSpace(content)) == 0 {
		content = []byte("<?xml version=\"1.0\"?>\n<hosts>\n</hosts>\n")
	}
	d := xml.NewDecoder(bytes.NewReader(content))
	copied, depth, ended := int64(0), 0, false
	for {
		start := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("the exclude file: %w", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if depth == 0 && e.Name.Local != "hosts" {
				return nil, fmt.Errorf("the exclude file begins with the element %q, want hosts", e.Name.Local)
			}
			if depth != 1 || e.Name.Local != "host" {
				depth++
				continue
			}
			var host struct {
				Name string `xml:"name"`
			}
			if err := d.DecodeElement(&host, &e); err != nil {
				return nil, fmt.Errorf("the exclude file: %w", err)
			}
			if !stays(strings.ToLower(strings.TrimSpace(host.Name))) {
				out.Write(bytes.TrimRight(content[copied:start], " \t\n"))
				copied = d.InputOffset()
			}
		case xml.EndElement:
			if depth--; depth > 0 {
				continue
			}
			before := content[copied:start]
			if end := content[start:d.InputOffset()]; len(end) == 0 { // <hosts/>
				before = bytes.TrimRight(before, " \t\n")
				out.Write(bytes.TrimSuffix(before, []byte("/>")))
				out.WriteString(">")
			} else {
				out.Write(bytes.TrimRight(before, " \t\n"))
			}
			for _, host := range slices.Sorted(maps.Keys(add)) {
				out.WriteString("\n  <host><name>")
				_ = xml.EscapeText(&out, []byte(host))
				seconds := int64(math.Ceil(add[host].Seconds()))
				out.WriteString("</name><timeout>" + strconv.FormatInt(seconds, 10) + "</timeout></host>")
			}
			out.WriteString("\n</hosts>")
			copied, ended = d.InputOffset(), true
		}
	}
	if !ended {
		return nil, errors.New("the exclude file has no element hosts")
	}
	out.Write(content[copied:])
	return out.Bytes(), nil
}
