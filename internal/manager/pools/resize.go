package pools

import (
	"context"
	"errors"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// resizes is how many workers a round resizes at most by the web services, one in a request. More would make the round
	// longer than the next one may wait, because requests to a ResourceManager are limited.
	resizes = 30
	// together is the same by the administration protocol, which takes all of them in one call. The marks of their pods,
	// which are written before, take ten seconds.
	together = 2000
	// singly is for how long resizes are sent one by one after the administration protocol has failed.
	singly = 5 * time.Minute
	// effectWithin is how long a resize may take to show. It was never seen to take a second.
	effectWithin = 10 * time.Second
)

// most returns how many workers this round resizes at most.
func (r *round) most() int {
	if r.k.engine == nil || r.now.Before(r.k.engine.single) {
		return resizes
	}
	return together
}

// resize carries out all resizes. Many go in one call by the administration protocol. Where that fails, as where its
// port is closed, some are sent by the web services, and the others in later rounds.
func (r *round) resize(ctx context.Context, failed []error) {
	var which []int
	for i, s := range r.steps {
		if s.Verb == pool.Resize && failed[i] == nil {
			which = append(which, i)
		}
	}
	if len(which) > resizes {
		err := r.resizeTogether(ctx, which)
		r.k.complain(ctx, "the administration protocol of the ResourceManager resizes nothing, so resizes of many workers "+
			"take longer; check spec.yarn.admins, and that its port can be reached", err)
		if err == nil {
			return
		}
		r.k.engine.single = r.now.Add(singly)
		if refused := (*yarn.RPCError)(nil); errors.As(err, &refused) { // one of the nodes may just have gone
			r.k.engine.single = r.now.Add(roundEvery)
		}
		which = which[:resizes]
	}
	inParallel(len(which), func(n int) { failed[which[n]] = r.one(ctx, which[n]) })
}

func (r *round) resizeTogether(ctx context.Context, which []int) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var all []yarn.NodeResize
	for _, i := range which {
		s := &r.steps[i]
		m, _ := r.places[i].worker.Manager() // there is one, or it would not be resized
		all = append(all, yarn.NodeResize{ID: m.ID, Total: resourceOf(s.Size), OverCommit: s.Within})
	}
	if err := r.k.engine.admin.SendResizes(ctx, all); err != nil {
		return err
	}
	for _, i := range which {
		s := &r.steps[i]
		m, _ := r.places[i].worker.Manager()
		r.k.asks(s.Worker, m.Total, s.Size, r.now)
		r.k.hears(s.Worker, r.now.Add(s.Within))
	}
	return nil
}

func resourceOf(s pool.Size) yarn.Resource {
	return yarn.Resource{MemoryMiB: s.MemoryMiB, VCores: s.VCores}
}

// asked is a resize that the ResourceManager accepted, and that does not show yet.
type asked struct {
	from, to pool.Size
	since    time.Time // of the first of several in a row without effect
}

// asks notes a resize.
func (k *keeper) asks(worker string, from, to pool.Size, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.asked == nil {
		k.asked = map[string]asked{}
	}
	since := now
	if before, found := k.asked[worker]; found && before.from == from {
		since = before.since
	}
	k.asked[worker] = asked{from, to, since}
}

// hears notes a time that the ResourceManager was told, and confirmed.
func (k *keeper) hears(worker string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heard == nil {
		k.heard = map[string]time.Time{}
	}
	k.heard[worker] = at
}

// readBack compares what the ResourceManager shows with what it was asked for.
func (r *round) readBack() {
	if r.view == nil {
		return
	}
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range r.places {
		name := r.places[i].worker.Name
		m, _ := r.places[i].worker.Manager()
		a, found := k.asked[name]
		switch {
		case !found:
		case m == nil || m.Total != a.from:
			delete(k.asked, name)
		case r.now.Sub(a.since) >= effectWithin:
			r.t.add(v1alpha1.ConditionStepsFailed, "StepFailed", &yarn.NoEffectError{
				What: "the total of worker " + name, Want: a.to.String(), Have: m.Total.String(),
			})
		}
	}
}
