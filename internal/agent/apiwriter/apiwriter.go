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

// Writer carries out decisions about the API. Of the offer and of the report, at most one write each is under way.
// Plans decide when, and the outcome is part of the next round's input.
type Writer struct {
	notices    *notices
	conditions *conditions
	offer      *writer[offer]
	report     *writer[report]
	ended      chan struct{} // a write of the offer or of the report ended
}

// offer is the wanted content of the Node's status.
type offer struct {
	uid            string // of the Node
	before, wanted []model.Published
}

// report is the wanted content of the NodeReport.
type report struct {
	uid     string // of the Node
	content model.Report
}

// New returns a writer that writes with these functions.
func New(cfg Config, log *faillog.Log) *Writer {
	w := &Writer{
		notices:    newNotices(cfg.Notify, log),
		conditions: newConditions(cfg.SetCondition, log),
		ended:      make(chan struct{}, 1),
	}
	if cfg.Publish != nil {
		w.offer = newWriter(w.ended, func(ctx context.Context, o offer) error {
			err := cfg.Publish(ctx, o.uid, o.before, o.wanted)
			log.Report("publishing", err)
			return err
		})
	}
	if cfg.Report != nil {
		w.report = newWriter(w.ended, func(ctx context.Context, r report) error {
			err := cfg.Report(ctx, r.uid, r.content)
			log.Report("reporting", err)
			return err
		})
	}
	return w
}

// Run writes what is posted until the context ends.
func (w *Writer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { w.notices.run(ctx) })
	all.Go(func() { w.conditions.run(ctx) })
	all.Go(func() { w.offer.run(ctx) })
	all.Go(func() { w.report.run(ctx) })
	all.Wait()
}

// Post takes the decisions of a round. While the pods are not known, only notices are delivered.
func (w *Writer) Post(n *model.Node, plan *model.Plan) {
	w.notices.post(plan.Notices)
	if !n.PodsKnown {
		return
	}
	w.conditions.post(plan.Conditions, n.Pods)
	if plan.Publish.Write {
		w.offer.start(offer{n.Object.UID, n.Object.Published, plan.Publish.Resources})
	}
	if plan.Report.Write {
		w.report.start(report{n.Object.UID, plan.Report})
	}
}

// Ended delivers a value when a write of the offer or of the report ended.
func (w *Writer) Ended() <-chan struct{} { return w.ended }

// Writes returns the outcome of the writes of the offer and of the report so far.
func (w *Writer) Writes() model.APIWrites {
	return model.APIWrites{Offer: w.offer.state(), Report: w.report.state()}
}

// BadAnnotations returns how many annotations could not be used, by key.
func (w *Writer) BadAnnotations() map[string]uint64 { return w.notices.badAnnotations() }
