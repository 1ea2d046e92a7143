package apiwriter

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// notices delivers the notices of plans as events and log lines: each notice once for as long as plans repeat it, and
// one that comes and goes at most once a minute.
type notices struct {
	send func(ctx context.Context, n model.Notice) error
	log  *faillog.Log
	wake chan struct{}

	mu       sync.Mutex
	standing map[string]time.Time // notices of the last minute's plans: when they were delivered
	queue    []model.Notice
	bad      map[string]uint64 // bad annotations by key
}

// maxQueued bounds the notices that wait while the API server is away.
const maxQueued = 1000

func newNotices(send func(context.Context, model.Notice) error, log *faillog.Log) *notices {
	return &notices{
		send: send, log: log, wake: make(chan struct{}, 1), standing: map[string]time.Time{}, bad: map[string]uint64{},
	}
}

// post takes the notices of a plan.
func (n *notices) post(all []model.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(all) == 0 && len(n.standing) == 0 {
		return
	}
	now := time.Now()
	standing := make(map[string]time.Time, len(all))
	for _, notice := range all {
		key := notice.UID + " " + notice.Reason.String()
		if _, twice := standing[key]; twice {
			continue
		}
		said, known := n.standing[key]
		if !known {
			n.add(notice)
			said = now
		}
		standing[key] = said
	}
	for key, said := range n.standing {
		if _, stands := standing[key]; !stands && now.Sub(said) < time.Minute {
			standing[key] = said
		}
	}
	n.standing = standing
}

func (n *notices) add(notice model.Notice) {
	if notice.Reason.Code == model.BadAnnotation {
		n.bad[metricKey(notice.Reason.Key)]++
	}
	n.log.Warn("notice", "namespace", notice.Namespace, "pod", notice.Name, "reason", notice.Reason.String())
	if n.send == nil || len(n.queue) >= maxQueued {
		return
	}
	n.queue = append(n.queue, notice)
	wake(n.wake)
}

// badAnnotations returns how many annotations could not be used, by key.
func (n *notices) badAnnotations() map[string]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.bad)
}

// metricKey limits the label's values to known annotations, whatever tenants write on pods.
func metricKey(key string) string {
	switch key {
	case v1alpha1.AnnotationCPUShare, v1alpha1.AnnotationCPUShareAlias, v1alpha1.AnnotationCPUQuota,
		v1alpha1.AnnotationCPUManager, v1alpha1.AnnotationCPUManagerAlias, v1alpha1.AnnotationCPUPlacement,
		v1alpha1.AnnotationCPUSetHint, v1alpha1.AnnotationCPUMemory, v1alpha1.AnnotationEvict,
		v1alpha1.AnnotationBatchResources:
		return key
	}
	return "other"
}

// run sends the queued notices in order. It repeats a notice that could not be sent.
func (n *notices) run(ctx context.Context) {
	deliver(ctx, n.wake, n.first, func(notice model.Notice) error {
		err := n.send(ctx, notice)
		n.log.Report("events", err)
		if err == nil {
			n.drop()
		}
		return err
	})
}

// wake puts a value into a channel of capacity one, unless one is waiting there.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver sends pending items one after the other whenever it is woken. After an error it waits ten seconds.
func deliver[T any](ctx context.Context, wake <-chan struct{}, next func() (T, bool), send func(T) error) {
	const rest = 10 * time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for item, any := next(); any; item, any = next() {
			if send(item) == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(rest):
			}
		}
	}
}

func (n *notices) first() (model.Notice, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 {
		return model.Notice{}, false
	}
	return n.queue[0], true
}

func (n *notices) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = n.queue[1:]
}
