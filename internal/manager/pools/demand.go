package pools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// demandInterval is the time between two reads of the queues. The answer is large.
const demandInterval = 10 * time.Second

// errReadingOther means that another pool reads its queues now, and only one may.
var errReadingOther = errors.New("the queues of other pools' ResourceManagers are being read")

// demand is a keeper's last reading of what applications wait for.
type demand struct {
	of    *yarn.Cluster // that said it
	about subject
	tried time.Time // when it was asked last
	last  pool.Demand
	err   error // why it does not say it
	known pool.Following
}

// subject identifies what a demand was read for. A demand of another subject does not count.
type subject struct {
	pool  types.UID
	label v1alpha1.NodeLabelSpec
}

// followDemand marks workers that no application needs as not wanted.
func (r *round) followDemand(ctx context.Context) {
	k := r.k
	if !r.read.FollowDemand {
		k.demand = demand{}
		return
	}
	about := subject{r.p.UID, r.p.Spec.YARN.Label}
	if k.demand.of != k.observer.Cluster || k.demand.about != about {
		k.demand = demand{of: k.observer.Cluster, about: about}
	}
	d := &k.demand
	if r.state.Known && r.now.Sub(d.tried) >= demandInterval {
		pending, err := r.pending(ctx)
		switch {
		case err == nil:
			d.last = pool.Demand{Read: r.now, Pending: pending}
		case d.last.Failing.IsZero():
			d.last.Failing = r.now
		}
		switch {
		case !errors.Is(err, errReadingOther):
			d.tried, d.err = r.now, err
		case d.err == nil: // else the earlier error says more
			d.err = err
		}
	}
	d.last.Follow = true
	if d.last.Blind(r.now) && d.err != nil {
		reason, _ := causeOf(d.err)
		r.t.add(v1alpha1.ConditionDemandUnknown, reason, fmt.Errorf("the ResourceManager does not say what applications "+
			"wait for, so workers run as if something waited; size.demand: Follow needs the CapacityScheduler: %w", d.err))
	}
	r.in.Demand = d.last
	d.known = pool.FollowDemand(&r.in, d.known)
}

// pending reads the queues, of one pool at a time: the manager's memory must have room for one answer only. A pool that
// finds another one reading tries again in its next round.
func (r *round) pending(ctx context.Context) (pool.Size, error) {
	select {
	case r.k.c.queues <- struct{}{}:
		defer func() { <-r.k.c.queues }()
	default:
		return pool.Size{}, errReadingOther
	}
	return r.k.observer.Pending(ctx, r.p.Spec.YARN.Label.Name, r.p.Spec.YARN.Label.Shared)
}
