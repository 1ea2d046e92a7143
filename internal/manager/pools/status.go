package pools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool/crew"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// phasesEvery is the least time between two writes of a status for changes that only people read. Some worker changes
	// in each round.
	phasesEvery = 4 * time.Second
	// numbersEvery is the same for numbers.
	numbersEvery = 10 * time.Second
	// maxMessage bounds the message of a worker, and maxVersion the version of Hadoop. The API server would refuse the
	// whole status of a pool for one that is longer.
	maxMessage, maxVersion = 1024, 64
)

// report writes what came out of a round into the status of the pool, and removes the finalizer of a pool whose workers
// are gone.
func (k *keeper) report(ctx context.Context, now time.Time, p *v1alpha1.WorkerPool, r *round, t *problems) {
	next := *k.status // with its own conditions; nothing changes what else it points to
	next.Conditions = slices.Clone(next.Conditions)
	next.ObservedGeneration = p.Generation
	gone := false
	t.add(v1alpha1.ConditionStepsFailed, "ApplyFailed", k.unreported)
	if r != nil {
		gone = r.summarize(&next)
		if !r.invalid {
			next.ValidSpec = specText(&p.Spec)
		}
		next.Selector = v1alpha1.LabelPool + "=" + p.Name
		next.Replicas = int32(len(r.those(func(pl *place) bool { return pl.pod != nil && !pl.pod.over })))
	}
	k.conditions(&next, p, r, t)
	k.warn(ctx, p, t)
	if p.DeletionTimestamp != nil && gone {
		k.logOnce(ctx, "labels of a deleted pool's hosts stay in the ResourceManager; remove them with "+
			"yarn rmadmin -replaceLabelsOnNode", r.removeLabels(ctx))
		k.logOnce(ctx, "removing the finalizer of a deleted pool failed", k.release(ctx, p))
		return
	}
	if r != nil {
		k.show(r, &next)
	}
	k.takeGone(now, p, &next)
	k.status = &next
	shown := shownOf(&next)
	next.Reports = shown.Reports
	since := now.Sub(k.written)
	if same(&next, k.saved, withoutNothing) && shows(&p.Status, shown) ||
		since < numbersEvery && same(&next, k.saved, withoutNumbers) ||
		since < phasesEvery && same(&next, k.saved, withoutPhases) {
		return
	}
	// The reports first: a status without them is one of a manager that was killed between the two. One that cannot be
	// written is a condition of the next status.
	k.unreported = k.writeReports(ctx, p, &next, int(shown.Reports))
	err := k.writeStatus(ctx, p, shown)
	if k.logOnce(ctx, "the status of a pool could not be written", err); err != nil {
		return
	}
	if k.written = now; k.unreported == nil {
		saved := next
		k.saved = &saved
	}
}

// shows reports whether the API has a status as it was written. The API server drops the valid spec if the definitions
// are older than this manager, and would do so each time.
func shows(api, written *v1alpha1.WorkerPoolStatus) bool {
	kept := *written
	kept.ValidSpec = api.ValidSpec
	return equality.Semantic.DeepEqual(&kept, api)
}

// maxSpec bounds the spec that a status keeps. An object of the API may have a megabyte.
const maxSpec = 256 << 10

// specText returns a spec as the status keeps it; "" if it is too long.
func specText(s *v1alpha1.WorkerPoolSpec) string {
	if text := encode(s); len(text) <= maxSpec {
		return text
	}
	return ""
}

// without takes from a status, and from each of its workers, what does not count in a comparison.
type without struct {
	status func(s *v1alpha1.WorkerPoolStatus)
	worker func(w *v1alpha1.WorkerStatus)
}

var (
	withoutNothing = without{func(*v1alpha1.WorkerPoolStatus) {}, func(*v1alpha1.WorkerStatus) {}}
	// withoutNumbers leaves out what changes all the time.
	withoutNumbers = without{
		func(s *v1alpha1.WorkerPoolStatus) {
			s.Used, s.Total, s.Containers, s.Next = v1alpha1.YARNResources{}, v1alpha1.YARNResources{}, 0, nil
		},
		func(w *v1alpha1.WorkerStatus) { w.Total, w.Containers = nil, 0 },
	}
	// withoutPhases leaves the part of a status that the next replica has to know: pods that are there, the ends and the
	// failed attempts of earlier ones, and since when the ResourceManager is active; and the conditions.
	withoutPhases = without{
		func(s *v1alpha1.WorkerPoolStatus) {
			withoutNumbers.status(s)
			s.Active, s.Leaving, s.Wanted, s.Replicas = 0, 0, 0, 0
			for i := range s.Conditions {
				s.Conditions[i].Message = "" // of Ready: how many are active
			}
		},
		func(w *v1alpha1.WorkerStatus) {
			*w = v1alpha1.WorkerStatus{Name: w.Name, Node: w.Node, Pod: w.Pod, Ended: w.Ended, Attempts: w.Attempts}
		},
	}
)

// same reports whether two statuses are equal without some things. It is called in each round, with thousands of
// workers, so it copies none of them.
func same(a, b *v1alpha1.WorkerPoolStatus, w without) bool {
	if !slices.EqualFunc(a.Workers, b.Workers, func(x, y v1alpha1.WorkerStatus) bool {
		w.worker(&x)
		w.worker(&y)
		return sameWorker(x, y)
	}) {
		return false
	}
	x, y := *a, *b
	for _, s := range []*v1alpha1.WorkerPoolStatus{&x, &y} {
		s.Workers, s.Conditions = nil, slices.Clone(s.Conditions)
		w.status(s)
	}
	return equality.Semantic.DeepEqual(&x, &y)
}

// sameWorker reports whether the states of two workers are equal.
func sameWorker(a, b v1alpha1.WorkerStatus) bool {
	if !a.Since.Equal(&b.Since) || !a.Until.Equal(b.Until) || !a.Ended.Equal(b.Ended) ||
		(a.Total == nil) != (b.Total == nil) ||
		a.Total != nil && (a.Total.VCores != b.Total.VCores || !a.Total.Memory.Equal(b.Total.Memory)) {
		return false
	}
	b.Since, b.Until, b.Ended, b.Total = a.Since, a.Until, a.Ended, a.Total
	return a == b
}

// summarize writes the workers into a status. It returns whether none has anything left.
func (r *round) summarize(s *v1alpha1.WorkerPoolStatus) (gone bool) {
	if s.Next, s.Containers, s.Workers = r.next(), 0, nil; r.crew != nil {
		s.ResourceManager = nil
	}
	tally, one := r.tally, pool.Size{MemoryMiB: yarn.MiB(r.read.Floor.Memory), VCores: yarn.VCores(r.read.Floor.CPU, 1)}
	var total, used pool.Size
	decided := map[string]bool{}
	gone = true
	for _, pl := range r.places {
		decided[pl.worker.Name] = true
		row := r.row(pl, &pl.row)
		switch m, _ := pl.worker.Manager(); {
		case m != nil:
			total, used = total.Plus(m.Total), used.Plus(m.Used)
			row.Total, row.Containers = amountOf(m.Total), int32(m.Containers)
			s.Containers += row.Containers
		case r.crew != nil && pl.step.Phase == pool.Active:
			total, row.Total = total.Plus(one), amountOf(one)
		}
		stopped := pl.pod == nil && (pl.step.Phase == pool.Terminated || pl.step.Phase == crew.Stopped)
		// Without a ResourceManager, a worker is only [pool.Terminated] when its pool is not to wait for one any more.
		idle := stopped && (!pl.worker.Excluded || !r.state.Known)
		gone = gone && idle && !r.shown(pl)
		if idle && pl.index < 0 || stopped && row.Ended == nil {
			continue // it is not the pool's any more, or never ran
		}
		s.Workers = append(s.Workers, row)
	}
	for name := range r.unsettled { // workers that were left alone in this round
		row, known := r.before[name]
		if decided[name] || !known || !r.unsettled[name] {
			continue
		}
		s.Workers, gone = append(s.Workers, *row), false
		tally.Left(pool.Phase(row.Phase))
		if s.Containers += row.Containers; row.Total != nil {
			total = total.Plus(pool.Size{MemoryMiB: yarn.MiB(row.Total.Memory.Value()), VCores: row.Total.VCores})
		}
	}
	slices.SortFunc(s.Workers, func(a, b v1alpha1.WorkerStatus) int { return strings.Compare(a.Name, b.Name) })
	s.Wanted, s.Active, s.Leaving = int32(tally.Wanted), int32(tally.Active), int32(tally.Leaving)
	s.Total, s.Used = *amountOf(total), *amountOf(used)
	return gone
}

// forgetTime is the longest time that a pool waits for the ResourceManager to remove the NodeManager of a pod that is
// gone. By default, a NodeManager is lost after 10 minutes (yarn.nm.liveness-monitor.expiry-interval-ms).
const forgetTime = 12 * time.Minute

// shown reports whether the ResourceManager still shows a NodeManager whose pod has just gone, as after a kill -9. If
// its host lost the label now, containers of the default partition would be placed there, and never start.
func (r *round) shown(pl *place) bool {
	m, _ := pl.worker.Manager()
	return m != nil && r.now.Sub(pl.worker.Ended) < forgetTime
}

func amountOf(s pool.Size) *v1alpha1.YARNResources {
	return &v1alpha1.YARNResources{
		Memory: *resource.NewQuantity(s.MemoryMiB<<20, resource.BinarySI), VCores: s.VCores,
	}
}

// row returns the status of one worker.
func (r *round) row(pl *place, was *v1alpha1.WorkerStatus) v1alpha1.WorkerStatus {
	step := &pl.step
	row := v1alpha1.WorkerStatus{
		Name: step.Worker, Node: pl.node, Phase: v1alpha1.WorkerPhase(step.Phase), Reason: string(step.Why),
		Message: message(pl), Since: second(r.now), Attempts: int32(pl.worker.Attempts),
	}
	if was.Phase == row.Phase {
		row.Since = was.Since
	}
	if pl.worker.Pod != nil {
		row.Pod = pl.pod.uid
	}
	if !pl.worker.Ended.IsZero() {
		ended := second(pl.worker.Ended)
		row.Ended = &ended
	}
	if !step.Marks.Leaving.IsZero() && step.Phase == pool.Draining && step.Within > 0 {
		until := second(r.now.Add(step.Within))
		row.Until = &until
	}
	switch {
	case step.Verb == pool.DeletePod && step.Failed && r.counts(pl):
		row.Attempts++
	case r.crew != nil && step.Phase == pool.Active,
		r.crew == nil && step.Phase == pool.Active && pool.Proven(r.now, pl.worker.Pod.Started),
		r.crew == nil && step.Verb == pool.DeletePod && !step.Failed && r.counts(pl):
		row.Attempts = 0
	}
	if row.Message == "" && row.Attempts > 0 {
		row.Message = was.Message // why the last one failed, which nobody shows any more
	}
	row.Message = kube.Shorten(row.Message, maxMessage) // health reports and host names are of any length
	return row
}

// message returns details of a worker for people, besides its phase and reason.
func message(pl *place) string {
	s := &pl.step
	switch {
	case s.Why == pool.HostNameMismatch:
		return "its NodeManager registered as " + s.Text
	case s.Text != "":
		return s.Text
	case pl.worker.Pod != nil && (s.Why == pool.PodStarting || s.Why == pool.NotRegistered) && pl.pod.waits != "":
		return pl.pod.waits
	case pl.crew.silent != nil:
		return pl.crew.silent.Error()
	case s.Phase == pool.Draining && pl.crew.status.Work > 0:
		return fmt.Sprintf("%d queries", pl.crew.status.Work)
	case s.Phase == pool.Registering || s.Phase == pool.Lost:
		return pl.crew.status.Text
	}
	return ""
}

// counts reports whether the end of a worker's pod counts in this round: it was told to end, for the first time. The
// pod may not be seen to end for some rounds more.
func (r *round) counts(pl *place) bool {
	if pl.worker.Pod == nil || pl.pod.deleting || pl.err != nil || r.k.counted[pl.pod.uid] {
		return false
	}
	if r.k.counted == nil {
		r.k.counted = map[string]bool{}
	}
	r.k.counted[pl.pod.uid] = true
	return true
}

// conditions sets the conditions of a status. Unchanged ones keep the time of their last change.
func (k *keeper) conditions(s *v1alpha1.WorkerPoolStatus, p *v1alpha1.WorkerPool, r *round, t *problems) {
	if r != nil {
		var given []string
		for _, w := range s.Workers {
			if pool.Phase(w.Phase) == pool.Quarantined {
				given = append(given, strings.TrimSuffix(fmt.Sprintf("%s: %s, %s", w.Name, w.Reason, w.Message), ", "))
			}
		}
		if len(given) > 0 {
			t.add(v1alpha1.ConditionQuarantined, "GivenUp", fmt.Errorf("workers did not register under their names, or "+
				"were unhealthy again and again, and are given up for a while, which doubles each time: %s; read the logs of "+
				"their pods, and check that the name of a worker resolves to its address and back%s",
				kube.Shorten(strings.Join(given, ", "), 2000), r.outdated()))
		}
	}
	now := second(time.Now()) // as the API has it, so that the two compare equal
	first := ""               // the problem that may cause the others
	for _, kind := range []string{
		v1alpha1.ConditionRMUnreachable, v1alpha1.ConditionCoordinatorUnreachable, v1alpha1.ConditionDrainRefused,
		v1alpha1.ConditionLabelRefused, v1alpha1.ConditionExcludeFailed, v1alpha1.ConditionNMUnreachable,
		v1alpha1.ConditionDemandUnknown, v1alpha1.ConditionPodsRefused, v1alpha1.ConditionStepsFailed,
		v1alpha1.ConditionQuarantined,
	} {
		problem, found := t.all[kind]
		if !found {
			meta.RemoveStatusCondition(&s.Conditions, kind)
			continue
		}
		first = cmp.Or(first, kind)
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: problem.reason, Message: kube.Shorten(problem.message(), 4096),
			ObservedGeneration: p.Generation, LastTransitionTime: now,
		})
	}
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
		LastTransitionTime: now,
	}
	switch invalid, bad := t.all[v1alpha1.ConditionReady]; {
	case bad:
		ready.Reason, ready.Message = invalid.reason, kube.Shorten(invalid.message(), 4096)
	case first != "":
		ready.Reason, ready.Message = first, "See the condition "+first+"."
	case p.DeletionTimestamp != nil:
		ready.Reason = "Deleted"
		ready.Message = "The pool is deleted when its workers have drained."
	case s.Active < s.Wanted:
		ready.Reason = "WorkersStarting"
		ready.Message = fmt.Sprintf("%d of %d workers are active.", s.Active, s.Wanted)
	case s.Wanted == 0 && r != nil && !r.opening.Open:
		ready.Status, ready.Reason = metav1.ConditionTrue, "WindowClosed"
		ready.Message = "No window is open, so no worker is to run."
	case s.Wanted == 0 && r != nil && r.in.Demand.Follow:
		ready.Status, ready.Reason = metav1.ConditionTrue, "NoDemand"
		ready.Message = "No application waits for workers or runs on them."
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, "AllActive"
		ready.Message = fmt.Sprintf("All %d workers that are to run now are active", s.Wanted) + r.outdated() + "."
	}
	meta.SetStatusCondition(&s.Conditions, ready)
}

// outdated says how many workers wait for a pod of the present spec; "": none, or that is not known.
func (r *round) outdated() string {
	if r == nil || r.tally.Outdated == 0 {
		return ""
	}
	return fmt.Sprintf("; pods of an earlier spec that wait to be replaced: %d", r.tally.Outdated)
}

// warn writes an event for each problem that is new.
func (k *keeper) warn(ctx context.Context, p *v1alpha1.WorkerPool, t *problems) {
	for kind := range k.warned {
		if _, still := t.all[kind]; !still {
			delete(k.warned, kind)
		}
	}
	for kind, problem := range t.all {
		if k.warned[kind] == problem.reason {
			continue
		}
		about := corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		}
		message := kube.Shorten(problem.message(), 1000)
		writing, cancel := context.WithTimeout(ctx, apiTimeout)
		err := actkube.Warn(writing, k.c.o.Core, actkube.Manager(k.c.o.Identity), about, problem.reason, message,
			string(p.UID)+kind+problem.reason+time.Now().UTC().Format("2006-01-02T15"))
		cancel()
		if k.logOnce(ctx, "an event about a pool could not be written", err); err == nil {
			k.warned[kind] = problem.reason
		}
	}
}

// removeLabels removes the label from the hosts of a pool whose workers are gone.
func (r *round) removeLabels(ctx context.Context) error {
	if r.crew != nil {
		return nil // it leaves nothing behind
	}
	if !r.state.Known {
		return errors.Join(errors.New("no ResourceManager answers"), r.unexclude())
	}
	ctx, cancel := context.WithTimeout(ctx, rmTimeout)
	defer cancel()
	hosts := map[string]string{}
	for _, pl := range r.places {
		if pl.worker.Label == r.p.Spec.YARN.Label.Name {
			hosts[pl.labelled] = ""
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	return r.k.observer.Cluster.RM.SetNodeLabels(ctx, hosts)
}

// unexclude takes the hosts of the pool out of the exclude file, which no ResourceManager can be told to read.
func (r *round) unexclude() error {
	hosts := map[string]bool{}
	for _, pl := range r.places {
		if r.state.Excluded[pl.host] {
			hosts[pl.host] = true
		}
	}
	file, _, _ := r.excludeFile()
	if len(hosts) == 0 || file == nil {
		return nil
	}
	_, err := r.k.c.excludes.Edit(*file, nil, hosts)
	return err
}

// writeStatus writes a status by a merge patch that also removes what the status no longer has.
func (k *keeper) writeStatus(ctx context.Context, p *v1alpha1.WorkerPool, s *v1alpha1.WorkerPoolStatus) error {
	return k.patch(ctx, k.c.o.Custom, "writing the status", "workerpools", p.Name, map[string]any{
		"metadata": map[string]any{"uid": p.UID}, // a new pool of the same name is a conflict
		"status": map[string]any{
			"observedGeneration": s.ObservedGeneration, "replicas": s.Replicas, "selector": s.Selector,
			"reports": s.Reports, "wanted": s.Wanted, "active": s.Active, "leaving": s.Leaving,
			"containers": s.Containers, "total": s.Total, "used": s.Used, "workers": s.Workers, "conditions": s.Conditions,
			"resourceManager": s.ResourceManager, "next": s.Next, "validSpec": s.ValidSpec,
		},
	}, "status")
}
