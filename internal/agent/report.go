package agent

import (
	"context"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// reportPause is the least time between two reports that tell of nothing but amounts. A shrinking offer is seen on the Node,
// so nobody waits for them.
const reportPause = 15 * time.Second

// renewal is how often a pod is asked for again that should leave: the manager trusts no clock but its own, by which a request
// that does not change is old after a minute.
const renewal = 20 * time.Second

// reporter writes the node's report when something in it has changed that somebody acts on.
type reporter struct {
	write func(ctx context.Context, uid string, r model.Report) error
	log   *troubles
	wake  chan struct{}

	mu     sync.Mutex
	uid    string
	latest model.Report
	told   told // by the last report; the zero value: nothing
	at     time.Time
	due    bool
}

// told is what makes a report worth writing.
type told struct {
	uid, policy      string
	generation       int64
	mode             model.Mode
	selling          model.SellState
	unsupported, hot string
	leaves           string // who should leave, and why
	cpu, memory      toldAmounts
}

type toldAmounts struct {
	offer, bound model.TierAmounts
	capacity     int64
}

func newReporter(write func(context.Context, string, model.Report) error, log *troubles) *reporter {
	return &reporter{write: write, log: log, wake: make(chan struct{}, 1)}
}

func tells(uid string, r *model.Report) told {
	t := told{uid: uid, policy: r.Policy, generation: r.Generation, mode: r.Mode, selling: r.Selling, hot: string(r.Hot)}
	if e := r.Evict; e != nil {
		t.leaves = e.UID + " " + string(e.Reason.Code)
	}
	for _, code := range r.Unsupported {
		t.unsupported += string(code) + " "
	}
	amounts := func(a *model.Account) toldAmounts {
		return toldAmounts{offer: a.Offer, bound: a.Bound, capacity: a.Capacity}
	}
	if r.Slack != nil {
		t.cpu, t.memory = amounts(&r.Slack.CPU), amounts(&r.Slack.Memory)
	}
	return t
}

// post takes the report of a round. Where there is none though one was written, because somebody deleted it, it is written
// again.
func (r *reporter) post(uid string, report model.Report, exists bool) {
	if r.write == nil || uid == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !exists && time.Since(r.at) >= reportPause {
		r.told = told{}
	}
	now := tells(uid, &report)
	amountsOnly := r.told
	amountsOnly.cpu, amountsOnly.memory = now.cpu, now.memory
	r.uid, r.latest = uid, report
	r.due = now != r.told && (now != amountsOnly || time.Since(r.at) >= reportPause) || report.Evict != nil && time.Since(r.at) >= renewal
	if r.due {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// run writes reports that are due.
func (r *reporter) run(ctx context.Context) {
	deliver(ctx, r.wake, r.next, func(job reportJob) error {
		err := r.write(ctx, job.uid, job.report)
		r.log.report("reporting", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.at = time.Now(); err != nil {
			r.told = told{}
		}
		return err
	})
}

// reportJob is a report that is due.
type reportJob struct {
	uid    string
	report model.Report
}

func (r *reporter) next() (reportJob, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.due {
		return reportJob{}, false
	}
	r.due, r.told = false, tells(r.uid, &r.latest)
	return reportJob{r.uid, r.latest}, true
}
