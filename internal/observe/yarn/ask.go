package yarn

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// askTimeout bounds the questions to all NodeManagers of a round. Many may be hung, and others have to stop meanwhile.
	askTimeout = 2 * time.Second
	// oneTimeout bounds the question to one of them. Two that are hung fit one after another.
	oneTimeout = 900 * time.Millisecond
	// parallel is how many are asked at a time.
	parallel = 8
	// silentTime is how long a NodeManager must not have answered to be reported.
	silentTime = 10 * time.Second
)

// Question is a question to the NodeManager of a worker.
type Question struct {
	Worker, Host, IP string // IP is the address of its pod
	// Name asks under which host it registers. Otherwise it is asked for its containers.
	Name bool
}

// Answer is what a NodeManager said.
type Answer struct {
	Known   bool       // it answered
	Host    string     // under which it registers
	Running int        // containers whose process runs
	Used    model.Size // by all containers that have not ended
}

// Ask asks NodeManagers, a few at a time: first those that answered, then those that did not answer for the longest
// time, and of each those first that were not asked for the longest time. So hung ones, of which the time of a round is
// too short for all, do not keep others from being asked, and of many that answer each has its turn. Of those for which
// there was no time, nothing is known.
func (o *Observer) Ask(ctx context.Context, now time.Time, all []Question) []Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := all[i].Worker, all[j].Worker
		return cmp.Or(o.silent[a].last.Compare(o.silent[b].last), o.asked[a].Compare(o.asked[b]))
	})
	asked := make(map[string]time.Time, len(all))
	for i := range all {
		asked[all[i].Worker] = o.asked[all[i].Worker]
	}
	o.asked = asked
	answers := make([]Answer, len(all))
	var asks errgroup.Group
	var mu sync.Mutex
	asks.SetLimit(parallel)
	for _, i := range order {
		asks.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			one, cancel := context.WithTimeout(ctx, oneTimeout)
			defer cancel()
			var err error
			answers[i], err = o.ask(one, &all[i])
			mu.Lock()
			defer mu.Unlock()
			if err != nil && ctx.Err() != nil {
				return nil // the time of the round was over before its own
			}
			asked[all[i].Worker] = now
			if !all[i].Name || err == nil { // one that does not say its name may just be starting
				o.hear(all[i].Worker, now, err)
			}
			return nil
		})
	}
	_ = asks.Wait()
	return answers
}

// ask asks one NodeManager.
func (o *Observer) ask(ctx context.Context, q *Question) (a Answer, err error) {
	base := o.Cluster.Locate(q.Host, q.IP)
	if q.Name {
		info, err := o.Cluster.NM.Info(ctx, base)
		if err != nil {
			return Answer{}, err
		}
		a.Host, _, err = net.SplitHostPort(info.ID)
		a.Known = err == nil
		return a, nil
	}
	err = o.Cluster.NM.EachContainer(ctx, base, func(c yarn.Container) {
		if c.State == yarn.ContainerRunning {
			a.Running++
		}
		if !c.Ended() {
			a.Used = a.Used.Plus(c.Size)
		}
	})
	if err != nil {
		return Answer{}, err
	}
	a.Known = true
	return a, nil
}

// silence is since when a NodeManager did not answer, when it was asked last, and the error.
type silence struct {
	since, last time.Time
	err         error
}

// hear notes whether the NodeManager of a worker answered.
func (o *Observer) hear(worker string, now time.Time, err error) {
	before, was := o.silent[worker]
	switch {
	case err == nil:
		delete(o.silent, worker)
		return
	case !was:
		before.since = now
	}
	if o.silent == nil {
		o.silent = map[string]silence{}
	}
	o.silent[worker] = silence{before.since, now, err}
}

// Silent is a NodeManager that does not answer.
type Silent struct {
	Worker string
	Err    error
}

// Silent returns the NodeManagers that do not answer for some time, ordered by worker. It forgets those that nobody
// asks any more, and workers that are gone.
func (o *Observer) Silent(now time.Time, there func(worker string) bool) (all []Silent) {
	for _, worker := range slices.Sorted(maps.Keys(o.silent)) {
		s := o.silent[worker]
		switch {
		case !there(worker) || now.Sub(s.last) > silentTime:
			delete(o.silent, worker)
		case s.last.Sub(s.since) >= silentTime:
			all = append(all, Silent{worker, s.err})
		}
	}
	return all
}
