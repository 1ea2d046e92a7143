package publish

import (
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	echoTimeout = 3 * time.Second        // until an offer is written again that the Node does not show
	minRetry    = 500 * time.Millisecond // until a write to the Node that failed is tried again; doubles each time
	maxRetry    = 5 * time.Second        // the most that this becomes
	reportPause = 15 * time.Second       // between two reports in which only amounts differ
	cpusPause   = 2 * time.Second        // between two reports in which only free CPUs differ, or less is left for workers
	reportRetry = 10 * time.Second       // until a report whose write failed is tried again
	signalPause = 8 * time.Minute        // between two reports in which only signals and conditions differ, on average
	signalBurst = 2                      // such reports that may come at once after a quiet time, beyond the first
	renewal     = 20 * time.Second       // until an eviction request is renewed
	loadPause   = time.Minute            // between two reports in which only the predicted peak differs
	restStep    = 20                     // of the capacity: the nth part is a fall of the rest that counts at once
	loadStep    = 50                     // the change of the predicted peak that counts, in thousandths of the capacity
	reportAge   = 20 * time.Minute       // until a report with amounts that do not change is written again; ± spread
	spread      = reportAge / 5
	never       = time.Duration(math.MaxInt64)
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
	CPU     int64     // predicted peak of online pods within an hour, in milli-cores
	Memory  int64     // the same in bytes
	At      time.Time // zero: none was
	Signals time.Time // until when changes of signals and conditions have used up their budget
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
	Starved     string
	Hot         model.Code
	Unrestored  int64
	Evict       string // UID of the pod whose eviction is requested
	EvictReason model.Code
	CPU, Memory amounts
	CPUs        cpus
}

// cpus is the room for pods that request their own CPUs. The cores follow from the CPUs that are online.
type cpus struct {
	Known        bool
	Online, Free model.CPUSet `json:",omitzero"`
	Exclusive    int
}

type amounts struct {
	Offer, Bound model.TierAmounts
	Capacity     int64
}

// Writes decides whether the publication and the report are written now. It returns when that must be decided again;
// zero: only when something changes.
//
// What the API shows counts, not what was written: a value that a kubelet or another writer changed on the Node is put
// right at once. A shrinking offer is seen on the Node, so few readers wait for amounts in a report. One that does is
// the pool of a worker on this node, whose containers have what no batch pod requests.
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
		failures, wait = a.Failures+1, min(minRetry<<min(a.Failures, 8), maxRetry)
	case same:
		wait = echoTimeout
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
	signals := now.Harm != last.Harm || now.Starved != last.Starved || now.Unsupported != last.Unsupported ||
		now.Hot != last.Hot
	amountsOnly := last
	amountsOnly.CPU, amountsOnly.Memory, amountsOnly.CPUs = now.CPU, now.Memory, now.CPUs
	amountsOnly.Harm, amountsOnly.Unsupported, amountsOnly.Hot = now.Harm, now.Unsupported, now.Hot
	amountsOnly.Starved = now.Starved
	wait := never
	switch { // the shortest that applies
	case now != amountsOnly:
		wait = 0
	case now.CPUs != last.CPUs, sized(n) && falls(&last, &now):
		wait = cpusPause
	case now.CPU != last.CPU || now.Memory != last.Memory:
		wait = reportPause
	case r.Evict != nil:
		// The manager trusts no clock but its own: a request that does not change for a minute is too old for it.
		wait = renewal
	case r.Slack != nil && s.moved(r.Slack):
		wait = loadPause
	case r.Slack != nil:
		// Readers trust no amounts that are half an hour old, and a node that sells nothing may have no other change.
		wait = oldest(n.Object.UID)
	}
	if r.Evict != nil {
		wait = min(wait, renewal)
	}
	// Signals may change in any rhythm, which a tenant may choose: at most ten in an hour are reported at once. Those that
	// are part of a report which is written anyway cost nothing.
	charged := signals && remaining(n.Now, s.At, wait) > 0
	if signals {
		wait = min(wait, signalPause, max(s.Signals.Add(-signalBurst*signalPause).Sub(s.At), 0))
	}
	if n.Writes.Report.Failed {
		wait = max(wait, reportRetry)
	}
	switch {
	case n.Writes.Report.Busy, wait == never:
		return false, s, again // the end of the write wakes the agent
	case remaining(n.Now, s.At, wait) > 0:
		return false, s, s.At.Add(wait)
	}
	next = Reported{Content: now, At: n.Now, Signals: s.Signals}
	if charged {
		if next.Signals.Before(n.Now) {
			next.Signals = n.Now
		}
		next.Signals = next.Signals.Add(signalPause)
	}
	if r.Slack != nil {
		next.CPU, next.Memory = peak(&r.Slack.CPU), peak(&r.Slack.Memory)
	}
	return true, next, again
}

// sized reports whether a worker of a pool is on the node.
func sized(n *model.Node) bool {
	return slices.ContainsFunc(n.Pods, func(p *model.Pod) bool { return p.Pool != "" && !p.Ended })
}

// falls reports whether so much less is left for workers than was reported that their pool should know at once. What
// rises can wait. So can less than the part of a node that a pool does not follow anyway.
func falls(last, now *content) bool {
	rest := func(a *amounts) int64 { return a.Offer.Batch - a.Bound.Batch }
	far := func(last, now *amounts) bool {
		fall := rest(last) - rest(now)
		return fall > 0 && fall >= now.Capacity/restStep
	}
	return far(&last.CPU, &now.CPU) || far(&last.Memory, &now.Memory)
}

// moved reports whether the predicted peak of online pods has changed so much since the report that schedulers should
// know. The peak is at least what they used in the last minute. What they use in one second does not count: it would
// have reports written each minute on nodes where nothing changes for long.
func (s Reported) moved(now *model.Slack) bool {
	far := func(a *model.Account, before int64) bool {
		change := peak(a) - before
		return max(change, -change) >= max(a.Capacity*loadStep/1000, 1)
	}
	return far(&now.CPU, s.CPU) || far(&now.Memory, s.Memory)
}

// peak returns the most that online pods are expected to use within an hour.
func peak(a *model.Account) int64 { return min(a.Peaks[model.Hour].Value, a.Capacity) }

// oldest returns the age at which the report of a node is written again. It differs between nodes, so that the agents
// of a cluster that started together do not write together.
func oldest(uid string) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // never fails
	return reportAge - spread + time.Duration(h.Sum64()%uint64(2*spread+1))
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
		Harm: r.Harm, Starved: strings.Join(r.Starved, "\n"),
		Unrestored: r.Unrestored,
	}
	if e := r.Evict; e != nil {
		c.Evict, c.EvictReason = e.UID, e.Reason.Code
	}
	if len(r.Unsupported)+len(r.Faults) > 0 {
		var all strings.Builder
		for _, fault := range r.Faults {
			all.WriteString(fault)
			all.WriteByte(' ')
		}
		for _, code := range r.Unsupported {
			all.WriteString(string(code))
			all.WriteByte(' ')
		}
		c.Unsupported = all.String()
	}
	if room := r.CPUs; room != nil {
		c.CPUs = cpus{Known: true, Online: room.Topology.Online(), Free: room.Free, Exclusive: room.Exclusive}
	}
	if r.Slack != nil {
		c.CPU, c.Memory = amountsOf(&r.Slack.CPU), amountsOf(&r.Slack.Memory)
	}
	return c
}

func amountsOf(a *model.Account) amounts {
	return amounts{Offer: a.Offer, Bound: a.Bound, Capacity: a.Capacity}
}
