package pools

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
)

// maxGone bounds the pods that are gone and not written down yet, in all and of a pool.
const maxGone = 4096

// goneRetry is the pause before another attempt to write the record of pods that are gone.
const goneRetry = time.Minute

// messageOf returns the termination messages of a pod's guard: of its present and its previous end.
func messageOf(p *corev1.Pod) string {
	message := ""
	for _, c := range p.Status.InitContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if c.Name == hadoop.GuardContainer && ended != nil && ended.Message != "" {
				message += ended.Message[:min(len(ended.Message), guardlog.MessageBytes)] + "\n"
			}
		}
	}
	return message
}

// gonePods are deleted pods that their pools have not recorded yet.
type gonePods struct {
	mu  sync.Mutex
	all []podRow
}

// keepGone keeps a worker's deleted pod for the record of its pool, if its guard left a message.
func (c *Controller) keepGone(namespace string, p podRow) {
	if p.owner == "" || p.message == "" {
		return
	}
	wanted := false
	c.pools[namespace].Each(func(_ string, pool *v1alpha1.WorkerPool) { wanted = wanted || pool.UID == p.owner })
	if !wanted {
		return
	}
	c.gone.mu.Lock()
	defer c.gone.mu.Unlock()
	c.gone.all = append(c.gone.all, p)
	c.gone.all = c.gone.all[max(len(c.gone.all)-maxGone, 0):]
}

// take returns the pods of a pool, and forgets them.
func (g *gonePods) take(pool types.UID) (mine []podRow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mine, g.all = split(g.all, func(p podRow) bool { return p.owner == pool })
	return mine
}

// cause is the state of a worker, with the reason that it had when that began.
type cause struct{ phase, reason string }

// takeGone takes over the pods of the pool that are gone, with the causes of their workers' last states. next is the
// status after this round.
func (k *keeper) takeGone(now time.Time, p *v1alpha1.WorkerPool, next *v1alpha1.WorkerPoolStatus) {
	causes := make(map[string]cause, len(next.Workers))
	for i := range next.Workers {
		w := &next.Workers[i]
		is := k.causes[w.Pod]
		if is.phase != string(w.Phase) {
			is = cause{string(w.Phase), w.Reason}
		}
		causes[w.Pod] = is
	}
	for _, pod := range k.c.gone.take(p.UID) {
		g := guardlog.Gone{
			Worker: pod.name, Pod: pod.uid, Node: pod.node, At: second(now).UTC(),
			Containers: guardlog.ReadMessage([]byte(pod.message)),
		}
		last, known := causes[pod.uid]
		if !known {
			last = k.causes[pod.uid] // of the round before
		}
		if g.Phase, g.Reason = last.phase, last.reason; len(g.Containers) > 0 {
			k.gone = append(k.gone, g)
		}
	}
	k.causes = causes
	k.gone = k.gone[max(len(k.gone)-maxGone, 0):]
}

// writeGone writes the pods that are gone into one ConfigMap a round: there may be thousands at the end of a window.
func (k *keeper) writeGone(ctx context.Context, now time.Time, p *v1alpha1.WorkerPool) {
	if len(k.gone) == 0 || now.Before(k.goneAfter) || p.DeletionTimestamp != nil {
		return
	}
	name := guardlog.GonePart(p.Name, k.gone[0].Worker)
	these, others := split(k.gone, func(g guardlog.Gone) bool { return guardlog.GonePart(p.Name, g.Worker) == name })
	err := k.addGone(ctx, p, name, these)
	k.logOnce(ctx, "writing the messages of the guards of deleted pods failed", err)
	if err != nil {
		k.gone, k.goneAfter = append(others, these...), now.Add(goneRetry)
		return
	}
	k.gone = others
}

// addGone adds pods that are gone to a ConfigMap.
func (k *keeper) addGone(ctx context.Context, p *v1alpha1.WorkerPool, name string, these []guardlog.Gone) error {
	var have corev1.ConfigMap
	err := k.c.o.Core.Get().Namespace(p.Namespace).Resource("configmaps").Name(name).Timeout(apiTimeout).
		Do(ctx).Into(&have)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s/%s: %w", p.Namespace, name, err)
	}
	content, err := guardlog.AddGone(have.Data[v1alpha1.PoolGoneKey], these)
	if err != nil {
		return err
	}
	return k.apply(ctx, p, k.c.o.Core, "configmaps",
		configMap(p, name, v1alpha1.LabelPool, map[string]string{v1alpha1.PoolGoneKey: content}))
}
