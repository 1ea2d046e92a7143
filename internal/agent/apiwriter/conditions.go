package apiwriter

import (
	"context"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// echoTimeout is how long the API may not show a condition that was set before it is set again.
const echoTimeout = time.Minute

// conditions updates the pods' condition about their CPUs to the plan. The state in the API counts, not what was sent:
// so a condition that another writer removes comes back, and a condition from before a restart goes.
type conditions struct {
	set  func(ctx context.Context, c model.Condition) error
	log  *faillog.Log
	wake chan struct{}

	mu      sync.Mutex
	pending map[string]model.Condition // by UID
	sent    map[string]sentCondition   // by UID; the API does not show them yet
}

type sentCondition struct {
	model.PodCondition
	at time.Time
}

func newConditions(set func(context.Context, model.Condition) error, log *faillog.Log) *conditions {
	return &conditions{
		set: set, log: log, wake: make(chan struct{}, 1), pending: map[string]model.Condition{},
		sent: map[string]sentCondition{},
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
		if s, sent := c.sent[pod.APIUID]; sent && s.PodCondition == want && now.Sub(s.at) < echoTimeout {
			continue
		}
		c.pending[pod.APIUID] = model.Condition{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, PodCondition: want}
	}
	for uid, s := range c.sent {
		if now.Sub(s.at) >= echoTimeout {
			delete(c.sent, uid) // its pod is gone, or it is sent again
		}
	}
	if len(c.pending) > 0 {
		wake(c.wake)
	}
}

// run sets pending conditions. It repeats a condition that could not be set.
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

// next takes a pending condition. It counts as sent from then on.
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

// undo makes a condition pending again that could not be set, unless a newer one was posted meanwhile.
func (c *conditions) undo(condition model.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sent, condition.UID)
	if _, newer := c.pending[condition.UID]; !newer {
		c.pending[condition.UID] = condition
	}
}
