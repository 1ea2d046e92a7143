// Package counter reads counts from the output of a process.
package counter

import (
	"bytes"
	"strconv"
	"sync"
)

// Counter is a writer that finds lines such as frame=123 and keeps the last number.
type Counter struct {
	key  string
	mu   sync.Mutex
	line []byte // not complete yet
	n    int64
}

// New returns a counter for lines that begin with a key, such as "frame=".
func New(key string) *Counter { return &Counter{key: key} }

// Write takes output in pieces of any length.
func (c *Counter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line = append(c.line, b...)
	for {
		line, rest, whole := bytes.Cut(c.line, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if number, found := bytes.CutPrefix(line, []byte(c.key)); found {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64); err == nil {
				c.n = n
			}
		}
		c.line = rest
	}
}

// Count returns the last number.
func (c *Counter) Count() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return float64(c.n)
}
