package publish

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	unseen      = 3 * time.Second        // until an offer is written again that the Node does not show
	shortest    = 500 * time.Millisecond // until a write to the Node that failed is tried again; doubles each time
	longest     = 5 * time.Second        // the most that this becomes
	reportPause = 15 * time.Second       // between two reports in which only amounts differ
	reportRetry = 10 * time.Second       // until a report whose write failed is tried again
	renewal     = 20 * time.Second       // until an eviction request is renewed
)

// State is what is remembered of writes to the API. The agent forgets it when it restarts.
type State struct {
	Offer  Attempt
	Report Reported
}

// Attempt is the last write to the Node's status that the Node does not show yet.
type Attempt struct {
	UID      string // of the Node
	Before   []model.Published
	Wanted   []model.Published
	At       time.Time // zero: there is none
	Failures int       // failed attempts in a row before it
}

// Reported is the last report that was written.
type Reported struct {
	Content content
	At      time.Time // zero: none was
}

// content is the part of a report that something acts on. A report is written when it changes.
type content struct {
	UID         string // of the Node
	Policy      string
	Generation  int64
	Mode        model.Mode
	Selling     model.SellState
	Unsupported string
	Harm        model.HarmSignal
	Hot         model.Code
	Unrestored  int64
	Evict       string // UID of the pod whose eviction is requested
	EvictReason model.Code
	CPU, Memory amounts
}

type amounts struct {
	Offer, Bound model.TierAmounts
	Capacity     int64
}

// Writes decides whether the publication and the report are written now. It returns when that must be decided again;
// zero: only when something changes.
//
// What the API shows counts, not what was written: a value that a kubelet or another writer changed on the Node is put
// right at once. A shrinking offer is seen on the Node, so no reader waits for amounts in a report.
func Writes(n *model.Node, p *model.Publication, r *model.Report, s State) (State, time.Time) {
	if n.Object.UID == "" || !n.PodsKnown {
		return s, time.Time{}
	}
	var next, then time.Time
	p.Write, s.Offer, next = s.Offer.decide(n, p)
	r.Write, s.Report, then = s.Report.decide(n, r)
	if next.IsZero() || !then.IsZero() && then.Before(next) {
		next = then
	}
	return s, next
}

func (a Attempt) decide(n *model.Node, p *model.Publication) (write bool, next Attempt, again time.Time) {
	stands, w := n.Object.Published, n.Writes.Offer
	switch {
	case !p.Decided:
		return false, a, again
	case slices.Equal(stands, p.Resources):
		return false, Attempt{}, again
	case w.Busy:
		return false, a, again // its end wakes the agent
	}
	same := a.UID == n.Object.UID && slices.Equal(a.Before, stands) && slices.Equal(a.Wanted, p.Resources)
	failures, wait := 0, time.Duration(0)
	switch {
	case w.Failed:
		failures, wait = a.Failures+1, min(shortest<<min(a.Failures, 8), longest)
	case same:
		wait = unseen
	}
	if remaining(n.Now, a.At, wait) > 0 {
		return false, a, a.At.Add(wait)
	}
	return true, Attempt{UID: n.Object.UID, Before: stands, Wanted: p.Resources, At: n.Now, Failures: failures}, again
}

func (s Reported) decide(n *model.Node, r *model.Report) (write bool, next Reported, again time.Time) {
	last, now := s.Content, contentOf(n.Object.UID, r)
	if !n.Object.Reported && remaining(n.Now, s.At, reportPause) <= 0 || n.Writes.Report.Failed {
		last = content{} // the report was deleted, or never written
	}
	amountsOnly := last
	amountsOnly.CPU, amountsOnly.Memory = now.CPU, now.Memory
	wait := time.Duration(0)
	switch {
	case now != amountsOnly:
	case now != last:
		wait = reportPause
	case r.Evict != nil:
		// The manager trusts no clock but its own: a request that does not change for a minute is too old for it.
		wait = renewal
	default:
		return false, s, again
	}
	if r.Evict != nil {
		wait = min(wait, renewal)
	}
	if n.Writes.Report.Failed {
		wait = max(wait, reportRetry)
	}
	switch {
	case n.Writes.Report.Busy:
		return false, s, again // its end wakes the agent
	case remaining(n.Now, s.At, wait) > 0:
		return false, s, s.At.Add(wait)
	}
	return true, Reported{Content: now, At: n.Now}, again
}

// remaining returns how much of a time from at on is left. After the clock was set back nothing is.
func remaining(now, at time.Time, d time.Duration) time.Duration {
	if at.IsZero() || now.Before(at) {
		return 0
	}
	return d - now.Sub(at)
}

func contentOf(uid string, r *model.Report) content {
	c := content{
		UID: uid, Policy: r.Policy, Generation: r.Generation, Mode: r.Mode, Selling: r.Selling, Hot: r.Hot,
		Harm:       r.Harm,
		Unrestored: r.Unrestored,
	}
	if e := r.Evict; e != nil {
		c.Evict, c.EvictReason = e.UID, e.Reason.Code
	}
	if len(r.Unsupported) > 0 {
		var all strings.Builder
		for _, code := range r.Unsupported {
			all.WriteString(string(code))
			all.WriteByte(' ')
		}
		c.Unsupported = all.String()
	}
	if r.Slack != nil {
		c.CPU, c.Memory = amountsOf(&r.Slack.CPU), amountsOf(&r.Slack.Memory)
	}
	return c
}

func amountsOf(a *model.Account) amounts {
	return amounts{Offer: a.Offer, Bound: a.Bound, Capacity: a.Capacity}
}
