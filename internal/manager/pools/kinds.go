package pools

import (
	"github.com/waterline-io/waterline/internal/manager/pools/impala"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/manager/pools/trino"
)

// kind returns how the workers of a pool run whose engine has workers of one size. It returns nil for YARN, whose
// workers change their size: the rest of this package, except what begins with crew, is about them.
//
// To remove an engine, remove its case, its folder, its folder in internal/drain, and its field of the spec.
func (r *round) kind() *olap.Kind {
	switch spec := &r.p.Spec; {
	case spec.Trino != nil:
		return trino.Kind(spec.Trino, r.read.GracePeriod)
	case spec.Impala != nil:
		return impala.Kind(spec.Impala, r.read.GracePeriod, r.read.Drain, r.read.Floor.Memory)
	}
	return nil
}
