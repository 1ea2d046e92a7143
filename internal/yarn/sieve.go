package yarn

import (
	"fmt"
	"io"
)

// maxSieved bounds an answer before a [sieve], in bytes.
const maxSieved = 64 << 20

// sieve passes JSON on, without the elements of each array under one name. A tenant can make such an array as long as
// they want: a NodeManager lists the files in the log directory of a container with it.
type sieve struct {
	from io.Reader
	name string // as it is written, without quotes
	left int    // bytes that may follow
	buf  [chunk]byte
	in   []byte // of buf: not looked at so far

	quoted  bool // in a string
	escaped bool // after a backslash in one
	at      int  // bytes of the name that the string has so far; -1: it is another one
	named   bool // the string before was the name
	armed   bool // so was the key of the value that follows
	depth   int  // of arrays around, from the one that is left out on
}

// newSieve returns a sieve of an answer.
func newSieve(from io.Reader, name string) *sieve {
	return &sieve{from: from, name: name, left: maxSieved}
}

// Read implements [io.Reader].
func (s *sieve) Read(p []byte) (n int, err error) {
	for n == 0 && len(p) > 0 {
		if len(s.in) == 0 {
			got, err := s.from.Read(s.buf[:])
			if s.left -= got; s.left < 0 {
				return 0, fmt.Errorf("the answer has more than %d bytes", maxSieved)
			}
			if s.in = s.buf[:got]; err != nil && got == 0 {
				return 0, err
			}
		}
		for len(s.in) > 0 && n < len(p) {
			c := s.in[0]
			s.in = s.in[1:]
			if s.passes(c) {
				p[n] = c
				n++
			}
		}
	}
	return n, nil
}

// passes reports whether the next byte is passed on.
func (s *sieve) passes(c byte) bool {
	outside := s.depth == 0
	switch {
	case s.quoted:
		s.inString(c)
	case c == '"':
		s.quoted, s.at, s.named, s.armed = true, 0, false, false
	case c == ':':
		s.armed, s.named = s.named, false
	case c == '[' && (s.armed || !outside):
		s.depth++
		s.armed = false
	case c == ']' && !outside:
		s.depth--
		return s.depth == 0
	case c != ' ' && c != '\t' && c != '\r' && c != '\n':
		s.named, s.armed = false, false
	}
	return outside
}

// inString takes the next byte of a string.
func (s *sieve) inString(c byte) {
	switch {
	case s.escaped:
		s.escaped, s.at = false, -1
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.quoted, s.named = false, s.at == len(s.name)
	case s.at >= 0 && s.at < len(s.name) && s.name[s.at] == c:
		s.at++
	default:
		s.at = -1
	}
}
