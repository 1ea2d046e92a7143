package pools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

// hungEngine is an engine of which some workers hang, as on nodes that are unreachable. Each request to one of them
// takes a second, or two to drain it.
type hungEngine struct {
	hung map[string]bool // by host

	mu      sync.Mutex
	began   time.Time
	drained map[string]time.Duration // by host: when it was asked to drain, from the first such request on
}

func (e *hungEngine) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	if err := e.wait(ctx, w, time.Second); err != nil {
		return drain.Status{}, err
	}
	return drain.Status{State: drain.Active, Work: drain.UnknownWork}, nil
}

func (e *hungEngine) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	e.mu.Lock()
	if e.began.IsZero() {
		e.began = time.Now()
	}
	e.drained[w.Host] = time.Since(e.began)
	e.mu.Unlock()
	return e.wait(ctx, w, 2*time.Second)
}

func (e *hungEngine) wait(ctx context.Context, w drain.Worker, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if e.hung[w.Host] {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("asking worker %s: %w", w.Host, err)
	}
	return nil
}

// hungPool returns the keeper of a pool whose registered workers run for an hour, the first of them hung.
func hungPool(hung, workers int) (*keeper, *hungEngine, []*place) {
	e := &hungEngine{hung: map[string]bool{}, drained: map[string]time.Duration{}}
	var places []*place
	for i := range workers {
		name := fmt.Sprintf("w%03d", i)
		e.hung[name] = i < hung
		p := &podRow{name: name, uid: name, ip: "10.0.0.1", started: time.Now().Add(-time.Hour)}
		p.marks.Registered = true
		places = append(places, &place{host: name, pod: p, worker: &pool.Worker{
			Name: name, Wanted: true, Room: true, Pod: &pool.Pod{Created: p.started, Started: p.started, Marks: p.marks},
		}})
	}
	return &keeper{crew: &crewEngine{drainer: e, dialer: &crewDialer{}}}, e, places
}

// crewRoundOf returns a round of a pool at the present time.
func crewRoundOf(k *keeper, places []*place) *crewRound {
	now := time.Now()
	for _, pl := range places {
		pl.crew = crewSeen{}
	}
	return &crewRound{
		round: &round{k: k, now: now, t: &problems{}, places: places}, kind: &olap.Kind{Port: 8080},
		in: crew.Input{Now: now, Known: true, Settings: crew.Settings{
			Least: time.Minute, Grace: time.Minute, Drain: time.Hour, Register: registerWithin, Recover: recoverCrew,
			Patience: patience, Attempts: attempts,
		}},
	}
}

// steps asks the engine, and decides.
func (c *crewRound) steps(ctx context.Context) []crew.Step {
	c.ask(ctx, c.k.crew.drainer)
	for _, pl := range c.places {
		c.in.Workers = append(c.in.Workers, crew.Worker{Worker: *pl.worker, State: crew.State(pl.crew.status.State)})
	}
	return crew.Next(&c.in)
}

// TestHungWorkers has more hung workers than a round has time for, which come first by name. They are replaced. None
// of the others is ever missing, and each is asked again and again.
func TestHungWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hung, workers = 60, 80
		k, _, places := hungPool(hung, workers)
		replaced, rounds := map[string]bool{}, 0
		for began := time.Now(); time.Since(began) < 2*recoverCrew; time.Sleep(time.Second) { // clock: synctest's
			c := crewRoundOf(k, places)
			steps := c.steps(t.Context())
			rounds++
			if took := time.Since(c.now); took > lookWithin || !c.in.Known { // clock: synctest's
				t.Fatalf("the round asked for %s, and the coordinator is known: %v", took, c.in.Known)
			}
			for i, s := range steps {
				pl := places[i]
				pl.worker.Pod.Marks, pl.pod.marks = s.Marks, s.Marks
				replaced[pl.host] = replaced[pl.host] || s.Verb == crew.DeletePod
				if i >= hung && (s.Phase != crew.Active || !s.Marks.Missing.IsZero()) {
					t.Fatalf("after %s, worker %s that answers is %s, %s, missing since %s: %v", time.Since(began), pl.host,
						s.Phase, s.Why, s.Marks.Missing, pl.crew.silent)
				}
				if at := k.crew.heard[pl.host].at; i >= hung && rounds > 2 && c.now.Sub(at) > 2*restFor {
					t.Fatalf("after %s, worker %s was asked %s ago", time.Since(began), pl.host, c.now.Sub(at))
				}
			}
		}
		for i, pl := range places {
			if replaced[pl.host] != (i < hung) {
				t.Errorf("worker %s: replaced %v", pl.host, replaced[pl.host])
			}
		}
	})
}

// TestDrainsBehindHung has more hung workers than there is time for, which come first by name, when all are to stop.
// Each of the others is drained at once, and no step is said to have failed that was not begun.
func TestDrainsBehindHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hung, workers = 100, 120
		k, e, places := hungPool(hung, workers)
		for range 3 { // rounds in which each worker is asked
			crewRoundOf(k, places).steps(t.Context())
		}
		for _, pl := range places {
			pl.worker.Wanted = false
		}
		c := crewRoundOf(k, places)
		for i, s := range c.steps(t.Context()) {
			if s.Verb != crew.Drain {
				t.Fatalf("%s: %+v", places[i].host, s)
			}
			places[i].pod.raw = encode(s.Marks) // they are written already
		}
		began := time.Now()
		c.act(t.Context(), e)
		if took := time.Since(began); took > rmTimeout+2*time.Second { // clock: synctest's
			t.Errorf("the steps took %s", took)
		}
		tried := 0
		for i, pl := range places {
			at, was := e.drained[pl.host]
			switch {
			case i >= hung && (!was || at != 0 || pl.err != nil):
				t.Errorf("worker %s that answers: drained %v, after %s, %v", pl.host, was, at, pl.err)
			case was != (pl.step.Verb == crew.Drain), i < hung && was != (pl.err != nil):
				t.Errorf("worker %s: asked to drain %v, its step is %s, %v", pl.host, was, pl.step.Verb, pl.err)
			}
			if i < hung && was {
				tried++
			}
		}
		if tried < 7*parallel || tried == hung {
			t.Errorf("%d hung workers were asked to drain", tried)
		}
	})
}

// TestCoordinatorHangs checks that a coordinator that takes all the time of a round counts as one that does not answer.
func TestCoordinatorHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, _, places := hungPool(0, 20)
		k.crew.drainer = hungCoordinator{}
		c := crewRoundOf(k, places)
		steps := c.steps(t.Context())
		if reason := c.t.all["CoordinatorUnreachable"].reason; c.in.Known || reason != "NoAnswer" {
			t.Errorf("known %v, reason %q", c.in.Known, reason)
		}
		for i, s := range steps {
			if s.Verb != crew.Wait || !s.Marks.Missing.IsZero() {
				t.Errorf("worker %s: %+v", places[i].host, s)
			}
		}
	})
}

// hungCoordinator is an engine whose coordinator hangs.
type hungCoordinator struct{ drain.Drainer }

func (hungCoordinator) Status(ctx context.Context, _ drain.Worker) (drain.Status, error) {
	<-ctx.Done()
	return drain.Status{}, errors.Join(drain.ErrCoordinator, ctx.Err())
}
