package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actyarn "github.com/waterline-io/waterline/internal/act/yarn"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
	"github.com/waterline-io/waterline/internal/yarn"
)

// errExclude is the error of a step whose entry in the exclude file failed, which has a condition of its own.
var errExclude = errors.New("the exclude file was not changed")

// rmTimeout bounds the calls of one round to the ResourceManager. A ResourceManager that hangs must not delay workers
// that have to stop in the next round.
const rmTimeout = 15 * time.Second

// parallel is how many steps are carried out at a time.
const parallel = 8

// act decides, and carries out the steps. A step that fails is decided again in the next round.
func (r *round) act(ctx context.Context) {
	steps := pool.Next(&r.in)
	r.k.readLabels = pool.ReadLabels(&r.in, steps)
	r.k.actor.Begin()
	pool.Pace(&r.in, steps, r.k.actor.Most(r.now))
	for i, pl := range r.places {
		pl.step = steps[i]
	}
	r.tally = pool.Count(&r.in, steps)
	r.rest()
	changed, busy, idle := r.toMark()
	r.all(pool.DeletePod, func(pl *place) {
		if pl.err = r.mark(ctx, pl); pl.err == nil {
			pl.err = r.deletePod(ctx, pl, pl.step.Within)
		}
	})
	changed = slices.DeleteFunc(changed, func(pl *place) bool { return pl.step.Verb == pool.DeletePod })
	for _, pl := range inTime(rmTimeout, &r.k.markTurn, changed, func(pl *place) { pl.err = r.mark(ctx, pl) }, nil) {
		pl.step.Leave(pl.worker.Pod)
	}
	telling, cancel := context.WithTimeout(ctx, rmTimeout)
	r.label(telling)
	r.exclude(telling)
	cancel()
	r.resize(ctx)
	r.template() // once, because pods are made in parallel
	r.createMissing(ctx)
	r.markIdle(ctx, append(busy, idle...))
	r.account()
}

// createMissing makes the pods of workers, as far as there is time.
func (r *round) createMissing(ctx context.Context) {
	missing := r.those(func(pl *place) bool { return pl.does(pool.CreatePod) })
	for _, pl := range r.create(missing, func(pl *place) { pl.err = r.createPod(ctx, pl) }) {
		pl.step.Verb = pool.Wait
	}
}

// account counts the steps that were carried out, and reports those that failed. No step failed where pods are not made
// because nothing is sold: Ready says it.
func (r *round) account() {
	unsold := false
	for _, pl := range r.places {
		unsold = unsold || pl.step.Why == pool.NothingSold
		if pl.step.Verb != pool.Wait {
			r.k.count(pl.step.Verb, pl.err)
		}
		switch {
		case errors.Is(pl.err, errExclude):
		case pl.step.Verb == crew.Drain || pl.step.Verb == crew.Undrain:
			r.t.add(v1alpha1.ConditionDrainRefused, "DrainFailed", pl.err)
		default:
			r.t.add(v1alpha1.ConditionStepsFailed, "StepFailed", pl.err)
		}
	}
	if unsold {
		r.t.add(v1alpha1.ConditionReady, "NothingSold", errors.New("pods of workers are not created: no policy in mode "+
			"Enforce sells CPU or memory, so they would be online pods; set mode: Enforce in a policy that has cpu or memory"))
	}
}

// all calls f for each place whose step has a verb and did not fail yet, a few at a time.
func (r *round) all(verb pool.Verb, f func(pl *place)) {
	inParallel(r.those(func(pl *place) bool { return pl.does(verb) }), f)
}

// those returns the places for which ok is true.
func (r *round) those(ok func(pl *place) bool) []*place {
	return slices.DeleteFunc(slices.Clone(r.places), func(pl *place) bool { return !ok(pl) })
}

// split returns the elements that are so, and the others.
func split[T any](all []T, is func(T) bool) (these, others []T) {
	for _, one := range all {
		if is(one) {
			these = append(these, one)
		} else {
			others = append(others, one)
		}
	}
	return these, others
}

// does reports whether the step of a place has a verb, and did not fail yet.
func (pl *place) does(verb pool.Verb) bool { return pl.step.Verb == verb && pl.err == nil }

// markIdle marks pods whose workers only began to run something, or run nothing any more, in the time of the pause
// after the round. When thousands do that at once, as at the end of a large job, nothing that has to shrink waits for
// it: the others are marked in later rounds.
func (r *round) markIdle(ctx context.Context, places []*place) {
	began := time.Now()
	places = slices.DeleteFunc(places, func(pl *place) bool { return pl.err != nil })
	inTime(pauseOf(len(r.places)), new(int), places, func(pl *place) { pl.err = r.mark(ctx, pl) }, nil)
	r.k.paused = time.Since(began)
}

// toMark returns the workers whose pods are to be marked, without those that are resized, which is marked just before:
// those with another mark, and those that only began to run something, or run nothing any more.
func (r *round) toMark() (changed, busy, idle []*place) {
	for _, pl := range r.places {
		if pl.step.Verb == pool.Resize {
			continue
		}
		m := r.marks(pl)
		switch {
		case m == nil:
		case *m != podMarks{pl.pod.marks, pl.pod.held, pl.pod.allowance, m.idle}:
			changed = append(changed, pl)
		case m.idle:
			idle = append(idle, pl)
		default:
			busy = append(busy, pl)
		}
	}
	return changed, busy, idle
}

// podMarks is what is written on a worker's pod.
type podMarks struct {
	marks     pool.Marks
	held      int64  // bytes of memory beyond what slack allows
	allowance string // what it may use
	idle      bool   // it runs nothing
}

// marks returns what a worker's pod is to have before its step is carried out; nil: it has that.
func (r *round) marks(pl *place) *podMarks {
	if pl.worker.Pod == nil {
		return nil
	}
	p := pl.pod
	want, has := podMarks{pl.step.Marks, pl.step.Held << 20, r.allowance(pl), pl.idle},
		podMarks{p.marks, p.held, p.allowance, p.idle}
	if !r.state.Known {
		want.held = has.held
	}
	if want.marks != has.marks && encode(want.marks) == encode(has.marks) { // rarely: that takes time
		want.marks = has.marks
	}
	if want == has {
		return nil
	}
	return &want
}

// mark writes the marks of a worker's pod before its step is carried out.
func (r *round) mark(ctx context.Context, pl *place) error {
	m := r.marks(pl)
	if m == nil {
		return nil
	}
	return r.k.markPod(ctx, pl.pod, encode(m.marks), m.held, m.allowance, m.idle)
}

// idleTime is the time without containers after which a worker counts as idle.
const idleTime = time.Minute

// rest finds the workers that run nothing. Others may evict their pods, which for the cluster autoscaler is to remove
// their nodes.
func (r *round) rest() {
	since := map[string]time.Time{}
	for _, pl := range r.places {
		if pl.pod == nil {
			continue
		}
		m, _ := pl.worker.Manager()
		begun, known := r.k.idle[pl.pod.uid]
		switch {
		case !r.state.Known || m == nil: // it stays what it was
			pl.idle = pl.pod.idle
		case m.Containers > 0:
			continue
		case !known:
			begun, known, pl.idle = r.now, true, pl.pod.idle // which the manager before found
		default:
			pl.idle = pl.pod.idle || r.now.Sub(begun) >= idleTime
		}
		if known {
			since[pl.pod.uid] = begun
		}
	}
	r.k.idle = since
}

// label adds the pool's label to the ResourceManager's store if it is missing, and labels hosts.
func (r *round) label(ctx context.Context) {
	if !r.state.Known {
		return
	}
	spec, rm := r.p.Spec.YARN.Label, r.k.observer.Cluster.RM
	if !r.state.Label && r.p.DeletionTimestamp == nil {
		err := rm.AddLabel(ctx, yarn.Label{Name: spec.Name, Exclusive: !spec.Shared})
		if err != nil {
			r.t.add(v1alpha1.ConditionLabelRefused, "LabelRefused", fmt.Errorf("node label %s could not be added, so no "+
				"worker starts; does yarn-site.xml of the ResourceManager set yarn.node-labels.enabled, and may user %q "+
				"administer the cluster (yarn.admin.acl)? %w", spec.Name, r.p.Spec.YARN.User, err))
		}
	}
	hosts := map[string]string{}
	for _, pl := range r.those(func(pl *place) bool { return pl.does(pool.LabelHost) }) {
		hosts[pl.labelled] = spec.Name
	}
	if len(hosts) == 0 {
		return
	}
	if err := rm.SetNodeLabels(ctx, hosts); err != nil {
		r.t.add(v1alpha1.ConditionLabelRefused, "HostsNotLabelled", fmt.Errorf("hosts could not be given the label: %w", err))
	}
}

// exclude writes all changes of the exclude file at once, and has it read.
func (r *round) exclude(ctx context.Context) {
	add, remove := map[string]time.Duration{}, map[string]bool{}
	var changed []*place
	for _, pl := range r.places {
		switch {
		case pl.does(pool.Exclude):
			add[pl.host], changed = pl.step.Within, append(changed, pl)
		case pl.does(pool.Include):
			remove[pl.host], changed = true, append(changed, pl)
		}
	}
	file, _, _ := r.excludeFile()
	if len(changed) == 0 || file == nil { // a pool that may not use the file decides nothing about it
		return
	}
	reason, err := r.k.actor.Exclude(ctx, &r.k.c.excludes, *file, add, remove)
	r.t.add(v1alpha1.ConditionExcludeFailed, reason, err)
	for _, pl := range changed {
		switch {
		case err != nil:
			pl.err = errExclude
		case pl.step.Verb == pool.Exclude:
			r.k.actor.Hear(pl.worker.Name, r.now.Add(pl.step.Within))
		}
	}
}

const slowResizes = "the administration protocol of the ResourceManager resizes nothing, so resizes of many workers " +
	"take longer; check spec.yarn.admins, and that its port can be reached"

// maxResizes is the number of workers that one call resizes. Their pods are marked before the call, and their deadlines
// begin with the decision, so consecutive calls follow within a second or two.
const maxResizes = 200

// growWithin bounds how long a round gives workers more. When thousands grow at once, as in the evening, what has to
// shrink meanwhile waits for that.
const growWithin = 2 * time.Second

// resize carries out all resizes, first of the workers that get less.
func (r *round) resize(ctx context.Context) {
	grow, shrink := split(r.those(func(pl *place) bool { return pl.does(pool.Resize) }), func(pl *place) bool {
		m, _ := pl.worker.Manager() // there is one, or it would not be resized
		return m.Total.Fits(pl.step.Size)
	})
	failed := r.resizeIn(ctx, rmTimeout, shrink, false)
	r.resizeIn(ctx, growWithin, grow, failed)
}

// resizeIn resizes workers until a time is over. It reports whether the administration protocol failed, in this round.
// Then those that were not marked yet are left to later rounds, which resize fewer, as are those for which there is no
// time.
func (r *round) resizeIn(ctx context.Context, most time.Duration, places []*place, failed bool) bool {
	began := time.Now()
	for some := range slices.Chunk(places, maxResizes) {
		left := some
		if !failed {
			left = inTime(most-time.Since(began), &r.k.resizeTurn, some, func(pl *place) { pl.err = r.mark(ctx, pl) }, nil)
		}
		for _, pl := range left {
			pl.step.Leave(pl.worker.Pod)
		}
		var all []*actyarn.Resize
		some = slices.DeleteFunc(some, func(pl *place) bool { return !pl.does(pool.Resize) })
		for _, pl := range some {
			m, _ := pl.worker.Manager()
			all = append(all, &actyarn.Resize{
				Worker: pl.worker.Name, ID: m.ID, From: m.Total, To: pl.step.Size, Deadline: pl.step.Deadline(r.now),
			})
		}
		if len(all) == 0 {
			continue
		}
		telling, cancel := context.WithTimeout(ctx, rmTimeout)
		err := r.k.actor.Resize(telling, r.now, all)
		cancel()
		if len(all) > actyarn.MaxSingle { // fewer say nothing about that protocol
			r.k.logOnce(ctx, slowResizes, err)
			failed = err != nil
		}
		for i, pl := range some {
			pl.err = all[i].Err
		}
	}
	return failed
}

// createPod makes the pod of a worker.
func (r *round) createPod(ctx context.Context, pl *place) error {
	newPod, without := r.newPod, pool.Terminated
	if r.crew != nil {
		newPod, without = r.crew.newCrewPod, crew.Stopped
	}
	pod, sold := newPod(pl, pl.step.Marks)
	if !sold {
		pl.step = pool.Step{Worker: pl.step.Worker, Phase: without, Verb: pool.Wait, Why: pool.NothingSold}
		return nil
	}
	return r.k.createPod(ctx, r.p, pod)
}

// deletePod deletes the pod of a worker, whose processes have some time to end.
func (r *round) deletePod(ctx context.Context, pl *place, within time.Duration) error {
	seconds := int64(within / time.Second)
	if pl.pod.deleting && pl.pod.grace <= seconds {
		return nil
	}
	return r.k.deletePod(ctx, pl.pod, seconds)
}
