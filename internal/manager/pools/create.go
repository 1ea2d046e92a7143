package pools

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

const (
	// createWithin bounds how long a round makes pods. What has to shrink waits for that.
	createWithin = 5 * time.Second
	// maxRefused is about how many pods in a row the API server may refuse before a round leaves the others: a
	// ResourceQuota, or Pod Security, would refuse all of them.
	maxRefused = 16
	// firstRest is the pause of creations after a round in which all were refused. It doubles up to maxRest.
	firstRest, maxRest = time.Second, time.Minute
)

// refusal is how the API server refused pods of a pool last. Its zero value: it did not, since it took one.
type refusal struct {
	err  error
	rest time.Duration // the present pause of creations
	end  time.Time     // of that
}

// create makes pods by f, which sets the errors of their places. It returns those that are left to later rounds: there
// was no time, or the API server refuses pods.
func (r *round) create(places []*place, f func(pl *place)) (left []*place) {
	k := r.k
	if len(places) > 0 && r.now.Before(k.refused.end) {
		r.t.add(v1alpha1.ConditionStepsFailed, "StepFailed", fmt.Errorf("pods of workers were refused, so others are tried "+
			"every %s: %w", k.refused.rest, k.refused.err))
		return places
	}
	if k.unprepared != nil {
		inParallel(places, f) // nothing is asked of the API server
		return nil
	}
	var made, refused, inRow atomic.Int32
	var last atomic.Pointer[place] // that was refused
	left = inTime(createWithin, &k.createTurn, places, func(pl *place) bool {
		if inRow.Load() >= maxRefused {
			return false
		}
		if f(pl); pl.err == nil {
			made.Add(1)
			inRow.Store(0)
		} else {
			refused.Add(1)
			inRow.Add(1)
			last.Store(pl)
		}
		return true
	})
	switch {
	case made.Load() > 0:
		k.refused = refusal{}
	case refused.Load() > 0:
		rest := min(max(2*k.refused.rest, firstRest), maxRest)
		k.refused = refusal{last.Load().err, rest, r.now.Add(rest)}
	}
	return left
}

// inTime calls f for places, a few at a time, and begins no more when a time is over. It returns those that are left,
// also by f, which returns false then. turn counts the others, so that the next call begins with those that were left.
func inTime(most time.Duration, turn *int, places []*place, f func(pl *place) bool) (left []*place) {
	if len(places) == 0 {
		return nil
	}
	first := *turn % len(places)
	began := time.Now()
	var mu sync.Mutex
	inParallel(slices.Concat(places[first:], places[:first]), func(pl *place) {
		done := time.Since(began) < most && f(pl)
		mu.Lock()
		defer mu.Unlock()
		if done {
			*turn++
		} else {
			left = append(left, pl)
		}
	})
	return left
}
