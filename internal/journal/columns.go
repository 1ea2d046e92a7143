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
		if _, alike := subtract(b.Index(i), a.Index(i), changes[i*width:]); !alike {
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

// shortColumn writes differences as a column.
func shortColumn(values []int64) column {
	var few []int64
	index := make([]byte, len(values))
	for i, v := range values {
		k := 0
		for k < len(few) && few[k] != v {
			k++
		}
		if k == len(few) {
			if k == digits {
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
		add(b.Index(i), changes)
	}
	return is, nil
}

// widthOf returns how many signed numbers a struct or an array has.
func widthOf(t reflect.Type) (n int) {
	switch {
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			n += widthOf(t.Field(i).Type)
		}
	case t.Kind() == reflect.Array:
		n = t.Len() * widthOf(t.Elem())
	case reflect.Int <= t.Kind() && t.Kind() <= reflect.Int64:
		n = 1
	}
	return n
}

// subtract writes into a list by how much the numbers of a value differ from those of another one, and returns the rest
// of the list. It reports false if they differ in something else.
func subtract(is, was reflect.Value, into []int64) (rest []int64, alike bool) {
	n := 0
	switch kind := is.Kind(); {
	case kind == reflect.Struct:
		n = is.NumField()
	case kind == reflect.Array:
		n = is.Len()
	case reflect.Int <= kind && kind <= reflect.Int64:
		into[0] = is.Int() - was.Int()
		return into[1:], true
	default:
		return into, is.Equal(was)
	}
	alike = true
	for i := 0; i < n && alike; i++ {
		into, alike = subtract(part(is, i), part(was, i), into)
	}
	return into, alike
}

// add adds to the numbers of a value, and returns the summands that are left. Sums that are too large wrap around.
func add(v reflect.Value, summands []int64) []int64 {
	n := 0
	switch kind := v.Kind(); {
	case kind == reflect.Struct:
		n = v.NumField()
	case kind == reflect.Array:
		n = v.Len()
	case reflect.Int <= kind && kind <= reflect.Int64:
		v.SetInt(v.Int() + summands[0])
		return summands[1:]
	}
	for i := range n {
		summands = add(part(v, i), summands)
	}
	return summands
}

// part returns a field of a struct, or an element of an array.
func part(v reflect.Value, i int) reflect.Value {
	if v.Kind() == reflect.Array {
		return v.Index(i)
	}
	return v.Field(i)
}
