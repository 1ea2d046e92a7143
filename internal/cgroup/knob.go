package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// Version is the version of the cgroup interface to which the CPU controller is bound.
type Version uint8

// Versions of the cgroup interface.
const (
	V1 Version = 1
	V2 Version = 2
)

// String returns "v1" or "v2".
func (v Version) String() string { return "v" + strconv.Itoa(int(v)) }

// ErrMalformed is in the chain of every error about a cgroup file whose content is not as the kernel writes it.
var ErrMalformed = errors.New("malformed cgroup file")

// FileName returns the name of a knob's file, "" if this version has none.
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
	case k == model.Cpuset:
		return "cpuset.cpus"
	case k == model.MemoryMax && v == V1:
		return "memory.limit_in_bytes"
	case k == model.MemoryMax:
		return "memory.max"
	case k == model.Burst && v == V1:
		return "cpu.cfs_burst_us"
	case k == model.Burst:
		return "cpu.max.burst"
	case k == model.Idle:
		return "cpu.idle"
	case k == model.Identity:
		return "cpu.bvt_warp_ns"
	case v == V2 && (k.Protects() || k == model.MemoryHigh):
		return k.String()
	}
	return ""
}

// PeriodFile returns the name of the file with the period of a quota, "" where one file holds both. On v1 the content
// of a quota's file and that of this one, in this order, are the content of the quota.
func PeriodFile(v Version, k model.Knob) string {
	if v == V1 && k == model.Quota {
		return "cpu.cfs_period_us"
	}
	return ""
}

// ReclaimFile is the name of the file that starts memory reclaim. A write of a number of bytes makes the kernel
// reclaim that much from the group before the write returns. Only cgroup v2 has it, from Linux 5.19 on.
const ReclaimFile = "memory.reclaim"

// EffectiveFile returns the name of the file with the effective CPUs of a group: those in its own list and in
// the lists of all ancestors that are online.
func EffectiveFile(v Version) string {
	if v == V1 {
		return "cpuset.effective_cpus"
	}
	return "cpuset.cpus.effective"
}

// KnobOf returns the knob of a file name, and false if Waterline does not write this file.
func KnobOf(v Version, name string) (model.Knob, bool) {
	for _, k := range model.Knobs() {
		if name != "" && (FileName(v, k) == name || PeriodFile(v, k) == name) {
			return k, true
		}
	}
	return 0, false
}

// Raw is the value of a knob in the units of the kernel:
//   - shares on v1, weight on v2
//   - quota in microseconds, or -1, with its period
//   - memory in bytes, or -1
//   - burst in microseconds
//   - idle as 0 or 1
//   - an identity from -2 to 3
//   - a list of CPUs as the kernel writes it
//
// Two settings with the same raw value are the same to the kernel.
type Raw model.Value

// MarshalJSON writes a number or a string.
func (r Raw) MarshalJSON() ([]byte, error) { return model.Value(r).MarshalJSON() }

// UnmarshalJSON parses the output of [Raw.MarshalJSON].
func (r *Raw) UnmarshalJSON(text []byte) error { return (*model.Value)(r).UnmarshalJSON(text) }

// IdleWeight is the value of cpu.weight while cpu.idle is set (measured on 6.1). On v1 cpu.shares then reads 3,
// which is also an ordinary value, so only cpu.idle shows there whether a group is idle.
const IdleWeight = 0

// ToRaw converts the value of a setting to the units of the kernel.
func ToRaw(v Version, k model.Knob, value model.Value) Raw {
	if k == model.Shares && v == V2 {
		value.Number = SharesToWeight(value.Number)
	}
	return Raw(value)
}

// FromRaw is the inverse of [ToRaw]: ToRaw(FromRaw(raw)) is raw, for every value that the kernel can hold.
func FromRaw(v Version, k model.Knob, raw Raw) model.Value {
	if k == model.Shares && v == V2 {
		raw.Number = WeightToShares(raw.Number)
	}
	return model.Value(raw)
}

// Parse parses the content of a knob's file. The argument last is the value of the previous read. Parse does
// not allocate if the content is well-formed and, for a list, unchanged.
func Parse(v Version, k model.Knob, content []byte, last Raw) (Raw, error) {
	text := bytes.TrimSuffix(content, []byte("\n"))
	if k == model.Cpuset {
		return parseList(v, k, text, last)
	}
	if k.OfMemory() {
		return parseMemory(v, k, text)
	}
	if k == model.Quota {
		return parseQuota(v, content)
	}
	n, ok := parseInt(text)
	if !ok || n < 0 && k != model.Identity {
		return Raw{}, malformed(v, k, content)
	}
	return Raw{Number: n}, nil
}

// parseMemory parses an amount of memory. The kernel counts memory in pages. On v1 it shows no limit as the
// largest number of pages that it can count: 9223372036854771712 bytes with pages of 4 KiB, a little less with
// larger pages.
func parseMemory(v Version, k model.Knob, text []byte) (Raw, error) {
	const unlimited = 1 << 62
	if v == V2 && string(text) == "max" {
		return Raw{Number: model.Unlimited}, nil
	}
	n, ok := parseUint(text)
	switch {
	case !ok:
		return Raw{}, malformed(v, k, text)
	case n >= unlimited:
		return Raw{Number: model.Unlimited}, nil
	}
	return Raw{Number: int64(n)}, nil
}

func parseList(v Version, k model.Knob, text []byte, last Raw) (Raw, error) {
	if len(text) == 0 {
		return Raw{List: model.Inherited}, nil
	}
	if string(text) == last.List {
		return last, nil
	}
	set, err := model.ParseCPUs(string(text))
	if err != nil {
		return Raw{}, fmt.Errorf("%w: %w", malformed(v, k, text), err)
	}
	return Raw(model.List(set)), nil
}

// Append appends the text to write into a knob's file. A quota on v1 has two files: see [QuotaWrites].
func Append(dst []byte, v Version, k model.Knob, raw Raw) []byte {
	switch {
	case k == model.Cpuset && raw.List == model.Inherited:
		return append(dst, '\n')
	case k == model.Cpuset:
		return append(dst, raw.List...)
	case k == model.Quota:
		return appendQuota(dst, v, raw)
	case k.OfMemory() && v == V2 && raw.Number == model.Unlimited:
		return append(dst, "max"...)
	}
	return strconv.AppendInt(dst, raw.Number, 10)
}

// malformed returns the error about the content of a knob's file.
func malformed(v Version, k model.Knob, content []byte) error {
	return malformedStat(FileName(v, k), content)
}

// parseInt is strconv.ParseInt for bytes, in base 10 and without an allocation. It accepts no plus sign and at
// most 18 digits, more than any cgroup file has.
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
