package host

import (
	"fmt"
	"math"
	"os"
	"path"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// raw returns the value that a file is to hold, in the kernel's units: memory in whole pages, rounded down, and a quota
// with the group's period if its setting has none.
func (h *Host) raw(f *file) cgroup.Raw {
	raw := cgroup.ToRaw(h.version, f.setting.Knob, f.setting.Value)
	switch {
	case f.setting.Knob == model.Quota:
		return cgroup.Complete(raw, f.found)
	case f.setting.Knob.OfMemory() && raw.Number > 0:
		raw.Number -= raw.Number % h.page
	}
	return raw
}

// exceeded returns the memory usage of a group in bytes, if a step would limit it, or slow it down, below its usage;
// else 0.
//
// The kernel would first reclaim, for which the writer waits, and then kill processes (v2) or return EBUSY (v1). So
// page cache counts too. memory.high works like v2, without the killing. If the group grows past the limit after this
// read, an earlier limit would have stopped it at the same moment.
func (h *Host) exceeded(step cgroup.Step) (use int64, err error) {
	from, to := step.From.Number, step.To.Number
	if step.Knob != model.MemoryMax && step.Knob != model.MemoryHigh || to == model.Unlimited ||
		from != model.Unlimited && from <= to {
		return 0, nil
	}
	root, err := h.hierarchy(step.Knob)
	if err != nil {
		return 0, err
	}
	use, err = memoryUsage(root, h.version, step.Dir)
	if isGone(err) || err == nil && use <= to { // the write will show that the group is gone
		return 0, nil
	}
	return use, err
}

// memoryUsage returns the memory usage of a group in bytes.
func memoryUsage(root *os.Root, v cgroup.Version, dir string) (int64, error) {
	name := path.Join(dir, cgroup.StatFile(v, cgroup.MemoryUsage))
	content, err := root.ReadFile(name)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", name, err)
	}
	used, err := cgroup.ParseCount(content)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", dir, err)
	}
	return int64(min(used, math.MaxInt64)), nil
}
