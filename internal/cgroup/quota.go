package cgroup

import (
	"bytes"
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// parseQuota parses a quota and its period. On v1 the content is that of two files, see [PeriodFile]; the period is 0
// if the second one was not read. On v2 some vendor kernels print a third field, the burst.
func parseQuota(v Version, content []byte) (Raw, error) {
	quota, rest, both := bytes.Cut(bytes.TrimSuffix(content, []byte("\n")), []byte{separator(v)})
	period, _, _ := bytes.Cut(rest, []byte(" "))
	var raw Raw
	var ok bool
	if both || v == V2 {
		if raw.Period, ok = parseInt(period); !ok || raw.Period <= 0 {
			return Raw{}, malformed(v, model.Quota, content)
		}
	}
	if v == V2 && string(quota) == "max" || v == V1 && string(quota) == "-1" {
		raw.Number = model.Unlimited
		return raw, nil
	}
	if raw.Number, ok = parseInt(quota); !ok || raw.Number < 0 {
		return Raw{}, malformed(v, model.Quota, content)
	}
	return raw, nil
}

// separator returns what stands between a quota and its period.
func separator(v Version) byte {
	if v == V1 {
		return '\n'
	}
	return ' '
}

// appendQuota appends the text for the quota's file: on v2 with the period. Without one, the kernel keeps its own.
func appendQuota(dst []byte, v Version, raw Raw) []byte {
	if v == V2 && raw.Number == model.Unlimited {
		dst = append(dst, "max"...)
	} else {
		dst = strconv.AppendInt(dst, raw.Number, 10)
	}
	if v == V2 && raw.Period > 0 {
		dst = strconv.AppendInt(append(dst, ' '), raw.Period, 10)
	}
	return dst
}

// Complete returns the value to write to a group that holds another one: a quota without a period takes the group's.
func Complete(want, found Raw) Raw {
	if want.Period == 0 {
		want.Period = found.Period
	}
	return want
}

// QuotaWrite is one write to one of a quota's two files on v1.
type QuotaWrite struct {
	Period bool // to the file of the period
	Micros int64
}

// QuotaWrites returns the writes that turn one quota into another on v1, in an order in which the kernel accepts each.
//
// The kernel compares quota over period with those of the groups above and below at every write. If both change, each
// of the two values between can be too low for a child or too high for the parent: with parent and child at 100 of
// 100 ms, neither 10 of 100 ms nor 100 of 10 ms fits, though 10 of 10 ms does. A group without a quota fits everywhere,
// so the period changes while there is none.
func QuotaWrites(from, to Raw) []QuotaWrite {
	if from.Period == to.Period {
		return []QuotaWrite{{Micros: to.Number}}
	}
	var writes []QuotaWrite
	if from.Number != model.Unlimited && from.Number != to.Number {
		writes = append(writes, QuotaWrite{Micros: model.Unlimited})
		from.Number = model.Unlimited
	}
	writes = append(writes, QuotaWrite{Period: true, Micros: to.Period})
	if from.Number != to.Number {
		writes = append(writes, QuotaWrite{Micros: to.Number})
	}
	return writes
}
