package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// unanswered is how long what was published may not show on the Node before it is published again.
const unanswered = 3 * time.Second

// publisher brings what stands on the Node to what plans say. What the API shows counts, not what was sent: so what a
// kubelet or somebody else changes there is put right at once.
type publisher struct {
	write func(ctx context.Context, uid string, stands, should []model.Published) error
	log   *troubles
	wake  chan struct{}

	mu      sync.Mutex
	job     *publication // to be written; nil: nothing is
	sent    *publication // was written, and does not show yet
	sentAt  time.Time
	written uint64
	failed  uint64
}

// publication is what stands on one Node and what should.
type publication struct {
	uid            string
	stands, should []model.Published
}

func (p *publication) equal(q *publication) bool {
	return p != nil && q != nil && p.uid == q.uid && slices.Equal(p.stands, q.stands) && slices.Equal(p.should, q.should)
}

func newPublisher(write func(context.Context, string, []model.Published, []model.Published) error, log *troubles) *publisher {
	return &publisher{write: write, log: log, wake: make(chan struct{}, 1)}
}

// post takes what a plan wants to stand on the Node, and what the API shows there.
func (p *publisher) post(plan *model.Publication, uid string, stands []model.Published) {
	if p.write == nil || !plan.Decided || uid == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	job := &publication{uid, stands, plan.Resources}
	p.job = nil
	switch {
	case slices.Equal(stands, plan.Resources):
		p.sent = nil
		return
	case job.equal(p.sent) && time.Since(p.sentAt) < unanswered:
		return
	}
	p.job = job
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run writes what is posted. What could not be written is tried again by the next round, unless that wants something else.
func (p *publisher) run(ctx context.Context) {
	const rest, longest = 500 * time.Millisecond, 5 * time.Second
	wait := rest
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		job := p.take()
		if job == nil {
			continue
		}
		err := p.write(ctx, job.uid, job.stands, job.should)
		p.log.report("publishing", err)
		if p.done(job, err); err == nil {
			wait = rest
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, longest)
	}
}

func (p *publisher) take() *publication {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := p.job
	p.job = nil
	if job != nil {
		p.sent, p.sentAt = job, time.Now()
	}
	return job
}

func (p *publisher) done(job *publication, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written++
	if err != nil {
		p.failed++
		if job.equal(p.sent) {
			p.sent = nil
		}
	}
}
