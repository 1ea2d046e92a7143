package pools

import (
	"context"
	"fmt"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// demandEvery is the time between two looks at the queues, whose answer is large.
	demandEvery = 10 * time.Second
	// demandWithin bounds a look. Workers may have to stop meanwhile.
	demandWithin = 2 * time.Second
)

// demand is what a keeper knows about what applications wait for.
type demand struct {
	of    *yarn.Cluster // that said it
	tried time.Time     // when it was asked last
	last  pool.Demand
	err   error // why it does not say it
	known pool.Following
}

// followDemand takes the wish from workers that no application needs.
func (r *round) followDemand(ctx context.Context) {
	k := r.k
	if !r.read.FollowDemand {
		k.demand = demand{}
		return
	}
	if k.demand.of != k.observer.Cluster {
		k.demand = demand{of: k.observer.Cluster}
	}
	d := &k.demand
	if r.state.Known && r.now.Sub(d.tried) >= demandEvery {
		d.tried = r.now
		d.last, d.err = r.lookAtDemand(ctx, d.last)
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

// lookAtDemand asks what applications wait for. last is the answer before.
func (r *round) lookAtDemand(ctx context.Context, last pool.Demand) (pool.Demand, error) {
	ctx, cancel := context.WithTimeout(ctx, demandWithin)
	defer cancel()
	label := r.p.Spec.YARN.Label
	labels := []string{label.Name}
	if label.Shared {
		labels = append(labels, "") // containers that ask for no label land on idle workers
	}
	pending, err := r.k.observer.Cluster.RM.Pending(ctx, labels...)
	switch {
	case err == nil:
		return pool.Demand{Read: r.now, Pending: pending}, nil
	case last.Failing.IsZero():
		last.Failing = r.now
	}
	return last, err
}
