package pools

import (
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// resizes is how many workers a round resizes at most. More would make the round longer than the next one may wait,
	// because requests to a ResourceManager are limited.
	resizes = 30
	// effectWithin is how long a resize may take to show. It was never seen to take a second.
	effectWithin = 10 * time.Second
)

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
