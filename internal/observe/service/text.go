package service

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// maxLineBytes is the length at which a line is skipped.
const maxLineBytes = 8 << 10

// lines calls a function for each line of a text. A longer line than the reader's buffer is skipped.
func lines(r *bufio.Reader, each func(line []byte) error) error {
	skip := false
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		end := err != nil
		if !skip && len(line) > 0 {
			err = each(line)
		} else {
			err = nil
		}
		if skip = false; end || err != nil {
			return err
		}
	}
}

// sample is one series of a metric in the text format of Prometheus.
type sample struct {
	labels []byte // between the braces
	value  float64
}

// parse reads a line of the text format, or of OpenMetrics. It returns false for a line that is not of the named
// metric, or that cannot be read.
//
// It reads only what a figure needs, and takes nothing of the line into memory. The parser expfmt of Prometheus makes
// objects of all series: it was measured to make 74 MiB of 4 MiB of text, and the agent's memory limit is 48 MiB.
func parse(line []byte, name string) (s sample, is bool) {
	rest, is := bytes.CutPrefix(line, []byte(name))
	if !is || len(rest) == 0 {
		return s, false
	}
	switch rest[0] {
	case '{':
		end := closing(rest)
		if end < 0 {
			return s, false
		}
		s.labels, rest = rest[1:end], rest[end+1:]
	case ' ', '\t':
	default:
		return s, false // a longer name
	}
	rest = bytes.TrimLeft(rest, " \t")
	if end := bytes.IndexAny(rest, " \t\r\n"); end >= 0 {
		rest = rest[:end]
	}
	if len(rest) > 32 { // no number is as long
		return s, false
	}
	var err error
	s.value, err = strconv.ParseFloat(string(rest), 64)
	return s, err == nil || errors.Is(err, strconv.ErrRange) // of 1e999 it is infinite
}

// closing returns the place of the brace that ends the labels; -1: there is none.
func closing(text []byte) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// label returns the value of a label; false if the series does not have it. Escapes stay, except in a value that has
// them, of which a copy is made.
func (s *sample) label(name string) ([]byte, bool) {
	rest := s.labels
	for len(rest) > 0 {
		rest = bytes.TrimLeft(rest, " \t,")
		key, after, is := bytes.Cut(rest, []byte("="))
		if !is {
			return nil, false
		}
		after = bytes.TrimLeft(after, " \t")
		if len(after) == 0 || after[0] != '"' {
			return nil, false
		}
		end := 1
		for end < len(after) && after[end] != '"' {
			if after[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(after) {
			return nil, false
		}
		if string(bytes.TrimSpace(key)) == name {
			return unescaped(after[1:end]), true
		}
		rest = after[end+1:]
	}
	return nil, false
}

// unescaped returns the value of a label without escapes.
func unescaped(value []byte) []byte {
	if bytes.IndexByte(value, '\\') < 0 {
		return value
	}
	plain := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '\\' && i+1 < len(value) {
			if i++; value[i] == 'n' {
				c = '\n'
			} else {
				c = value[i]
			}
		}
		plain = append(plain, c)
	}
	return plain
}

// has reports whether the series has these labels. As in Prometheus, an empty value means that it is without the label.
func (s *sample) has(labels []model.MetricLabel) bool {
	for _, l := range labels {
		if value, _ := s.label(l.Name); string(value) != l.Value {
			return false
		}
	}
	return true
}

// bound returns the upper bound of the bucket that the series counts.
func (s *sample) bound() (float64, error) {
	text, _ := s.label("le")
	bound, err := strconv.ParseFloat(string(text[:min(len(text), 32)]), 64)
	if err != nil || math.IsNaN(bound) {
		return 0, errBound
	}
	return bound, nil
}
