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
	left = inTime(createWithin, &k.createTurn, places, func(pl *place) {
		if f(pl); pl.err == nil {
			made.Add(1)
			inRow.Store(0)
		} else {
			refused.Add(1)
			inRow.Add(1)
			last.Store(pl)
		}
	}, func() bool { return inRow.Load() >= maxRefused })
	switch {
	case made.Load() > 0:
		k.refused = refusal{}
	case refused.Load() > 0:
		rest := min(max(2*k.refused.rest, firstRest), maxRest)
		k.refused = refusal{last.Load().err, rest, r.now.Add(rest)}
	}
	return left
}

// inTime calls f for places, a few at a time, and begins no more when a time is over, or when stop says so; nil: it
// never does. It returns those that are left. turn counts the others, so that the next call begins with those.
func inTime(most time.Duration, turn *int, places []*place, f func(pl *place), stop func() bool) (left []*place) {
	if len(places) == 0 {
		return nil
	}
	first := *turn % len(places)
	places = slices.Concat(places[first:], places[:first])
	began, slots := time.Now(), make(chan struct{}, parallel)
	var calls sync.WaitGroup
	for i, pl := range places {
		slots <- struct{}{}
		if time.Since(began) >= most || stop != nil && stop() {
			left = places[i:]
			break
		}
		calls.Go(func() {
			f(pl)
			<-slots
		})
	}
	calls.Wait()
	*turn += len(places) - len(left)
	return left
}
