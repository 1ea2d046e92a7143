package apiwriter

import (
	"context"
	"sync"

	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/model"
)

// writes carries out the writes to the API that plans want about this node, at most one of each kind at a time. Plans
// decide when; the outcome is part of the next round's input.
type writes struct {
	offer  *writer[offer]
	report *writer[report]
	ended  chan struct{} // a write ended
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

// publishOffer writes to the status of the Node with this UID. It removes what is in before and not in wanted.
type publishOffer = func(ctx context.Context, uid string, before, wanted []model.Published) error

// writeReport writes the NodeReport of the Node with this UID.
type writeReport = func(ctx context.Context, uid string, r model.Report) error

func newWrites(publish publishOffer, write writeReport, log *faillog.Log) *writes {
	w := &writes{ended: make(chan struct{}, 1)}
	w.offer = newWriter(w.ended, func(ctx context.Context, o offer) error {
		err := publish(ctx, o.uid, o.before, o.wanted)
		log.Report("publishing", err)
		return err
	})
	w.report = newWriter(w.ended, func(ctx context.Context, r report) error {
		err := write(ctx, r.uid, r.content)
		log.Report("reporting", err)
		return err
	})
	if publish == nil {
		w.offer = nil
	}
	if write == nil {
		w.report = nil
	}
	return w
}

// start begins the writes that a plan wants now. before is the current content of the Node.
func (w *writes) start(uid string, before []model.Published, plan *model.Plan) {
	if plan.Publish.Write {
		w.offer.start(offer{uid, before, plan.Publish.Resources})
	}
	if plan.Report.Write {
		w.report.start(report{uid, plan.Report})
	}
}

// state returns the outcome of the writes so far.
func (w *writes) state() model.APIWrites {
	return model.APIWrites{Offer: w.offer.state(), Report: w.report.state()}
}

// run writes until the context ends.
func (w *writes) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { w.offer.run(ctx) })
	both.Go(func() { w.report.run(ctx) })
	both.Wait()
}

// writer carries out one kind of write. A nil writer writes nothing.
type writer[T any] struct {
	write func(ctx context.Context, job T) error
	jobs  chan T
	ended chan<- struct{}

	mu   sync.Mutex
	last model.APIWrite
}

func newWriter[T any](ended chan<- struct{}, write func(context.Context, T) error) *writer[T] {
	return &writer[T]{write: write, jobs: make(chan T, 1), ended: ended}
}

// start begins a write, unless one is under way.
func (w *writer[T]) start(job T) {
	if w == nil || w.state().Busy {
		return
	}
	w.set(model.APIWrite{Busy: true})
	w.jobs <- job
}

func (w *writer[T]) state() model.APIWrite {
	if w == nil {
		return model.APIWrite{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *writer[T]) set(state model.APIWrite) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = state
}

func (w *writer[T]) run(ctx context.Context) {
	if w == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-w.jobs:
			w.set(model.APIWrite{Failed: w.write(ctx, job) != nil})
		}
		select {
		case w.ended <- struct{}{}:
		default:
		}
	}
}
