package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// Version is the version of the cgroup interface that the CPU controller is bound to.
type Version uint8

// The versions.
const (
	V1 Version = 1
	V2 Version = 2
)

// String returns "v1" or "v2".
func (v Version) String() string { return "v" + strconv.Itoa(int(v)) }

// ErrMalformed is in the chain of every error about a cgroup file that does not read as the kernel writes it.
var ErrMalformed = errors.New("malformed cgroup file")

// FileName returns the name of the file that a knob stands in, "" if this version has none.
func FileName(v Version, k model.Knob) string {
	switch {
	case k == model.Shares && v == V1:
		return "cpu.shares"
	case k == model.Shares:
		return "cpu.weight"
	case k == model.Quota && v == V1:
		return "cpu.cfs_quota_us"
	case k == model.Quota:
		return "cpu.max"
	}
	return ""
}

// KnobOf returns the knob that stands in a file of this name; false if it is none of ours.
func KnobOf(v Version, name string) (model.Knob, bool) {
	for k := model.Shares; k <= model.Quota; k++ {
		if FileName(v, k) == name {
			return k, true
		}
	}
	return 0, false
}

// Raw is a knob's value as the kernel counts it: shares on v1, weight on v2, quota in microseconds or -1 on both. Two
// settings that have the same raw value are the same to the kernel.
type Raw int64

// IdleWeight is what cpu.weight reads while cpu.idle is set (measured on 6.1). On v1 cpu.shares then reads 3, which is a
// weight like any other, so there cpu.idle itself must be asked.
const IdleWeight Raw = 0

// ToRaw converts a setting's value to what the kernel counts in.
func ToRaw(v Version, k model.Knob, value int64) Raw {
	if k == model.Shares && v == V2 {
		return Raw(SharesToWeight(value))
	}
	return Raw(value)
}

// FromRaw is the inverse of [ToRaw]: ToRaw gives the same raw value back for every value that the kernel can hold.
func FromRaw(v Version, k model.Knob, raw Raw) int64 {
	if k == model.Shares && v == V2 {
		return WeightToShares(int64(raw))
	}
	return int64(raw)
}

// Parse reads the content of a knob's file. It does not allocate when the content is well-formed. The period in cpu.max
// is passed over: nobody of ours sets it.
func Parse(v Version, k model.Knob, content []byte) (Raw, error) {
	text := bytes.TrimSuffix(content, []byte("\n"))
	if k == model.Quota && v == V2 {
		quota, period, found := bytes.Cut(text, []byte(" "))
		if _, ok := parseInt(period); !found || !ok {
			return 0, malformed(v, k, content)
		}
		if string(quota) == "max" {
			return model.Unlimited, nil
		}
		text = quota
	}
	n, ok := parseInt(text)
	if !ok || n < 0 && !(k == model.Quota && v == V1 && n == model.Unlimited) {
		return 0, malformed(v, k, content)
	}
	return Raw(n), nil
}

// Append appends what is to be written into a knob's file.
func Append(dst []byte, v Version, k model.Knob, raw Raw) []byte {
	if k == model.Quota && v == V2 && raw == model.Unlimited {
		return append(dst, "max"...)
	}
	return strconv.AppendInt(dst, int64(raw), 10)
}

func malformed(v Version, k model.Knob, content []byte) error {
	const enough = 64
	if len(content) > enough {
		content = content[:enough]
	}
	return fmt.Errorf("%w: %s reads %q", ErrMalformed, FileName(v, k), content)
}

// parseInt is strconv.ParseInt for bytes, in base 10 and without the allocation. It takes no plus sign and no more than
// 18 digits, which is more than any cgroup file has.
func parseInt(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// IdleFile is the name of the file that makes a group run only when nobody else wants to (since 5.15). Nothing of ours
// writes it yet, but while it is set the kernel takes no weight.
const IdleFile = "cpu.idle"
