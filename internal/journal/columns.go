package journal

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// column is how a number of each element of a list differs from that in the line before: one difference for all, one
// for each, or few different ones.
type column struct {
	V []int64 `json:",omitempty"` // nil: no element differs
	I string  `json:",omitempty"` // for each element a digit, which is the index in V; "": V has one for all, or for each
}

// digits is how many different values a column has at most that is written with digits.
const digits = 10

// shortRows returns the columns of the numbers in a list; nil if the list is another one than it was in something else,
// such as in the UID of an element.
func shortRows[T comparable](was, is []T) []column {
	if len(is) == 0 || len(was) != len(is) {
		return nil
	}
	width := widthOf(reflect.TypeFor[T]())
	changes := make([]int64, len(is)*width)
	a, b := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range is {
		if was[i] == is[i] {
			continue
		}
		next := i * width
		if !visit(b.Index(i), a.Index(i), func(is, was reflect.Value) bool {
			if !is.CanInt() {
				return is.Equal(was)
			}
			changes[next] = is.Int() - was.Int()
			next++
			return true
		}) {
			return nil
		}
	}
	all, one := make([]column, width), make([]int64, len(is))
	for k := range all {
		for i := range one {
			one[i] = changes[i*width+k]
		}
		all[k] = shortColumn(one)
	}
	return all
}

func shortColumn(values []int64) column {
	var few []int64
	index := make([]byte, len(values))
	for i, v := range values {
		k := slices.Index(few, v)
		if k < 0 {
			if k = len(few); k == digits {
				return column{V: slices.Clone(values)}
			}
			few = append(few, v)
		}
		index[i] = byte('0' + k)
	}
	switch {
	case len(few) == 1 && few[0] == 0:
		return column{}
	case len(few) == 1 || len(few) == len(values):
		return column{V: few}
	}
	return column{V: few, I: string(index)}
}

// at returns the difference of the i-th of n elements.
func (c *column) at(i, n int) (int64, error) {
	switch {
	case c.V == nil:
		return 0, nil
	case c.I != "":
		if k := strings.IndexByte("0123456789", c.I[min(i, len(c.I)-1)]); len(c.I) == n && k >= 0 && k < len(c.V) {
			return c.V[k], nil
		}
	case len(c.V) == 1:
		return c.V[0], nil
	case len(c.V) == n:
		return c.V[i], nil
	}
	return 0, fmt.Errorf("a column of %d values with index %q is not one of %d elements", len(c.V), c.I, n)
}

// longRows returns the list of which [shortRows] returned the columns. An earlier version of Waterline may have known
// fewer numbers of an element: its last ones are then as they were.
func longRows[T any](was []T, columns []column) ([]T, error) {
	width := widthOf(reflect.TypeFor[T]())
	if len(columns) > width {
		return nil, fmt.Errorf("a list has %d columns, and %d are known", len(columns), width)
	}
	is, changes := slices.Clone(was), make([]int64, width)
	b := reflect.ValueOf(is)
	for i := range is {
		for k := range columns {
			var err error
			if changes[k], err = columns[k].at(i, len(is)); err != nil {
				return nil, err
			}
		}
		next := 0
		visit(b.Index(i), b.Index(i), func(v, _ reflect.Value) bool {
			if v.CanInt() {
				v.SetInt(v.Int() + changes[next]) // sums that are too large wrap around
				next++
			}
			return true
		})
	}
	return is, nil
}

// widthOf returns how many signed numbers a struct or an array has.
func widthOf(t reflect.Type) (n int) {
	zero := reflect.Zero(t)
	visit(zero, zero, func(v, _ reflect.Value) bool {
		if v.CanInt() {
			n++
		}
		return true
	})
	return n
}

// visit calls f with the values that two structs or arrays of one type consist of, in order, until f returns false. It
// returns what f returned last.
func visit(a, b reflect.Value, f func(a, b reflect.Value) bool) bool {
	n, part := 0, reflect.Value.Field
	switch a.Kind() {
	case reflect.Struct:
		n = a.NumField()
	case reflect.Array:
		n, part = a.Len(), reflect.Value.Index
	default:
		return f(a, b)
	}
	for i := range n {
		if !visit(part(a, i), part(b, i), f) {
			return false
		}
	}
	return true
}
