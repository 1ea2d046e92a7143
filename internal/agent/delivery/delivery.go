// Package delivery carries what plans decide to the API: events, conditions of pods, the offer and the report of the
// node. It decides nothing: it queues, tries again and drops repetitions, beside the agent's loop.
package delivery

import (
	"context"
	"sync"

	"github.com/waterline-io/waterline/internal/agent/trouble"
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

// Delivery carries out decisions about the API.
type Delivery struct {
	notices    *notices
	conditions *conditions
	writes     *writes
}

// New returns a delivery that writes with these functions.
func New(cfg Config, log *trouble.Log) *Delivery {
	return &Delivery{
		notices:    newNotices(cfg.Notify, log),
		conditions: newConditions(cfg.SetCondition, log),
		writes:     newWrites(cfg.Publish, cfg.Report, log),
	}
}

// Run writes what is posted until the context ends.
func (d *Delivery) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { d.notices.run(ctx) })
	all.Go(func() { d.conditions.run(ctx) })
	all.Go(func() { d.writes.run(ctx) })
	all.Wait()
}

// Post takes the decisions of a round. While the pods are not known, only notices are delivered.
func (d *Delivery) Post(n *model.Node, plan *model.Plan) {
	d.notices.post(plan.Notices)
	if n.PodsKnown {
		d.conditions.post(plan.Conditions, n.Pods)
		d.writes.start(n.Object.UID, n.Object.Published, plan)
	}
}

// Ended delivers a value when a write of the offer or of the report ended.
func (d *Delivery) Ended() <-chan struct{} { return d.writes.ended }

// Writes returns the outcome of the writes of the offer and of the report so far.
func (d *Delivery) Writes() model.APIWrites { return d.writes.state() }

// BadAnnotations returns how many annotations could not be used, by key.
func (d *Delivery) BadAnnotations() map[string]uint64 { return d.notices.badAnnotations() }
