package pools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actyarn "github.com/waterline-io/waterline/internal/act/yarn"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/observe/kube"
	observeyarn "github.com/waterline-io/waterline/internal/observe/yarn"
	"github.com/waterline-io/waterline/internal/yarn"
)

// keeper carries out one pool, in rounds.
type keeper struct {
	c               *Controller
	namespace, name string
	log             *slog.Logger
	wake            chan struct{}

	// The rest belongs to the goroutine of run.
	uid        types.UID                  // of the pool that the rest is about
	status     *v1alpha1.WorkerPoolStatus // with all workers, as it is or will be in the API
	saved      *v1alpha1.WorkerPoolStatus // the same, as it was written last
	reports    []string                   // the content of the pool's reports
	unreported error                      // why they could not be written last; nil: they were
	written    time.Time                  // when the status was written last
	observer   observeyarn.Observer       // of the YARN cluster
	actor      actyarn.Actor              // the same
	endpoint   yarn.Endpoint              // that the clients of the two are made for
	readLabels bool                       // the labels of nodes are to be read in the next round
	crew       *crewEngine                // the same for a pool whose workers have one size
	unprepared error                      // why the objects beside the pods are not as they should be; nil: they are
	applied    string                     // what the objects beside the pods were made from
	secret     map[string][]byte          // of the pool, as read last
	secretName string
	secretRead time.Time
	idle       map[string]time.Time // by UID of pods of workers that run nothing: since when
	givenUp    map[string]bool      // workers that were given up when the spec changed last, and did not work since
	refused    refusal              // of pods by the API server
	createTurn int                  // see inTime
	markTurn   int
	resizeTurn int
	starts     map[string]start        // by UID of a pod: when its worker was started
	counted    map[string]bool         // UIDs of pods whose end counts among the attempts of their workers already
	unsettled  map[string]time.Time    // by worker: since when what the ResourceManager shows of it is not true
	warned     map[string]string       // by condition: what the last event said
	logged     map[string]string       // by message: the error in the log
	watched    map[string]pool.History // by node: what it had for workers
	workers    int                     // of the round before
	paused     time.Duration           // of the pause after the last round, in which pods were marked
	demand     demand                  // of applications
	gone       []guardlog.Gone         // pods of workers whose guards' words are not written down yet
	goneAfter  time.Time               // when that may be tried
	causes     map[string]cause        // by pod

	mu    sync.Mutex
	shown shown // for the metrics
}

func newKeeper(c *Controller, namespace, name string) *keeper {
	return &keeper{
		c: c, namespace: namespace, name: name, wake: make(chan struct{}, 1),
		log: c.o.Log.With("pool", namespace+"/"+name), logged: map[string]string{}, saved: &v1alpha1.WorkerPoolStatus{},
	}
}

func (k *keeper) key() string { return k.namespace + "/" + k.name }

// run does rounds until the context ends or the pool is gone.
func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		if !k.round(ctx) {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(pauseOf(k.workers) - k.paused):
		}
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-time.After(roundInterval - time.Since(began)):
		}
	}
}

// pauseOf returns the least time between two rounds of a pool with so many workers.
func pauseOf(workers int) time.Duration {
	return min(max(roundPause, time.Duration(workers)*pausePerWorker), maxPause)
}

// logOnce logs an error that the status cannot show. The same error is logged once until the next success.
func (k *keeper) logOnce(ctx context.Context, message string, err error) {
	switch {
	case err == nil:
		delete(k.logged, message)
	case ctx.Err() == nil && k.logged[message] != err.Error():
		k.logged[message] = err.Error()
		k.log.Warn(message, "err", err)
	}
}

// round reads, decides and acts once. It returns false if the pool is gone.
func (k *keeper) round(ctx context.Context) bool {
	p, there := k.c.pools[k.namespace].Get(k.key())
	if !there {
		return false
	}
	now := time.Now()
	k.paused = 0
	nodes, fresh := k.c.o.Nodes()
	if !fresh || !k.c.synced(k.namespace, now) {
		if p.DeletionTimestamp != nil {
			k.logOnce(ctx, "removing the finalizer of a pool in a deleted namespace failed", k.releaseWithNamespace(ctx, p))
		}
		if k.c.pods[k.namespace].Fresh(now, settleTime) {
			k.logOnce(ctx, "workers whose end has come could not be ended", k.endOver(ctx, now, p))
		}
		return true // old data decides nothing else
	}
	if k.uid != p.UID { // also if another pool of the same name follows at once
		status, err := k.readReports(ctx, p)
		if k.logOnce(ctx, "the workers of a pool could not be read", err); err != nil {
			return true
		}
		k.uid, k.status, k.saved, k.warned = p.UID, status, status.DeepCopy(), map[string]string{}
		cluster := k.observer.Cluster // the rest that these know is of another pool
		k.observer, k.actor = observeyarn.Observer{Cluster: cluster}, actyarn.Actor{Cluster: cluster}
		k.gone, k.causes = nil, nil
	}
	var t problems
	used, read, err := k.usable(p)
	if err != nil {
		t.add(v1alpha1.ConditionReady, "Invalid", err)
	}
	if used == nil {
		k.endUnread(ctx, now, p, &t)
		k.report(ctx, now, p, nil, &t)
		return true
	}
	// The finalizer keeps the pool until its workers are gone.
	switch has := slices.Contains(p.Finalizers, v1alpha1.FinalizerPool); {
	case has:
	case p.DeletionTimestamp != nil:
		return true // its workers are gone
	default:
		err := k.setFinalizers(ctx, p, append(slices.Clone(p.Finalizers), v1alpha1.FinalizerPool))
		t.add(v1alpha1.ConditionStepsFailed, "FinalizerFailed", err)
	}
	r := &round{k: k, now: now, p: used, read: read, invalid: err != nil, nodes: nodes, t: &t}
	if kind := r.kind(); kind != nil {
		r.runCrew(ctx, kind)
	} else {
		if p.DeletionTimestamp == nil {
			r.prepare(ctx)
		}
		r.observe(ctx)
		r.act(ctx)
	}
	k.workers = len(r.places)
	k.report(ctx, now, p, r, &t)
	if r.crew == nil {
		k.writeGone(ctx, now, p)
	}
	return true
}

// usable returns a pool with its present spec or, if that is invalid, with the last valid one and the error of the
// present one. nil: no spec was ever valid.
func (k *keeper) usable(p *v1alpha1.WorkerPool) (*v1alpha1.WorkerPool, kube.WorkerPool, error) {
	read, err := kube.ReadWorkerPool(p)
	if err == nil {
		return p, read, nil
	}
	last := p.DeepCopy()
	last.Spec = v1alpha1.WorkerPoolSpec{}
	if json.Unmarshal([]byte(k.status.ValidSpec), &last.Spec) != nil {
		return nil, read, err
	}
	if read, bad := kube.ReadWorkerPool(last); bad == nil {
		return last, read, fmt.Errorf("the pool goes on by its last valid spec: its workers shrink and drain, none grows, "+
			"and no pod is made; correct the spec: %w", err)
	}
	return nil, read, err
}

// endUnread ends workers of a pool whose spec cannot be read: all of them if the pool is deleted, because its spec
// cannot be corrected any more, otherwise those whose end has come.
func (k *keeper) endUnread(ctx context.Context, now time.Time, p *v1alpha1.WorkerPool, t *problems) {
	if p.DeletionTimestamp != nil {
		t.add(v1alpha1.ConditionStepsFailed, "FinalizerFailed", k.abandon(ctx, p))
		return
	}
	t.add(v1alpha1.ConditionStepsFailed, "StepFailed", k.endOver(ctx, now, p))
}

// endOver ends the workers whose end has come by their pods' marks, whatever else is known.
func (k *keeper) endOver(ctx context.Context, now time.Time, p *v1alpha1.WorkerPool) error {
	_, err := k.endPods(ctx, p, func(pod *podRow) bool { return pod.marks.Over(now) })
	return err
}

// abandon ends a deleted pool whose spec cannot be read: it deletes the pods, then removes the finalizer.
func (k *keeper) abandon(ctx context.Context, p *v1alpha1.WorkerPool) error {
	left, err := k.endPods(ctx, p, func(*podRow) bool { return true })
	if left == 0 {
		return k.release(ctx, p)
	}
	return err
}

// endPods deletes pods of a pool without telling its ResourceManager, as of one whose spec cannot be read. They have
// the time that they were made with, in which their hooks let containers end, until their worker's end. It returns how
// many pods the pool has.
func (k *keeper) endPods(ctx context.Context, p *v1alpha1.WorkerPool, which func(*podRow) bool) (has int, err error) {
	var pods []podRow
	k.c.pods[k.namespace].Each(func(_ string, pod podRow) {
		if pod.owner == p.UID {
			pods = append(pods, pod)
		}
	})
	var errs []error
	for i := range pods {
		if !pods[i].deleting && which(&pods[i]) {
			errs = append(errs, k.deletePod(ctx, &pods[i], podGrace))
		}
	}
	return len(pods), errors.Join(errs...)
}

// round is one round of a pool.
type round struct {
	k    *keeper
	now  time.Time
	p    *v1alpha1.WorkerPool
	read kube.WorkerPool
	// invalid means that the spec is an earlier one, because the present one cannot be used.
	invalid bool
	nodes   map[string]Node
	t       *problems

	state   observeyarn.State
	places  []*place
	before  map[string]*v1alpha1.WorkerStatus // by worker, as the round before left them
	in      pool.Input
	tally   pool.Tally
	opening pool.Opening
	// unsettled are workers that were left out of the decision, because the ResourceManager's figures are not settled.
	unsettled map[string]bool
	crew      *crewRound // nil: the workers are NodeManagers
	kindOfPod string     // see template; "": not known yet
}

// place is a worker and what it is made of.
type place struct {
	worker *pool.Worker
	row    v1alpha1.WorkerStatus // of the round before; empty: there was none
	host   string
	// labelled is what has the worker's label in the ResourceManager's store: all NodeManagers of its host as host:0, or
	// only the worker's, as host:port, where the host is a node that may have others.
	labelled string
	node     string
	pod      *podRow
	index    int           // in the pool; -1: it is one too many
	settled  bool          // what the ResourceManager shows of it is true
	asks     pool.Question // to its NodeManager
	step     pool.Step
	idle     bool     // it runs nothing, and others may evict its pod
	crew     crewSeen // of a worker of one size
	err      error    // of the step
}

// problems collects what goes wrong in a round, by condition.
type problems struct {
	mu  sync.Mutex
	all map[string]problem
}

type problem struct {
	reason string
	errs   []error
}

func (t *problems) add(condition, reason string, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]problem{}
	}
	b, found := t.all[condition]
	if !found {
		b.reason = reason
	}
	b.errs = append(b.errs, err)
	t.all[condition] = b
}

// message returns the text of a condition: its first error, and the number of errors.
func (p problem) message() string {
	text := p.errs[0].Error()
	if n := len(p.errs) - 1; n > 0 {
		text = fmt.Sprintf("%s (and %d more)", text, n)
	}
	return text
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// second cuts a time to seconds, as the API stores it.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
