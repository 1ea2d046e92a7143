package host

import (
	"fmt"
	"math"
	"path"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// raw converts a setting's value to what the kernel will hold. Of memory it holds whole pages, and rounds down.
func (h *Host) raw(k model.Knob, value model.Value) cgroup.Raw {
	raw := cgroup.ToRaw(h.version, k, value)
	if k.OfMemory() && raw.Number > 0 {
		raw.Number -= raw.Number % h.page
	}
	return raw
}

// exceeded returns how much memory a group uses, in bytes, if a step would limit it, or slow it down, to less; else 0.
//
// The kernel would first reclaim what it can, for which the writer waits, and for the rest kill processes (v2) or
// answer EBUSY (v1). So page cache counts too. For memory.high it is as for v2, without the killing. A group that grows
// past the limit after this look would have met it in the same moment had the limit stood there already.
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
	name := path.Join(step.Dir, cgroup.StatFile(h.version, cgroup.MemoryUsage))
	content, err := root.ReadFile(name)
	if isGone(err) {
		return 0, nil // the write will tell
	}
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", name, err)
	}
	used, err := cgroup.ParseCount(content)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", step.Dir, err)
	}
	if use = int64(min(used, math.MaxInt64)); use <= to {
		return 0, nil
	}
	return use, nil
}
