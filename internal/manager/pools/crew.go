package pools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/crew"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/manager/pools/dial"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
)

const (
	// patience is how long a node's offer must stay below the requests of its bound pods before a worker of fixed size
	// drains. A drain cannot be undone, and the agent limits batch pods meanwhile.
	patience = time.Minute
	// recoverCrew is how long a coordinator must not list a worker before its pod is replaced. No query runs in it.
	recoverCrew = 5 * time.Minute
	// lookWithin bounds how long a coordinator that does not answer delays a round.
	lookWithin = 5 * time.Second
	// restFor is how long the state "active" of a worker stays valid if the worker needs no step. Otherwise each round
	// would ask hundreds of workers.
	restFor = 10 * time.Second
)

// crewRound is one round of a pool whose workers have one size.
type crewRound struct {
	*round
	kind     *olap.Kind
	settings crew.Settings
	in       crew.Input
	tally    crew.Tally
}

// crewSeen is what a round observed of a worker of fixed size, besides its [place].
type crewSeen struct {
	status drain.Status
	silent error // why its status is not known
	step   crew.Step
}

// crewEngine is the client of the engine of a pool, what it was made from, and what it said last.
type crewEngine struct {
	spec    v1alpha1.WorkerPoolSpec
	auth    drain.Auth
	drainer drain.Drainer
	dialer  *dial.Crew
	active  map[string]time.Time // by UID of its pod: when an active worker was asked last
}

// crewSettings returns the settings of a pool for the decision.
func (r *round) crewSettings(kind *olap.Kind) crew.Settings {
	return crew.Settings{
		Least: kind.Least, Grace: r.read.Grace, Drain: r.read.Drain, Register: registerWithin, Recover: recoverCrew,
		Patience: patience, CoolDown: r.read.CoolDown, Attempts: attempts, Invalid: r.invalid,
	}
}

// runCrew is a round of a pool whose workers have one size.
func (r *round) runCrew(ctx context.Context, kind *olap.Kind) {
	c := &crewRound{round: r, kind: kind, settings: r.crewSettings(kind)}
	r.crew = c
	if r.p.DeletionTimestamp == nil {
		r.applyObjects(ctx, kind.OwnFiles(), kind.Port)
		r.opening = pool.Opening(policy.OpeningAt(r.read.Windows, r.now))
	}
	drainer := c.drainer(ctx)
	c.observe(ctx, drainer)
	c.act(ctx, drainer)
}

// drainer returns the client of the engine; nil if there is none.
func (c *crewRound) drainer(ctx context.Context) drain.Drainer {
	k := c.k
	d, err := dial.New(k.namespace, k.c.o.Reach[k.namespace])
	if err != nil {
		c.t.add(v1alpha1.ConditionCoordinatorUnreachable, dial.NotAllowed, err)
		return nil
	}
	secret, err := c.secretOf(ctx, c.kind.Field, c.kind.Secret)
	if err != nil {
		c.t.add(v1alpha1.ConditionCoordinatorUnreachable, "NoSecret", err)
		return nil
	}
	auth, err := c.kind.Auth(secret)
	if err == nil && k.crew != nil && reflect.DeepEqual(k.crew.auth, auth) && reflect.DeepEqual(k.crew.spec, c.p.Spec) {
		return k.crew.drainer
	}
	var drainer drain.Drainer
	dialer := &dial.Crew{Dialer: d}
	if err == nil {
		connected := auth
		connected.Dial = dialer.Dial
		drainer, err = c.kind.Drainer(connected)
	}
	if err != nil {
		k.secretRead = time.Time{} // it may be corrected now
		c.t.add(v1alpha1.ConditionCoordinatorUnreachable, "BadSecret", err)
		return nil
	}
	k.crew = &crewEngine{*c.p.Spec.DeepCopy(), auth, drainer, dialer, nil}
	return drainer
}

// observe builds the input of the decision.
func (c *crewRound) observe(ctx context.Context, drainer drain.Drainer) {
	c.list()
	tight := c.k.c.tight(c.nodes)
	c.recall()
	for i := range c.places {
		pl := &c.places[i]
		c.fill(pl, nil)
	}
	c.in = crew.Input{Now: c.now, Known: drainer != nil}
	if drainer != nil {
		c.ask(ctx, drainer)
	}
	for i := range c.places {
		c.in.Workers = append(c.in.Workers, c.worker(&c.places[i], tight))
	}
	_, reversible := drainer.(drain.Reverser)
	c.settings.Reversible = reversible
	c.in.Settings = c.settings
}

// ask asks the engine about all workers that run.
func (c *crewRound) ask(ctx context.Context, drainer drain.Drainer) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	c.k.crew.dialer.Know(c.addresses())
	c.each(func(pl *place) {
		w, runs := c.engineWorker(pl)
		switch {
		case runs && c.rests(pl):
			pl.crew.status = drain.Status{State: drain.Active, Work: drain.UnknownWork}
		case runs:
			pl.crew.status, pl.crew.silent = drainer.Status(ctx, w)
		}
	})
	active := map[string]time.Time{}
	for i := range c.places {
		pl := &c.places[i]
		if pl.crew.status.State == drain.Active {
			if active[pl.pod.uid] = c.now; c.rests(pl) {
				active[pl.pod.uid] = c.k.crew.active[pl.pod.uid]
			}
		}
	}
	c.k.crew.active = active
	for i := range c.places {
		if err := c.places[i].crew.silent; errors.Is(err, drain.ErrCoordinator) {
			c.in.Known = false
			reason := "NoAnswer"
			if dial.IsNotAllowed(err) {
				reason = dial.NotAllowed
			}
			c.t.add(v1alpha1.ConditionCoordinatorUnreachable, reason, fmt.Errorf("the coordinator of %s does not say which "+
				"workers it has; workers stay as they are, and stop at their ends; check its address and user in %s, and that "+
				"the manager can reach it: %w", c.kind.Engine, c.kind.Field, err))
		}
	}
}

// rests reports whether a worker was active within restFor and needs no step.
func (c *crewRound) rests(pl *place) bool {
	at := c.k.crew.active[pl.pod.uid]
	return c.now.Sub(at) < restFor && pl.worker.Pod.Started.Before(at) && !pl.worker.Leaves() &&
		crewMarks(pl.pod.raw).Asked.IsZero()
}

// engineWorker returns a worker as its engine knows it, and whether its process runs.
func (c *crewRound) engineWorker(pl *place) (drain.Worker, bool) {
	if pl.worker.Pod == nil || pl.worker.Pod.Started.IsZero() || pl.pod.ip == "" {
		return drain.Worker{}, false
	}
	return drain.Worker{Host: pl.host, URL: "http://" + c.address(pl)}, true
}

// address returns where the web services of a worker are.
func (c *crewRound) address(pl *place) string {
	return net.JoinHostPort(pl.pod.ip, strconv.Itoa(int(c.kind.Port)))
}

// addresses returns where the web services of all workers are.
func (c *crewRound) addresses() map[string]bool {
	all := map[string]bool{}
	for i := range c.places {
		pl := &c.places[i]
		if _, runs := c.engineWorker(pl); runs {
			all[c.address(pl)] = true
		}
	}
	return all
}

// worker returns the input about a place.
func (c *crewRound) worker(pl *place, tight map[string]bool) crew.Worker {
	seen := pl.worker
	w := crew.Worker{
		Name: seen.Name, Wanted: seen.Wanted, End: seen.End, Cordoned: seen.Cordoned, Room: seen.Room, Unsold: seen.Unsold,
		Ended: seen.Ended, Attempts: seen.Attempts, Over: seen.Over,
		State: crew.State(pl.crew.status.State),
	}
	if seen.Pod != nil {
		w.Tight = tight[pl.pod.uid]
		w.Pod = &crew.Pod{
			Started: seen.Pod.Started, Deleting: seen.Pod.Deleting, Evicted: seen.Pod.Evicted, Marks: crewMarks(pl.pod.raw),
		}
	}
	return w
}

// crewMarks reads the marks of a pod. A mark that cannot be read counts as absent: the controller then waits longer,
// and ends nothing earlier.
func crewMarks(raw string) (m crew.Marks) {
	_ = json.Unmarshal([]byte(raw), &m)
	return m
}

// tight returns the pods, by UID, of workers of fixed size that must stop for want of room on their nodes, of all
// pools.
func (c *Controller) tight(nodes map[string]Node) map[string]bool {
	seats := map[string][]crew.Seat{}
	for _, pods := range c.pods {
		pods.Each(func(_ string, p podRow) {
			if p.crew && p.owner != "" && p.node != "" && !p.over {
				seats[p.node] = append(seats[p.node], crew.Seat{
					Worker: p.uid, Born: p.started, Request: p.request, Leaves: p.deleting || !crewMarks(p.raw).Leaving.IsZero(),
				})
			}
		})
	}
	all := map[string]bool{}
	for name, s := range seats {
		if n, known := nodes[name]; known && n.Selling {
			for uid := range crew.Tight(n.Offer, n.Bound, s) {
				all[uid] = true
			}
		}
	}
	return all
}

// act decides, and carries out the steps. A step that fails is decided again in a later round.
func (c *crewRound) act(ctx context.Context, drainer drain.Drainer) {
	steps := crew.Next(&c.in)
	c.tally = crew.Count(&c.in, steps)
	for i := range c.places {
		c.places[i].crew.step = steps[i]
	}
	c.each(func(pl *place) { pl.err = c.mark(ctx, pl) })
	for _, verb := range []crew.Verb{crew.DeletePod, crew.Drain, crew.Undrain} {
		acting, cancel := context.WithTimeout(ctx, rmTimeout)
		c.each(func(pl *place) {
			if pl.err == nil && pl.crew.step.Verb == verb {
				pl.err = c.one(acting, drainer, pl)
			}
		})
		cancel()
	}
	missing := c.those(func(pl *place) bool { return pl.crew.step.Verb == crew.CreatePod && pl.err == nil })
	for _, pl := range c.create(missing, func(pl *place) { pl.err = c.one(ctx, drainer, pl) }) {
		pl.crew.step.Verb = crew.Wait
	}
	unsold := false
	for i := range c.places {
		pl := &c.places[i]
		verb := pl.crew.step.Verb
		unsold = unsold || pl.crew.step.Why == crew.NothingSold
		if verb != crew.Wait {
			c.k.count(pool.Verb(verb), pl.err)
		}
		condition, reason := v1alpha1.ConditionStepsFailed, "StepFailed"
		if verb == crew.Drain || verb == crew.Undrain {
			condition, reason = v1alpha1.ConditionDrainRefused, "DrainFailed"
		}
		c.t.add(condition, reason, pl.err)
	}
	if unsold {
		c.unsold()
	}
}

// mark writes the marks of a worker's pod before its step is carried out.
func (c *crewRound) mark(ctx context.Context, pl *place) error {
	if pl.worker.Pod == nil {
		return nil
	}
	content, err := json.Marshal(pl.crew.step.Marks)
	if err != nil {
		return fmt.Errorf("encoding the marks of pod %s: %w", pl.pod.name, err)
	}
	if string(content) == pl.pod.raw {
		return nil
	}
	return c.k.markPod(ctx, pl.pod, string(content), 0, "", false)
}

// one carries out the step of one worker.
func (c *crewRound) one(ctx context.Context, drainer drain.Drainer, pl *place) error {
	s := &pl.crew.step
	w, _ := c.engineWorker(pl)
	switch s.Verb {
	case crew.CreatePod:
		pod, sold := c.newCrewPod(pl, s.Marks)
		if !sold {
			*s = crew.Step{Worker: s.Worker, Phase: crew.Stopped, Verb: crew.Wait, Why: crew.NothingSold}
			return nil
		}
		return c.k.createPod(ctx, c.p, pod)
	case crew.DeletePod:
		return c.deletePod(ctx, pl, s.Within)
	case crew.Drain:
		if drainer == nil {
			return nil // the condition says why
		}
		return drainer.Drain(ctx, w, s.Within)
	case crew.Undrain:
		if reverser, can := drainer.(drain.Reverser); can {
			return reverser.Undrain(ctx, w)
		}
	}
	return nil
}
