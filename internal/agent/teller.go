package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/waterline-io/waterline/internal/model"
)

// Teller tells the API what was decided about a node: what it sells, and its report. It writes as seldom as it can, which is
// why simulations count its writes.
type Teller struct {
	publisher *publisher
	reporter  *reporter
}

// NewTeller returns a teller that writes with these functions; with nil ones it does not.
func NewTeller(publish func(ctx context.Context, uid string, stands, should []model.Published) error, report func(context.Context, string, model.Report) error, log *slog.Logger) *Teller {
	return newTeller(publish, report, newTroubles(log))
}

func newTeller(publish func(context.Context, string, []model.Published, []model.Published) error, report func(context.Context, string, model.Report) error, log *troubles) *Teller {
	return &Teller{newPublisher(publish, log), newReporter(report, log)}
}

// Post takes what a round decided about the Node with this UID. Stands is what the API shows there, reported whether it shows
// a report.
func (t *Teller) Post(plan *model.Publication, uid string, stands []model.Published, report model.Report, reported bool) {
	t.publisher.post(plan, uid, stands)
	t.reporter.post(uid, report, reported)
}

// Run writes what is posted until the context ends.
func (t *Teller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { t.publisher.run(ctx) })
	wg.Go(func() { t.reporter.run(ctx) })
	wg.Wait()
}
