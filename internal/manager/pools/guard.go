package pools

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// allowance returns the annotation for the guard of a worker after its next step. What is not known stays as it is.
func (r *round) allowance(pl *place) string {
	size, until, known := pool.Allowed(&r.in, pl.worker, &pl.step)
	if !pl.pod.guarded || !known {
		return pl.pod.allowance
	}
	return allowanceText(size, until)
}

// allowanceText returns an allowance as the annotation has it.
func allowanceText(size pool.Size, until time.Time) string {
	return encode(struct {
		pool.Size
		Until time.Time `json:"until,omitzero"`
	}{size, until.UTC()})
}
