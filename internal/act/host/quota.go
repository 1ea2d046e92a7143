package host

import (
	"strconv"

	"github.com/waterline-io/waterline/internal/cgroup"
)

// writeQuota writes a quota and its period to their two files on v1. If the kernel refuses one of them, the group gets
// back what it had: between two of the writes it may have no quota.
func (h *Host) writeQuota(f *file, to cgroup.Raw) error {
	now := f.found
	for _, w := range cgroup.QuotaWrites(f.found, to) {
		if err := h.writePart(f, w); err != nil {
			if now != f.found {
				for _, back := range cgroup.QuotaWrites(now, f.found) {
					_ = h.writePart(f, back) // the first error is the one to report
				}
			}
			return err
		}
		if w.Period {
			now.Period = w.Micros
		} else {
			now.Number = w.Micros
		}
	}
	return nil
}

func (h *Host) writePart(f *file, w cgroup.QuotaWrite) error {
	fd := f.fd
	if w.Period {
		fd = int(f.period.Fd())
	}
	return h.write(f, fd, strconv.AppendInt(h.buf[:0], w.Micros, 10))
}
