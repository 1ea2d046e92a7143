// Package apiwriter carries what plans decide to the API: events, conditions of pods, the offer and the report of the
// node. It decides nothing: it queues, tries again and drops repetitions, beside the agent's loop.
package apiwriter

import (
	"context"
	"sync"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// Config has the functions that write to the API. A nil function writes nothing.
type Config struct {
	Notify       func(ctx context.Context, n model.Notice) error
	SetCondition func(ctx context.Context, c model.Condition) error
	// Publish writes to the status of the Node with this UID. It removes what is in before and not in wanted.
	Publish func(ctx context.Context, uid string, before, wanted []model.Published) error
	// Report writes the NodeReport of the Node with this UID.
	Report func(ctx context.Context, uid string, r model.Report) error
}

// Writer carries out decisions about the API.
type Writer struct {
	notices    *notices
	conditions *conditions
	writes     *writes
}

// New returns a writer that writes with these functions.
func New(cfg Config, log *faillog.Log) *Writer {
	return &Writer{
		notices:    newNotices(cfg.Notify, log),
		conditions: newConditions(cfg.SetCondition, log),
		writes:     newWrites(cfg.Publish, cfg.Report, log),
	}
}

// Run writes what is posted until the context ends.
func (w *Writer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.notices.run(ctx) })
	all.Go(func() { w.conditions.run(ctx) })
	all.Go(func() { w.writes.run(ctx) })
	all.Wait()
}

// Post takes the decisions of a round. While the pods are not known, only notices are delivered.
func (w *Writer) Post(n *model.Node, plan *model.Plan) {
	w.notices.post(plan.Notices)
	if n.PodsKnown {
		w.conditions.post(plan.Conditions, n.Pods)
		w.writes.start(n.Object.UID, n.Object.Published, plan)
	}
}

// Ended delivers a value when a write of the offer or of the report ended.
func (w *Writer) Ended() <-chan struct{} { return w.writes.ended }

// Writes returns the outcome of the writes of the offer and of the report so far.
func (w *Writer) Writes() model.APIWrites { return w.writes.state() }

// BadAnnotations returns how many annotations could not be used, by key.
func (w *Writer) BadAnnotations() map[string]uint64 { return w.notices.badAnnotations() }
