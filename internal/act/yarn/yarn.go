// Package yarn tells a YARN cluster what the plan of a pool says: new totals of NodeManagers, and which hosts to
// decommission. It decides nothing.
package yarn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// MaxSingle is how many workers a round resizes at most by the web services, one in a request. More would make the
	// round longer than the next one may wait, because requests to a ResourceManager are limited.
	MaxSingle = 30
	// MaxTogether is the same by the administration protocol, which takes hundreds in one call. The marks of their pods,
	// which are written before, take ten seconds.
	MaxTogether = 2000
	// singleTime is for how long resizes are sent one by one after the administration protocol has failed, and
	// singleOnceTime the same if it refused one of the nodes, which may just have gone.
	singleTime     = 5 * time.Minute
	singleOnceTime = 2 * time.Second
	// effectTimeout is how long a resize may take to show. It was never seen to take a second.
	effectTimeout = 10 * time.Second
	// callTimeout bounds one call of the administration protocol.
	callTimeout = 5 * time.Second
	// hearMargin is how long the ResourceManager may take to hear of a resize, and end what does not fit.
	hearMargin = 2 * time.Second
	// oldDecision is the age of a decision from which containers may have ended that it saw.
	oldDecision = time.Second
	// promised is for how long a deadline that is over is remembered.
	promised = time.Minute
	// parallel is how many requests are sent at a time.
	parallel = 8
)

// Actor changes one cluster. The zero value has changed nothing.
type Actor struct {
	Cluster *yarn.Cluster // nil: none can be reached

	single time.Time            // until then, resizes are sent one by one: the administration protocol failed
	asked  map[string]asked     // resizes by worker
	heard  map[string]time.Time // by worker: the time that the ResourceManager was told last, and confirmed
	told   map[string]promise   // by worker: the deadline that the ResourceManager was told last, and confirmed
	unread map[string]bool      // hosts whose entry in the exclude file changed, and may not have been read; nil: all
	tried  time.Time            // while unread is nil: when the ResourceManager was last asked to read the file
	err    error                // and what came of it
}

// Use makes the actor change another cluster, or the same one by other clients.
func (a *Actor) Use(c *yarn.Cluster) { a.Cluster, a.single, a.tried = c, time.Time{}, time.Time{} }

// Begin begins a round: what [Actor.Heard] returned was for the one before.
func (a *Actor) Begin() { a.heard = map[string]time.Time{} }

// asked is a resize that the ResourceManager accepted, and whose effect it does not report yet.
type asked struct {
	from, to model.Size
	since    time.Time // of the first of several in a row without effect
}

// promise is a deadline that was sent to the ResourceManager as a duration. The request arrived later than the deadline
// was decided, so containers may run until the later time, until.
type promise struct{ deadline, until time.Time }

// Resize is the resize of a worker's NodeManager.
type Resize struct {
	Worker, ID string // ID is that of its NodeManager
	From, To   model.Size
	Deadline   time.Time // of what does not fit, by the wall clock; it may be over
	Err        error     // set by [Actor.Resize]

	within time.Duration
}

// Most returns how many workers can be resized in a round that begins now.
func (a *Actor) Most(now time.Time) int {
	if a.Cluster == nil || now.Before(a.single) {
		return MaxSingle
	}
	return MaxTogether
}

// Resize carries out resizes. Many go in one call by the administration protocol. Where that fails, as where its port
// is closed, some are sent by the web services, and the others are left to later rounds. So are resizes that would come
// too late for the deadline that they share with one before. The error is that of the administration protocol.
func (a *Actor) Resize(ctx context.Context, now time.Time, all []*Resize) error {
	var err error
	maps.DeleteFunc(a.told, func(_ string, p promise) bool { return now.Sub(p.until) > promised })
	all = slices.DeleteFunc(slices.Clone(all), func(r *Resize) bool { return !a.promise(now, r) })
	together := len(all) > MaxSingle
	if together {
		err = a.resizeTogether(ctx, all)
	}
	if err != nil {
		a.single = now.Add(singleTime)
		if refused := (*yarn.RPCError)(nil); errors.As(err, &refused) {
			a.single = now.Add(singleOnceTime)
		}
		all, together = all[:MaxSingle], false
	}
	if !together {
		a.resizeSingly(ctx, all)
	}
	for _, r := range all {
		a.note(now, r)
	}
	return err
}

func (a *Actor) resizeSingly(ctx context.Context, all []*Resize) {
	var requests errgroup.Group
	requests.SetLimit(parallel)
	for _, r := range all {
		requests.Go(func() error {
			if err := a.Cluster.RM.SendResize(ctx, r.ID, r.To, r.within); err != nil {
				r.Err = fmt.Errorf("resizing %s to %s: %w", r.Worker, r.To, err)
			}
			return nil // the others go on
		})
	}
	_ = requests.Wait()
}

func (a *Actor) resizeTogether(ctx context.Context, all []*Resize) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var resizes []yarn.NodeResize
	for _, r := range all {
		resizes = append(resizes, yarn.NodeResize{ID: r.ID, Total: r.To, OverCommit: r.within})
	}
	return a.Cluster.Admin.SendResizes(ctx, resizes)
}

// promise sets the time that the ResourceManager gives containers. If the same deadline was sent before, containers
// keep the end that they got then. It returns false for a smaller size if the deadline may pass before the request
// arrives, or if the decision is old: containers that started since would get less than their time.
func (a *Actor) promise(now time.Time, r *Resize) bool {
	told := a.told[r.Worker]
	if !told.deadline.Equal(r.Deadline) {
		r.within = max(r.Deadline.Sub(now), 0)
		return true
	}
	left := time.Until(told.until)
	r.within = max(left, 0)
	return r.From.Fits(r.To) || left >= hearMargin && time.Since(now) <= oldDecision
}

// note notes a resize that was sent.
func (a *Actor) note(now time.Time, r *Resize) {
	if a.asked == nil {
		a.asked, a.told = map[string]asked{}, map[string]promise{}
	}
	since := now
	if before, found := a.asked[r.Worker]; found && before.from == r.From {
		since = before.since
	}
	a.asked[r.Worker] = asked{r.From, r.To, since}
	if r.Err != nil {
		delete(a.told, r.Worker)
		return
	}
	a.heard[r.Worker] = r.Deadline
	if !a.told[r.Worker].deadline.Equal(r.Deadline) {
		a.told[r.Worker] = promise{r.Deadline, time.Now().Add(r.within)}
	}
}

// Heard returns the time that the ResourceManager was told about a worker in the last round, and confirmed; zero: none.
func (a *Actor) Heard(worker string) time.Time { return a.heard[worker] }

// Check compares the total that the ResourceManager shows of a worker with what it was asked for; nil is none. The
// error says that a resize has had no effect for too long.
func (a *Actor) Check(now time.Time, worker string, total *model.Size) error {
	w, found := a.asked[worker]
	switch {
	case !found:
	case total == nil || *total != w.from:
		delete(a.asked, worker)
	case now.Sub(w.since) >= effectTimeout:
		return &yarn.NoEffectError{What: "the total of worker " + worker, Want: w.to.String(), Have: total.String()}
	}
	return nil
}
