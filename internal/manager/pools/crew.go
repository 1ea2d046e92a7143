package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
	"github.com/waterline-io/waterline/internal/decide/policy"
	"github.com/waterline-io/waterline/internal/drain"
	"github.com/waterline-io/waterline/internal/manager/pools/olap"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

const (
	// patience is how long a node's offer must stay below the requests of its bound pods before a worker of fixed size
	// drains. A drain cannot be undone, and the agent limits batch pods meanwhile.
	patience = time.Minute
	// recoverCrew is how long a coordinator must not list a worker as active before its pod is replaced. It gives such a
	// worker no work. A query of which the worker still runs a part fails.
	recoverCrew = 5 * time.Minute
	// lookWithin bounds how long a coordinator or workers that do not answer delay a round.
	lookWithin = 5 * time.Second
	// restFor is how long the state "active" of a worker stays valid if the worker needs no step. Otherwise each round
	// would ask hundreds of workers.
	restFor = 10 * time.Second
)

// crewRound is one round of a pool whose workers have one size.
type crewRound struct {
	*round
	kind *olap.Kind
	in   crew.Input
}

// crewSeen is what a round observed of a worker of fixed size, besides its [place].
type crewSeen struct {
	status drain.Status
	silent error // why its status is not known
}

// crewEngine is the client of the engine of a pool, what it was made from, and what it said last.
type crewEngine struct {
	spec    v1alpha1.WorkerPoolSpec
	auth    drain.Auth
	drainer drain.Drainer
	dialer  *crewDialer
	heard   map[string]crewHeard // by UID of a worker's pod
}

// crewHeard is when a worker was asked last, and what came of it. Its zero value: it was not.
type crewHeard struct {
	at     time.Time
	active bool
	silent error // why it did not answer
}

// unasked is the state of a worker that runs and for which a round had no time.
const unasked = drain.State(crew.Unasked)

// kind returns how the workers of the pool run if they have one size. It returns nil for YARN, whose workers change
// their size: the rest of this package, except what begins with crew, is about them.
func (r *round) kind() *olap.Kind {
	return olap.Of(&r.p.Spec, r.read.GracePeriod, r.read.Drain, r.read.Floor.Memory)
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
	c := &crewRound{round: r, kind: kind}
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
	d, err := newDialer(k.namespace, k.c.o.Reach[k.namespace])
	if err != nil {
		c.t.add(v1alpha1.ConditionCoordinatorUnreachable, notAllowed, err)
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
	connects := &crewDialer{dialer: d}
	if err == nil {
		connected := auth
		connected.Dial = connects.dial
		drainer, err = c.kind.Drainer(connected)
	}
	if err != nil {
		k.secretRead = time.Time{} // it may be corrected now
		c.t.add(v1alpha1.ConditionCoordinatorUnreachable, "BadSecret", err)
		return nil
	}
	k.crew = &crewEngine{*c.p.Spec.DeepCopy(), auth, drainer, connects, nil}
	return drainer
}

// observe builds the input of the decision.
func (c *crewRound) observe(ctx context.Context, drainer drain.Drainer) {
	c.list()
	tight := c.k.c.tight(c.nodes)
	c.recall()
	for _, pl := range c.places {
		c.fill(pl, nil)
	}
	c.in = crew.Input{Now: c.now, Settings: c.crewSettings(c.kind), Known: drainer != nil}
	if drainer != nil {
		c.ask(ctx, drainer)
	}
	for _, pl := range c.places {
		w := crew.Worker{Worker: *pl.worker, State: crew.State(pl.crew.status.State)}
		if pl.pod != nil {
			w.Tight = tight[pl.pod.uid]
		}
		c.in.Workers = append(c.in.Workers, w)
	}
	_, c.in.Settings.Reversible = drainer.(drain.Reverser)
}

// ask asks the engine about the workers that run. Of those for which there is no time, what was known stays.
func (c *crewRound) ask(ctx context.Context, drainer drain.Drainer) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	c.k.crew.dialer.know(c.addresses())
	inParallel(c.inTurn(c.places), func(pl *place) {
		w, runs := c.engineWorker(pl)
		switch {
		case runs && c.rests(pl):
			pl.crew.status = drain.Status{State: drain.Active, Work: drain.UnknownWork}
		case runs:
			pl.crew = c.askOne(ctx, drainer, pl, w)
		}
	})
	heard := map[string]crewHeard{}
	for _, pl := range c.places {
		if _, runs := c.engineWorker(pl); !runs {
			continue
		}
		h, state, err := c.k.crew.heard[pl.pod.uid], pl.crew.status.State, pl.crew.silent
		unreachable := errors.Is(err, drain.ErrCoordinator)
		if state != unasked && !c.rests(pl) {
			if h = (crewHeard{at: c.now, active: state == drain.Active}); !unreachable {
				h.silent = err
			}
		}
		heard[pl.pod.uid] = h
		if unreachable {
			c.in.Known = false
			reason := "NoAnswer"
			if isNotAllowed(err) {
				reason = notAllowed
			}
			c.t.add(v1alpha1.ConditionCoordinatorUnreachable, reason, fmt.Errorf("the coordinator of %s does not say which "+
				"workers it has; workers stay as they are, and stop at their ends; check its address and user in %s, and that "+
				"the manager can reach it: %w", c.kind.Engine, c.kind.Field, err))
		}
	}
	c.k.crew.heard = heard
}

// askOne asks the engine about one worker.
func (c *crewRound) askOne(ctx context.Context, drainer drain.Drainer, pl *place, w drain.Worker) crewSeen {
	if ctx.Err() == nil {
		status, err := drainer.Status(ctx, w)
		if err == nil || ctx.Err() == nil || errors.Is(err, drain.ErrCoordinator) {
			return crewSeen{status, err}
		} // the time of the round was over before its own
	}
	return crewSeen{drain.Status{State: unasked}, c.k.crew.heard[pl.pod.uid].silent}
}

// inTurn orders places: first workers that answered, then those that did not answer for the longest time, and of each
// those first that were not asked for the longest time. So hung ones, of which the time of a round is too short for
// all, do not keep others from their turn.
func (c *crewRound) inTurn(places []*place) []*place {
	silent := func(h crewHeard) (last time.Time) {
		if h.silent != nil {
			last = h.at
		}
		return last
	}
	heard := func(pl *place) (h crewHeard) {
		if pl.pod != nil {
			h = c.k.crew.heard[pl.pod.uid]
		}
		return h
	}
	places = slices.Clone(places)
	if c.k.crew == nil { // there is no client of the engine, so nobody was asked
		return places
	}
	slices.SortStableFunc(places, func(a, b *place) int {
		x, y := heard(a), heard(b)
		return cmp.Or(silent(x).Compare(silent(y)), x.at.Compare(y.at))
	})
	return places
}

// rests reports whether a worker was active within restFor and needs no step.
func (c *crewRound) rests(pl *place) bool {
	h := c.k.crew.heard[pl.pod.uid]
	return h.active && c.now.Sub(h.at) < restFor && pl.worker.Pod.Started.Before(h.at) && !pl.worker.Leaves() &&
		pl.pod.marks.Asked.IsZero()
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
	for _, pl := range c.places {
		if _, runs := c.engineWorker(pl); runs {
			all[c.address(pl)] = true
		}
	}
	return all
}

// tight returns the pods, by UID, of workers of fixed size that must stop for want of room on their nodes, of all
// pools.
func (c *Controller) tight(nodes map[string]Node) map[string]bool {
	seats := map[string][]crew.Seat{}
	for _, pods := range c.pods {
		pods.Each(func(_ string, p podRow) {
			if p.crew && p.owner != "" && p.node != "" && !p.over {
				seats[p.node] = append(seats[p.node], crew.Seat{
					Worker: p.uid, Born: p.started, Request: p.request, Leaves: p.deleting || !p.marks.Leaving.IsZero(),
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

// act decides, and carries out the steps. A step that fails, or for which there is no time, is decided again in a later
// round.
func (c *crewRound) act(ctx context.Context, drainer drain.Drainer) {
	steps := crew.Next(&c.in)
	c.tally = crew.Count(&c.in, steps)
	for i, pl := range c.places {
		pl.step = steps[i]
	}
	inParallel(c.places, func(pl *place) { pl.err = c.mark(ctx, pl) })
	for _, verb := range []pool.Verb{crew.DeletePod, crew.Drain, crew.Undrain} {
		acting, cancel := context.WithTimeout(ctx, rmTimeout)
		places := c.inTurn(c.those(func(pl *place) bool { return pl.does(verb) }))
		left := inTime(rmTimeout, new(int), places, func(pl *place) { pl.err = c.one(acting, drainer, pl) }, nil)
		for _, pl := range left {
			pl.step.Verb = pool.Wait
		}
		cancel()
	}
	c.createMissing(ctx)
	c.account()
}

// mark writes the marks of a worker's pod before its step is carried out.
func (c *crewRound) mark(ctx context.Context, pl *place) error {
	content := encode(pl.step.Marks)
	if pl.worker.Pod == nil || content == pl.pod.raw {
		return nil
	}
	return c.k.markPod(ctx, pl.pod, content, 0, "", false)
}

// one carries out the step of one worker that has a pod.
func (c *crewRound) one(ctx context.Context, drainer drain.Drainer, pl *place) error {
	s := &pl.step
	w, _ := c.engineWorker(pl)
	switch s.Verb {
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

// newCrewPod returns the pod of a worker of one size, and whether a policy sells resources that it can request.
func (c *crewRound) newCrewPod(pl *place, marks pool.Marks) (batch *corev1.Pod, sold bool) {
	p, w := c.fromTemplate(pl, encode(marks), c.kind.Work)
	w.Args = append(w.Args, c.kind.Args...)
	w.Env = append([]corev1.EnvVar{{Name: olap.HostVariable, Value: pl.host}}, w.Env...)
	w.Ports = append([]corev1.ContainerPort{{Name: "web", ContainerPort: c.kind.Port}}, w.Ports...)
	size := kube.ResourceList(c.read.Floor)
	w.Resources = corev1.ResourceRequirements{Requests: size, Limits: size.DeepCopy()}
	setHook(w, c.read.Drain, marks.End, c.kind.Hook+waitUntil)
	// A worker that has drained ends with code 0, and must not start again. One that crashed may.
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	conf, catalogs := c.kind.Volumes(objectName(c.p))
	if conf != nil {
		mount(p, "conf", c.kind.Dir, conf)
	}
	if catalogs != nil {
		mount(p, "catalogs", c.kind.CatalogsDir, catalogs)
	}
	return c.k.c.o.Batch(p)
}
