// Package evict carries out the decisions about evictions that nodes request.
package evict

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/decide/node/privilege"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// evictionManager owns the condition Evicted. It is not the owner of the condition Withdrawn, because the API server
// removes conditions that their owner does not name.
const evictionManager = "waterline-manager-evictions"

// maxDecisionAge is how long a decision may wait for the API server. An older decision is dropped, and the next request
// of the node is decided anew.
const maxDecisionAge = 10 * time.Second

// Evictor carries out decisions about requested evictions. It uses one goroutine: budgets are for the cluster, and the
// outcome of one eviction counts for the next.
type Evictor struct {
	*Config
	ledger    *ledger
	state     evictbudget.State
	published map[string]string // by node: the pod and outcome that were published last

	mu     sync.Mutex
	done   map[evictbudget.Verdict]uint64
	drains map[string]string // by node: UID of the worker that its pool drains
}

// Config is the configuration of an evictor.
type Config struct {
	Core, Custom rest.Interface // of the core API group and of Waterline's
	Fleet        *fleet.Fleet
	Policies     *fleet.Policies
	Settings     evictbudget.Settings
	Namespace    string // of the manager
	Identity     string // unique to this replica
	Log          *slog.Logger
}

// New returns an evictor.
func New(cfg *Config) *Evictor {
	return &Evictor{
		Config: cfg, ledger: &ledger{core: cfg.Core, namespace: cfg.Namespace},
		published: map[string]string{}, done: map[evictbudget.Verdict]uint64{}, drains: map[string]string{},
	}
}

// Round collects the requested evictions and carries out the allowed ones. governed is the policy of each node. at is
// by a clock that no program sets.
func (e *Evictor) Round(ctx context.Context, clock func() time.Duration, governed map[string]string) {
	at := clock()
	if !e.ledger.read {
		e.resume(ctx, at)
	}
	requests, byNode := e.requests(governed)
	maps.DeleteFunc(e.published, func(node, _ string) bool { _, requested := byNode[node]; return !requested })
	var worth []evictbudget.Request
	worth, e.state = evictbudget.Watch(at, requests, e.state)
	for _, w := range worth {
		if clock()-at > maxDecisionAge {
			break
		}
		i := slices.IndexFunc(requests, func(r evictbudget.Request) bool { return r.Node == w.Node })
		requests[i].Pod = e.look(ctx, byNode[w.Node], governed[w.Node])
	}
	var decisions []evictbudget.Decision
	decisions, e.state = evictbudget.Round(at, requests, e.Settings, e.state)
	e.keep(byNode)
	for _, d := range decisions {
		if ctx.Err() != nil {
			return
		}
		if d.New && !e.record(ctx, clock()) {
			d.Verdict = evictbudget.Unrecorded
			e.state = evictbudget.Note(clock(), []evictbudget.Outcome{{UID: d.UID, Why: d.Verdict}}, e.state)
		}
		e.grant(&d)
		if d.Verdict == evictbudget.Evict {
			if d.Verdict = evictbudget.Late; clock()-at <= maxDecisionAge {
				d.Verdict = evictbudget.Unrecorded
				if e.record(ctx, clock()) {
					d.Verdict = e.evict(ctx, byNode[d.Node])
				}
			}
			if d.Verdict == evictbudget.Evict {
				e.Log.Info("a pod is evicted", "node", d.Node, "namespace", byNode[d.Node].Namespace, "pod", byNode[d.Node].Name,
					"reason", byNode[d.Node].Reason)
			}
			e.state = evictbudget.Note(clock(), []evictbudget.Outcome{{UID: d.UID, Why: d.Verdict}}, e.state)
		}
		e.publish(ctx, &d, byNode[d.Node])
	}
}

// keep forgets granted workers whose nodes no longer request their eviction.
func (e *Evictor) keep(requested map[string]fleet.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.drains, func(node, uid string) bool { return requested[node].UID != uid })
}

// grant notes whether the pool of a worker may drain it.
func (e *Evictor) grant(d *evictbudget.Decision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d.Verdict == evictbudget.Drains {
		e.drains[d.Node] = d.UID
	} else {
		delete(e.drains, d.Node)
	}
}

// Draining returns the UIDs of workers whose eviction was granted, by node.
func (e *Evictor) Draining() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.drains)
}

// resume continues with the evictions that the last leader recorded.
func (e *Evictor) resume(ctx context.Context, at time.Duration) {
	past, err := e.ledger.load(ctx, time.Now())
	switch {
	case err == nil:
		e.state = evictbudget.Resume(at, past)
	case ctx.Err() == nil:
		e.Log.Warn("the evictions of the last leader could not be read; budgets fill over an hour", "err", err)
	}
}

// record leaves the evictions that count, the next one among them, to the next leader. It reports whether the next one
// may happen: not while the record could not be written, because then nobody after this leader would count it. A
// cluster that lacks the record, or the right to write it, is as it was before there was one.
func (e *Evictor) record(ctx context.Context, at time.Duration) bool {
	err := e.ledger.save(ctx, time.Now(), e.state.Counting(at))
	switch {
	case err == nil:
		return true
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		e.Log.Warn("evictions are not recorded for the next leader; upgrade the chart", "err", err)
		return true
	case ctx.Err() == nil:
		e.Log.Warn("an eviction could not be recorded, and is tried later", "err", err)
	}
	return false
}

// requests returns the requests of all nodes, ordered by node, for the decision and as in the reports.
func (e *Evictor) requests(governed map[string]string) ([]evictbudget.Request, map[string]fleet.Request) {
	policies, _ := e.Policies.Usable()
	perNode := map[string]int64{}
	for i := range policies {
		if p := &policies[i].Policy; p.Mode == model.ModeEnforce {
			perNode[policies[i].Name] = p.Protect.EvictPerHour
		}
	}
	byNode := map[string]fleet.Request{}
	withdrawn := map[string]bool{}
	e.Fleet.Reports.Each(func(node string, r fleet.Report) {
		if r.Evict != (fleet.Request{}) {
			byNode[node], withdrawn[node] = r.Evict, r.Withdrawn
		}
	})
	if len(byNode) == 0 {
		return nil, byNode
	}
	ready := map[string]bool{}
	e.Fleet.Agents.Each(func(_ string, a fleet.Agent) { ready[a.Node] = ready[a.Node] || a.Ready })
	var requests []evictbudget.Request
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		_, exists := e.Fleet.Nodes.Get(node)
		requests = append(requests, evictbudget.Request{
			Node: node, UID: byNode[node].UID, Renewed: byNode[node].When, Code: model.Code(byNode[node].Reason),
			Ready: exists && ready[node], Withdrawn: withdrawn[node], PerNode: perNode[governed[node]],
		})
	}
	return requests, byNode
}

// look reads a pod from the API server. What its node reports about it is not trusted. governing is the name of the
// node's policy.
func (e *Evictor) look(ctx context.Context, r fleet.Request, governing string) evictbudget.Pod {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var p corev1.Pod
	err := e.Core.Get().Namespace(r.Namespace).Resource("pods").Name(r.Name).Do(ctx).Into(&p)
	switch {
	case apierrors.IsNotFound(err):
		return evictbudget.Pod{Known: true}
	case err != nil:
		e.Log.Warn("a pod that should leave could not be looked up", "namespace", r.Namespace, "pod", r.Name, "err", err)
		return evictbudget.Pod{}
	}
	pod, ok := kube.Pod(&p, "")
	if !ok {
		return evictbudget.Pod{Known: true}
	}
	kept := pod.Critical || pod.Static()
	if !kept && pod.Annotations.Evict == model.EvictNever {
		if kept, err = e.mayStay(ctx, pod, governing); err != nil {
			e.Log.Warn("the namespace of a pod that should leave could not be looked up", "namespace", r.Namespace, "err", err)
			return evictbudget.Pod{}
		}
	}
	return evictbudget.Pod{
		Known: true, UID: string(p.UID), Node: p.Spec.NodeName, Owner: pod.Owner,
		Batch: pod.Class == model.ClassBE && !pod.Ended, Leaving: pod.Leaving, Kept: kept, Worker: pod.Pool != "",
	}
}

// mayStay reports whether the policy allows the pods of a namespace not to be evicted.
func (e *Evictor) mayStay(ctx context.Context, pod *model.Pod, governing string) (bool, error) {
	policies, _ := e.Policies.Usable()
	i := slices.IndexFunc(policies, func(p model.ClusterPolicy) bool { return p.Name == governing })
	if i < 0 {
		return true, nil // in doubt the pod stays
	}
	var ns corev1.Namespace
	if err := e.Core.Get().Resource("namespaces").Name(pod.Namespace).Do(ctx).Into(&ns); err != nil {
		return false, err
	}
	return privilege.Allows(&policies[i].Policy, pod.Namespace, ns.Labels, model.PrivilegeNeverEvict), nil
}

// evict evicts exactly the pod that was read, with its own grace period. The API server checks PodDisruptionBudgets,
// and a refusal is final: client-go's retry is switched off, because retries are decided.
func (e *Evictor) evict(ctx context.Context, r fleet.Request) evictbudget.Verdict {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	uid := types.UID(r.UID)
	post := e.Core.Post().Namespace(r.Namespace).Resource("pods").Name(r.Name).SubResource("eviction").MaxRetries(0)
	err := post.Body(&policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}).Do(ctx).Error()
	switch {
	case err == nil:
		return evictbudget.Evict
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return evictbudget.Gone
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), overlapping(err):
		return evictbudget.Waits
	}
	e.Log.Warn("a pod could not be evicted", "namespace", r.Namespace, "pod", r.Name, "err", err)
	return evictbudget.Failed
}

// overlapping reports whether several budgets select the pod. The API server then returns an internal error without a
// cause (pkg/registry/core/pod/storage/eviction.go).
func overlapping(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "more than one PodDisruptionBudget")
}

// publish publishes the outcome of a request: in the report of the node, and as an event on the pod if its owner can
// act on it. The same outcome is published once.
func (e *Evictor) publish(ctx context.Context, d *evictbudget.Decision, r fleet.Request) {
	words := r.UID + " " + string(d.Verdict)
	if e.published[d.Node] == words {
		return
	}
	e.published[d.Node] = words
	e.mu.Lock()
	e.done[d.Verdict]++
	e.mu.Unlock()
	if d.Verdict == evictbudget.NotItsOwn || d.Verdict == evictbudget.NotBatch {
		e.Log.Warn("a node requests the eviction of a pod that must stay", "node", d.Node, "namespace", r.Namespace, "pod",
			r.Name, "why", string(d.Verdict))
	}
	err := e.condition(ctx, d, r)
	if reason, message := e.event(d, r); reason != "" {
		err = errors.Join(err, e.send(ctx, r, reason, message))
	}
	if err != nil && ctx.Err() == nil {
		e.Log.Warn("what became of a request could not be published", "node", d.Node, "err", err)
	}
}

// sentences are the messages of outcomes.
var sentences = map[evictbudget.Verdict]string{
	evictbudget.Evict:      "was evicted",
	evictbudget.Drains:     "is a worker that its pool drains: its containers end first, and then the pod",
	evictbudget.Leaving:    "leaves already",
	evictbudget.Gone:       "is gone",
	evictbudget.NotSeen:    "was requested before this manager started; it counts once the node renews it",
	evictbudget.TooOld:     "was not renewed for more than a minute",
	evictbudget.NotAlive:   "is not evicted, because the node's agent is not ready or its offer is withdrawn",
	evictbudget.NotAllowed: "is not evicted, because the policy of the node does not allow it",
	evictbudget.NotItsOwn:  "is not evicted, because it is on another node",
	evictbudget.NotBatch:   "is not evicted, because it is not batch",
	evictbudget.Kept:       "is not evicted, because it says so, or because it is critical or static",
	evictbudget.NodeSpent: "is not evicted yet: the eviction budget of its node is used up " +
		"(protect.eviction.perNodePerHour)",
	evictbudget.OwnerSpent: "is not evicted yet: the eviction budget of its owner is used up",
	evictbudget.AllSpent:   "is not evicted yet: the eviction budget of the cluster is used up",
	evictbudget.Waits:      "is not evicted yet, because a PodDisruptionBudget keeps it",
	evictbudget.Late:       "is not evicted yet, because the API server is slow",
	evictbudget.Unrecorded: "is not evicted yet, because the eviction could not be recorded for the next leader",
	evictbudget.Failed:     "could not be evicted",
}

func (e *Evictor) condition(ctx context.Context, d *evictbudget.Decision, r fleet.Request) error {
	status, reason := metav1.ConditionFalse, string(d.Verdict)
	if d.Verdict == evictbudget.Evict {
		status, reason = metav1.ConditionTrue, reasonEvicted
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := actkube.ApplyReportCondition(ctx, e.Custom, d.Node, evictionManager, metav1.Condition{
		Type: v1alpha1.ConditionEvicted, Status: status, Reason: reason,
		Message: fmt.Sprintf("Pod %s/%s (%s) %s.", r.Namespace, r.Name, r.Reason, sentences[d.Verdict]),
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Reasons of events on pods.
const (
	reasonEvicted = "Evicted"
	reasonWaits   = "EvictionWaits"
	reasonDrains  = "WorkerDrains"
)

// event returns the event for the owner of a pod; "": none.
func (e *Evictor) event(d *evictbudget.Decision, r fleet.Request) (reason, message string) {
	switch d.Verdict {
	case evictbudget.Evict:
		return reasonEvicted,
			fmt.Sprintf("Node %s requested the eviction of this batch pod: %s %s", d.Node, r.Reason, r.Message)
	case evictbudget.Drains:
		return reasonDrains, fmt.Sprintf("Node %s requested the eviction of this worker: %s %s; its pool ends containers, "+
			"and then the pod", d.Node, r.Reason, r.Message)
	case evictbudget.Waits:
		return reasonWaits, fmt.Sprintf("Node %s requests the eviction of this batch pod (%s), and a PodDisruptionBudget "+
			"keeps it; it is tried again.", d.Node, r.Reason)
	}
	return "", ""
}

// send writes an event about a pod, the same event once.
func (e *Evictor) send(ctx context.Context, r fleet.Request, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	about := corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: r.Namespace, Name: r.Name, UID: types.UID(r.UID),
	}
	return actkube.Warn(ctx, e.Core, actkube.Manager(e.Identity), about, reason, message, r.UID+reason+message)
}

// Counts returns the number of requests by outcome.
func (e *Evictor) Counts() map[evictbudget.Verdict]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.done)
}
