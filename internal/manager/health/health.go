// Package health carries out the decisions about the health of nodes.
package health

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/decide/node/publish"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// fieldManager owns the condition Withdrawn of reports.
const fieldManager = "waterline-manager"

// Executor carries out the decisions about nodes. A new action for a node replaces the one before, so each node has at
// most one.
type Executor struct {
	core, custom rest.Interface
	fleet        *fleet.Fleet
	log          *slog.Logger
	queue        workqueue.TypedRateLimitingInterface[string] // names of nodes

	mu     sync.Mutex
	wanted map[string]nodehealth.Action
	done   map[Outcome]uint64
}

// Outcome is the result of an action, for the metric.
type Outcome struct{ Verb, Result string }

// New returns an executor. The clients are of the core API group and of Waterline's own.
func New(core, custom rest.Interface, f *fleet.Fleet, log *slog.Logger) *Executor {
	again := workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)
	return &Executor{
		core: core, custom: custom, fleet: f, log: log,
		queue: workqueue.NewTypedRateLimitingQueue(again), wanted: map[string]nodehealth.Action{}, done: map[Outcome]uint64{},
	}
}

// Post takes the actions that are due now. The action Tidy is decided only once, so it stays until it is done.
func (o *Executor) Post(actions []nodehealth.Action) {
	o.mu.Lock()
	before := o.wanted
	o.wanted = make(map[string]nodehealth.Action, len(actions))
	for _, a := range actions {
		o.wanted[a.Node] = a
	}
	for name, a := range before {
		if _, replaced := o.wanted[name]; !replaced && a.Verb == nodehealth.Tidy {
			o.wanted[name] = a
		}
	}
	o.mu.Unlock()
	for _, a := range actions {
		if o.queue.NumRequeues(a.Node) == 0 { // otherwise a retry is scheduled already
			o.queue.Add(a.Node)
		}
	}
}

// Run carries out actions until the context ends.
func (o *Executor) Run(ctx context.Context) {
	const workers = 4
	stop := context.AfterFunc(ctx, o.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				name, closed := o.queue.Get()
				if closed {
					return
				}
				o.try(ctx, name)
				o.queue.Done(name)
			}
		})
	}
	wg.Wait()
}

func (o *Executor) try(ctx context.Context, name string) {
	o.mu.Lock()
	action, wanted := o.wanted[name]
	o.mu.Unlock()
	if !wanted || ctx.Err() != nil {
		o.queue.Forget(name)
		return
	}
	err := o.do(ctx, action)
	result := "done"
	if err != nil {
		result = "failed"
		o.log.Warn("a node action failed", "node", name, "verb", string(action.Verb), "cause", string(action.Cause),
			"err", err)
		o.queue.AddRateLimited(name)
	} else {
		o.log.Info("node action", "node", name, "verb", string(action.Verb), "cause", string(action.Cause), "for",
			action.For.String())
		o.queue.Forget(name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[Outcome{string(action.Verb), result}]++
	if err == nil && o.wanted[name] == action {
		delete(o.wanted, name)
	}
}

// Counts returns the number of actions by outcome.
func (o *Executor) Counts() map[Outcome]uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.done)
}

func (o *Executor) do(ctx context.Context, a nodehealth.Action) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	switch a.Verb {
	case nodehealth.Withdraw:
		return o.withdraw(ctx, a)
	case nodehealth.Lift:
		err := o.condition(ctx, a, metav1.ConditionFalse, "Agent and kubelet are healthy again.")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case nodehealth.Tidy:
		return o.tidy(ctx, a.Node)
	case nodehealth.Forget:
		return o.forget(ctx, a.Node)
	}
	return fmt.Errorf("unknown node action %q", a.Verb)
}

// withdraw sets the condition Withdrawn, and creates the report if there is none.
func (o *Executor) withdraw(ctx context.Context, a nodehealth.Action) error {
	what := map[nodehealth.Cause]string{
		nodehealth.AgentNotThere: "No agent has run on the node for %v. Nothing new is sold until a healthy one runs.",
		nodehealth.AgentUnready:  "The node's agent has not been ready for %v. Nothing new is sold until it is.",
		nodehealth.KubeletLost:   "The node's kubelet has not renewed its Lease for %v. Nothing new is sold until it does.",
	}[a.Cause]
	message := fmt.Sprintf(what, a.For.Round(time.Second))
	err := o.condition(ctx, a, metav1.ConditionTrue, message)
	if !apierrors.IsNotFound(err) {
		return err
	}
	n, there := o.fleet.Nodes.Get(a.Node)
	if !there {
		return nil // the Node was deleted meanwhile, and its report with it
	}
	if err := actkube.CreateReport(ctx, o.custom, a.Node, n.UID); err != nil {
		return fmt.Errorf("making a report of node %s: %w", a.Node, err)
	}
	return o.condition(ctx, a, metav1.ConditionTrue, message)
}

// condition sets the condition Withdrawn.
func (o *Executor) condition(
	ctx context.Context, a nodehealth.Action, status metav1.ConditionStatus, message string,
) error {
	return actkube.ApplyReportCondition(ctx, o.custom, a.Node, fieldManager, metav1.Condition{
		Type: v1alpha1.ConditionWithdrawn, Status: status, Reason: string(a.Cause), Message: message,
	})
}

// tidy removes the resources from a Node that bound pods do not need. The pods matter only for Koordinator's names.
func (o *Executor) tidy(ctx context.Context, name string) error {
	n, there := o.fleet.Nodes.Get(name)
	if !there {
		return nil
	}
	now := model.Node{PodsKnown: true, Object: model.NodeObject{Published: n.Published}}
	if slices.ContainsFunc(n.Published, func(p model.Published) bool { return p.Koordinator }) {
		var err error
		if now.Pods, err = o.pods(ctx, name); err != nil {
			return err
		}
	}
	should := publish.Decide(&now, &model.Policy{Mode: model.ModeDisabled}, nil, model.Reason{}).Resources
	if slices.Equal(should, n.Published) {
		return nil
	}
	return actkube.NewPublisher(o.core, name).Write(ctx, n.UID, n.Published, should)
}

// pods lists the pods of a node.
func (o *Executor) pods(ctx context.Context, name string) ([]*model.Pod, error) {
	var list corev1.PodList
	selector := fields.OneTermEqualSelector("spec.nodeName", name).String()
	err := o.core.Get().Resource("pods").Param("fieldSelector", selector).Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", name, err)
	}
	var pods []*model.Pod
	for i := range list.Items {
		if pod, ok := kube.Pod(&list.Items[i], ""); ok {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// forget deletes the report that was seen, and no later one of the same name.
func (o *Executor) forget(ctx context.Context, name string) error {
	r, there := o.fleet.Reports.Get(name)
	if !there {
		return nil
	}
	uid := types.UID(r.UID)
	err := o.custom.Delete().Resource("nodereports").Name(name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the report of node %s: %w", name, err)
	}
	return nil
}
