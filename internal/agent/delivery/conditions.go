package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/agent/trouble"
	"github.com/waterline-io/waterline/internal/model"
)

// unseen is how long a condition that was set may not show in what the API tells of the pod before it is set again.
const unseen = time.Minute

// conditions brings the pods' condition about their CPUs to what the plan says. What the API shows of a pod counts, not what
// was sent: so a condition that somebody else removes comes back, and one that is left from before a restart goes.
type conditions struct {
	set  func(ctx context.Context, c model.Condition) error
	log  *trouble.Log
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]model.Condition // by UID: to be sent
	sent    map[string]sentCondition   // by UID: not seen yet
}

type sentCondition struct {
	model.PodCondition
	at time.Time
}

func newConditions(set func(context.Context, model.Condition) error, log *trouble.Log) *conditions {
	return &conditions{
		set: set, log: log, wake: make(chan struct{}, 1), pending: map[string]model.Condition{}, sent: map[string]sentCondition{},
	}
}

// post takes the conditions of a plan, and the pods as the API shows them.
func (c *conditions) post(planned []model.Condition, pods []*model.Pod) {
	if c.set == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.pending)
	should := make(map[string]model.PodCondition, len(planned))
	for _, p := range planned {
		should[p.UID] = p.PodCondition
	}
	now := time.Now()
	for _, pod := range pods {
		want := should[pod.APIUID]
		if want == pod.CPUCondition {
			delete(c.sent, pod.APIUID)
			continue
		}
		if s, sent := c.sent[pod.APIUID]; sent && s.PodCondition == want && now.Sub(s.at) < unseen {
			continue
		}
		c.pending[pod.APIUID] = model.Condition{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, PodCondition: want}
	}
	for uid, s := range c.sent {
		if now.Sub(s.at) >= unseen {
			delete(c.sent, uid) // of a pod that is gone, or to be sent again
		}
	}
	if len(c.pending) > 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// run sets what is pending, and tries again later what could not be set.
func (c *conditions) run(ctx context.Context) {
	deliver(ctx, c.wake, c.next, func(condition model.Condition) error {
		err := c.set(ctx, condition)
		c.log.Report("conditions", err)
		if err != nil {
			c.undo(condition)
		}
		return err
	})
}

// next takes a pending condition, which counts as sent from now on.
func (c *conditions) next() (model.Condition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid, condition := range c.pending {
		delete(c.pending, uid)
		c.sent[uid] = sentCondition{condition.PodCondition, time.Now()}
		return condition, true
	}
	return model.Condition{}, false
}

// undo notes that a condition could not be set. A newer one that was posted meanwhile counts.
func (c *conditions) undo(condition model.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, condition.UID)
	if _, newer := c.pending[condition.UID]; !newer {
		c.pending[condition.UID] = condition
	}
}
