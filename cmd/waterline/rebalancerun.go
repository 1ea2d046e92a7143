package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/rebalance"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// mover evicts pods one after another.
type mover struct {
	core  rest.Interface
	wait  time.Duration // for a replacement
	every time.Duration // between two looks for it
	say   func(format string, args ...any)
}

// doneMove is a move and what came of it.
type doneMove struct {
	Move    rebalance.Move `json:"move"`
	Outcome string         `json:"outcome"` // Moved, Refused, Gone, OnlyReplica, or the reason why the command stopped
	Pod     string         `json:"pod,omitempty"`
	Node    string         `json:"node,omitempty"` // where the replacement runs
	Seconds float64        `json:"seconds"`
}

// The outcomes of a move that do not stop the others.
const (
	outcomeMoved   = "Moved"
	outcomeRefused = "Refused" // by a PodDisruptionBudget
	outcomeGone    = "Gone"    // the pod, before it was evicted
	outcomeOnly    = string(rebalance.OnlyReplica)
)

// carryOut moves pods until no move is left, or one does harm. Each move is planned anew, with the earlier ones where
// their replacements landed: the scheduler decides where that is.
func (m *mover) carryOut(ctx context.Context, in rebalance.Input) ([]doneMove, error) {
	var done []doneMove
	moved := 0
	for {
		plan := rebalance.Decide(in)
		if len(plan.Moves) == 0 {
			m.say("\n%d pods were moved.", moved)
			return done, nil
		}
		next := &plan.Moves[0]
		began := time.Now()
		pod, outcome, err := m.move(ctx, next)
		d := doneMove{Move: *next, Outcome: outcome, Seconds: time.Since(began).Seconds()}
		if pod != nil {
			d.Pod, d.Node = pod.Name, pod.Spec.NodeName
		}
		if err == nil && outcome == outcomeMoved {
			if harm := rebalance.Harm(in, next, d.Node); harm != "" {
				d.Outcome = string(harm)
				err = fmt.Errorf("pod %s/%s left %s, and its replacement %s runs on %s: %s; see docs/rebalance.md", next.Namespace,
					next.Name, next.From, d.Pod, d.Node, harm)
			}
		}
		done = append(done, d)
		switch {
		case err != nil:
			return done, fmt.Errorf("stopped after %d moves: %w", moved, err)
		case outcome == outcomeMoved:
			moved++
			m.say("%s/%s left %s; %s runs on %s after %.1f s", next.Namespace, next.Name, next.From, d.Pod, d.Node, d.Seconds)
			in = rebalance.Landed(in, next, d.Node, string(pod.UID))
		case outcome == outcomeRefused:
			m.say("%s/%s stays: its PodDisruptionBudget has no room", next.Namespace, next.Name)
			in = rebalance.Keep(in, next.UID, rebalance.DisruptionBudget)
		case outcome == outcomeOnly:
			m.say("%s/%s stays: its workload has no other ready pod any more", next.Namespace, next.Name)
			in = rebalance.Keep(in, next.UID, rebalance.OnlyReplica)
		default:
			m.say("%s/%s is gone already", next.Namespace, next.Name)
			in = rebalance.Keep(in, next.UID, rebalance.NotReady)
		}
	}
}

// move evicts a pod and waits until its replacement is ready, which it returns. The plan knows which pods were ready at
// the start of the run, so move looks again whether another pod of the workload is ready.
func (m *mover) move(ctx context.Context, move *rebalance.Move) (*corev1.Pod, string, error) {
	before, err := m.siblings(ctx, move)
	if err != nil {
		return nil, "Failed", err
	}
	old, another := map[types.UID]bool{}, false
	for _, p := range before {
		old[p.UID] = true
		another = another || kube.Ready(&p) && string(p.UID) != move.UID
	}
	if !another {
		return nil, outcomeOnly, nil
	}
	switch err := m.evict(ctx, move); {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil, outcomeGone, nil
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return nil, outcomeRefused, nil
	case err != nil:
		return nil, "Failed", fmt.Errorf("evicting pod %s/%s: %w", move.Namespace, move.Name, err)
	}
	m.say("%s/%s is evicted from %s (%s)", move.Namespace, move.Name, move.From, move.Reason)
	waiting, cancel := context.WithTimeoutCause(ctx, m.wait, fmt.Errorf("no replacement was ready after %s", m.wait))
	defer cancel()
	state := "there is none"
	for {
		select {
		case <-waiting.Done():
			return nil, "NoReplacement", fmt.Errorf("pod %s/%s was evicted: %w; its replacement: %s",
				move.Namespace, move.Name, context.Cause(waiting), state)
		case <-time.After(m.every):
		}
		now, err := m.siblings(ctx, move)
		if err != nil {
			state = err.Error() // asked again
			continue
		}
		for i := range now {
			switch p := &now[i]; {
			case old[p.UID] || p.DeletionTimestamp != nil:
			case kube.Ready(p):
				return p, outcomeMoved, nil
			default:
				state = fmt.Sprintf("%s is %s", p.Name, p.Status.Phase)
			}
		}
	}
}

// siblings returns the pods of a move's workload.
func (m *mover) siblings(ctx context.Context, move *rebalance.Move) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := m.core.Get().Namespace(move.Namespace).Resource("pods").Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of namespace %s: %w", move.Namespace, err)
	}
	var own []corev1.Pod
	for i := range list.Items {
		if kube.Owner(&list.Items[i]) == move.Owner {
			own = append(own, list.Items[i])
		}
	}
	return own, nil
}

// evict evicts exactly the pod of a move. The API server checks PodDisruptionBudgets; its refusal is final, because
// client-go would repeat the request for as long as the budget has no room.
func (m *mover) evict(ctx context.Context, move *rebalance.Move) error {
	uid := types.UID(move.UID)
	body, err := json.Marshal(policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: move.Namespace, Name: move.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil {
		return err
	}
	return m.core.Post().Namespace(move.Namespace).Resource("pods").Name(move.Name).SubResource("eviction").MaxRetries(0).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}
