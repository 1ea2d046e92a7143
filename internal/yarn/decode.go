package yarn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Hadoop's releases write the same answer in different ways: a list of one element as the element itself, an empty list
// as null, as {} or not at all, a number as a string. The types of this file accept all of them.

// list is a JSON array, or one element instead of it, or null.
type list[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (l *list[T]) UnmarshalJSON(b []byte) error {
	*l = nil
	b = bytes.TrimSpace(b)
	switch {
	case bytes.Equal(b, []byte("null")), bytes.Equal(b, []byte(`""`)):
		return nil
	case len(b) > 0 && b[0] == '[':
		return json.Unmarshal(b, (*[]T)(l))
	}
	var one T
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*l = list[T]{one}
	return nil
}

// optional is a JSON object that may be "" or an empty array instead, as older releases write an empty one.
type optional[T any] struct{ v T }

// UnmarshalJSON implements [json.Unmarshaler].
func (o *optional[T]) UnmarshalJSON(b []byte) error {
	switch string(bytes.TrimSpace(b)) {
	case `""`, "[]", "null":
		return nil
	}
	return json.Unmarshal(b, &o.v)
}

// scalar returns a number, a boolean or a string without its quotes; "" for null.
func scalar(b []byte) string {
	text := strings.Trim(string(bytes.TrimSpace(b)), `"`)
	if text == "null" {
		return ""
	}
	return text
}

// number is a JSON number without a fraction, or a string with one, or null, which counts as 0. A fraction is cut off.
type number int64

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(b []byte) error {
	text := scalar(b)
	if *n = 0; text == "" {
		return nil
	}
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		*n = number(v)
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(v) < 1<<62) {
		return fmt.Errorf("%q is no number that fits into 64 bits", text)
	}
	*n = number(v)
	return nil
}

// time returns the time that a number of milliseconds since 1970 stands for; the zero time for 0.
func (n number) time() time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(n))
}

// fraction is a JSON number, or a string with one, or null or NaN, which count as 0.
type fraction float64

// UnmarshalJSON implements [json.Unmarshaler].
func (f *fraction) UnmarshalJSON(b []byte) error {
	text := scalar(b)
	if *f = 0; text == "" {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("%q is no number", text)
	}
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		*f = fraction(v)
	}
	return nil
}

// flag is a JSON boolean, or a string with one.
type flag bool

// UnmarshalJSON implements [json.Unmarshaler].
func (f *flag) UnmarshalJSON(b []byte) error {
	switch text := scalar(b); text {
	case "true", "false":
		*f = text == "true"
		return nil
	case "":
		return nil
	default:
		return fmt.Errorf("%q is neither true nor false", text)
	}
}

type resourceJSON struct {
	Memory number `json:"memory"`
	VCores number `json:"vCores"`
}

func (r resourceJSON) resource() Resource {
	return Resource{MemoryMiB: int64(r.Memory), VCores: int64(r.VCores)}
}
