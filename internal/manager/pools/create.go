package pools

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
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

// inParallel calls f for places, a few at a time.
func inParallel(places []*place, f func(pl *place)) { inTime(math.MaxInt64, new(int), places, f, nil) }

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

// bar returns why no pod may be made, and what to do: the cluster is secure, and nobody said as whom containers run, or
// an image of the tenant would run as root, in a pool from before the rule of the API against it. "": it may.
func (r *round) bar() (reason string, why error) {
	switch y := r.p.Spec.YARN; {
	case y == nil:
	case len(r.k.endpoint.Secret[yarn.KeyPrincipal]) > 0 && y.ContainerExecutor == "":
		return "ContainersShareUser", errors.New("no pod of a worker is made: the cluster is secure (the Secret of " +
			"spec.yarn.authSecret has a principal), and containers of different users could read each other's files and " +
			"tokens; set spec.yarn.containerExecutor to Linux, or to Default if all containers belong to users who trust " +
			"each other")
	case y.ContainerExecutor == v1alpha1.ExecutorLinux && y.Guard != nil && y.Guard.Image != "":
		return "GuardImageNotAllowed", fmt.Errorf("no pod of a worker is made: with spec.yarn.containerExecutor: Linux the "+
			"guard runs as root, and spec.yarn.guard.image names an image of its own (%s); leave that field out, so that the "+
			"guard has the image that the manager's flag --guard-image names", kube.Excerpt(y.Guard.Image))
	}
	return "", nil
}

// reportBarred sets the condition for [round.bar].
func (r *round) reportBarred() {
	if reason, why := r.bar(); why != nil && r.p.DeletionTimestamp == nil {
		r.t.add(v1alpha1.ConditionPodsRefused, reason, why)
	}
}
