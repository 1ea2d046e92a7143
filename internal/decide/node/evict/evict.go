// Package evict decides which batch pod should leave its node when nothing else helps any more, and whether the node
// is too hot for new batch pods. It only requests evictions; package evictbudget decides them for the whole cluster.
//
// There are three reasons for an eviction. Memory for batch is exhausted: CPU can be taken back from batch within
// milliseconds, memory cannot. Or a batch pod starves: for minutes it has had hardly any of the CPU that it
// requested, and another node could run it better. Or it stalls: for minutes it has been at its own memory limit, and
// its tasks do nothing but wait for memory.
//
// There is one request at a time. The next one follows only after the memory freed by the previous eviction was
// measured and is not enough. In doubt, no pod is evicted.
package evict

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Memory for batch is exhausted while less than exhaustedBelow is left under the waterline, until exhaustedUntil is
// left, in thousandths of the node's memory. Before that, below 20, batch is limited and its page cache reclaimed, if
// the kernel supports it.
const (
	exhaustedBelow = 5
	exhaustedUntil = 20
)

// Durations.
const (
	maxSampleAge      = 5 * time.Second  // older measurements cause no eviction
	exhaustedFor      = 10 * time.Second // memory must be exhausted for this long, while limits and reclaim are tried
	settleTime        = 15 * time.Second // from the departure of a pod to the measurement of what is left
	interval          = time.Minute      // between two requests
	withdrawnInterval = 2 * time.Minute  // from a request that became unnecessary to the next one
	answerTimeout     = time.Minute      // then another pod is requested
	drainTimeout      = 3 * time.Minute  // the same for a worker of a pool, whose containers end first
	skipTime          = 10 * time.Minute // a pod that did not leave is not requested again for this long
	coolTime          = 3 * time.Minute  // from the last reason for an eviction until the node takes batch again
	maxGrace          = 5 * time.Minute  // longest termination grace period that is waited for
	maxLateness       = 30 * time.Second // beyond the grace period
)

// Others are the results of other rules in the same round.
type Others struct {
	Slack        *model.Slack
	Suppress     *model.Suppression
	Interference *model.Interference
	Limited      bool // batch pods are limited and their page cache reclaimed, because memory for batch is short
}

// State is the state between rounds. Times are on the clock of [model.Load]; 0: never.
type State struct {
	Clock     time.Duration // of the previous round
	Exhausted time.Duration // since when memory has been exhausted without interruption
	Short     bool          // it was exhausted for long enough, and there has not been enough since
	Hunger    []Since       `json:",omitempty"` // how long pods have starved, ordered by UID
	Stalls    []Since       `json:",omitempty"` // how long pods have stalled on their memory, ordered by UID
	Hot       time.Duration // when there was a reason for an eviction last
	Why       model.Code    // that reason
	Request   Request       // current request
	Requested time.Duration // time of the last request
	Quiet     time.Duration // no request until then
	// Pods that did not leave after a request, and until when they are skipped.
	Skipped []Since         `json:",omitempty"`
	Leaving []Since         `json:",omitempty"` // batch pods being deleted, for whatever reason, and since when
	Awaited string          // UID of the requested pod among them
	Left    []time.Duration `json:",omitempty"` // when requested pods began to leave, within the last hour
	Before  int64           // memory left for batch at the last request
	Last    model.Relief
}

// Since is a time for one pod.
type Since struct {
	UID string
	At  time.Duration
}

func (s *Since) uid() string { return s.UID }

// Request is a request that one pod leaves.
type Request struct {
	UID    string // "": no request
	Since  time.Duration
	Expect int64 // expected relief in bytes of memory; 0: memory is not the reason
	Left   int64 // bytes left for batch at the time of the request
	Reason model.Reason
}

// round is the working data of one round.
type round struct {
	n       *model.Node
	in      Others
	now     time.Duration
	elapsed time.Duration // since the previous round; 0: the node was not observed in between
	acts    bool
	watched bool // the previous round was recent
	state   State

	known   bool   // the amount of memory left is known
	left    int64  // bytes for batch
	starves string // UID of a pod that has starved for long; "": none
	stalls  bool   // a pod has stalled on its memory for long
}

// Decide returns the eviction request and the state of the node; nil if there is nothing to report.
func Decide(n *model.Node, p *model.Policy, in Others, s State) (*model.Evictions, State) {
	if p.Mode == model.ModeDisabled || n.Load == nil || in.Slack == nil {
		return nil, State{}
	}
	now := n.Load.Clock
	if now < s.Clock {
		s = State{} // from another boot
	}
	r := round{n: n, in: in, now: now, elapsed: now - s.Clock, acts: p.Mode == model.ModeEnforce, state: s}
	if r.watched = r.elapsed <= maxSampleAge && s.Clock != 0; !r.watched {
		r.elapsed, r.state.Exhausted, r.state.Short = 0, 0, false
	}
	r.state.Clock = now
	r.stall()
	if p.Protect.EvictPerHour <= 0 {
		r.state = State{Clock: now, Stalls: r.state.Stalls} // pods that stall are shown all the same
		return r.result(), r.state
	}
	r.memory()
	r.starve()
	r.heat()
	r.follow()
	r.request(p.Protect.EvictPerHour)
	return r.result(), r.state
}

// memory computes how much memory is left for batch, and since when it has been exhausted. The active page cache of
// batch counts as left, because the kernel reclaims it before anything else: no pod is evicted for it.
func (r *round) memory() {
	a, s := &r.in.Slack.Memory, &r.state
	if r.known = a.Use.Measured && a.Use.Age <= maxSampleAge && a.Capacity > 0; !r.known {
		s.Exhausted, s.Short = 0, false
		return
	}
	r.left = a.Allow - a.Use.Batch
	for _, pod := range r.n.Pods {
		if pod.Class != model.ClassBE {
			continue
		}
		if u := r.n.Load.Pod(pod.UID); u != nil && u.Memory.At != 0 {
			r.left += u.Memory.ActiveFile
		}
	}
	switch {
	case r.left >= a.Capacity/1000*exhaustedBelow:
		s.Exhausted = 0
	case s.Exhausted == 0:
		s.Exhausted = r.now
	}
	s.Short = s.Exhausted != 0 && r.now-s.Exhausted >= exhaustedFor || s.Short && r.left < a.Capacity/1000*exhaustedUntil
}

// heat decides whether the node is hot, and the reason. The node cools down after a while without a reason.
func (r *round) heat() {
	s := &r.state
	switch {
	case r.state.Short:
		s.Hot, s.Why = r.now, model.MemoryExhausted
	case r.starves != "":
		s.Hot, s.Why = r.now, model.BatchStarved
	case r.stalls && r.in.Limited: // the limit is Waterline's, because the node is short of memory
		s.Hot, s.Why = r.now, model.MemoryStalled
	case s.Hot != 0 && r.now-s.Hot >= coolTime:
		s.Hot, s.Why = 0, ""
	}
}

// stillNeeded reports whether the reason for a request still exists.
func (r *round) stillNeeded(req *Request, pod *model.Pod) bool {
	switch req.Reason.Code {
	case model.MemoryExhausted:
		return r.state.Short
	case model.MemoryStalled:
		since := find(r.state.Stalls, pod.UID)
		return since != nil && since.At >= stillStall
	}
	since := find(r.state.Hunger, pod.UID)
	return since != nil && since.At >= hungry
}

// follow updates the state of the requested pod and of pods that leave.
func (r *round) follow() {
	s := &r.state
	s.Left = slices.DeleteFunc(slices.Clone(s.Left), func(at time.Duration) bool { return r.now-at >= time.Hour })
	s.Skipped = slices.DeleteFunc(slices.Clone(s.Skipped), func(a Since) bool { return r.now >= a.At })
	if s.Request.UID != "" {
		r.answer()
	}
	var leaving []Since
	for _, pod := range r.n.Pods {
		if pod.Class != model.ClassBE || !pod.Leaving || !r.n.Runs(pod) {
			continue
		}
		since := Since{pod.UID, r.now}
		if before := find(s.Leaving, pod.UID); before != nil {
			since = *before
		}
		leaving = append(leaving, since)
	}
	s.Leaving = leaving
	if s.Awaited != "" && !r.leaves(s.Awaited) {
		s.Awaited, s.Quiet = "", max(s.Quiet, r.now+settleTime)
	}
	if s.Last.UID != "" && r.now-s.Last.At >= time.Hour {
		s.Last = model.Relief{}
	}
	if l := &s.Last; l.UID != "" && !l.Seen && s.Awaited == "" && r.now >= s.Quiet && r.known {
		l.Seen, l.Observed = true, r.left-s.Before
	}
}

// answer checks what became of the requested pod.
func (r *round) answer() {
	s := &r.state
	req := s.Request
	pod := model.FindPod(r.n.Pods, req.UID)
	switch {
	case pod == nil || pod.Leaving || !r.n.Runs(pod):
		s.Request, s.Awaited = Request{}, req.UID
		s.Left = append(s.Left, r.now)
		s.Last = model.Relief{}
		if req.Expect > 0 {
			s.Before, s.Last = req.Left, model.Relief{UID: req.UID, At: r.now, Expected: req.Expect}
		}
		for i := range s.Hunger {
			s.Hunger[i].At = min(s.Hunger[i].At, hungry) // the remaining pods have more CPU now
		}
	case !r.may(pod) || !r.stillNeeded(&req, pod):
		s.Request, s.Quiet = Request{}, r.now+withdrawnInterval
	case r.acts && r.now-req.Since >= patience(pod):
		s.Request = Request{}
		s.Skipped = insert(s.Skipped, Since{req.UID, r.now + skipTime})
	}
}

// patience returns the time after which a request counts as unanswered.
func patience(pod *model.Pod) time.Duration {
	if pod.Pool != "" {
		return drainTimeout
	}
	return answerTimeout
}

// leaves reports whether a pod is leaving within its grace period. A pod that never terminates must not block other
// requests.
func (r *round) leaves(uid string) bool {
	since, pod := find(r.state.Leaving, uid), model.FindPod(r.n.Pods, uid)
	return since != nil && pod != nil && r.now-since.At < min(max(pod.Grace, 0), maxGrace)+maxLateness
}

// request decides whether to request an eviction now, and of which pod.
func (r *round) request(perHour int64) {
	s := &r.state
	switch {
	case s.Request.UID != "" || s.Awaited != "" || int64(len(s.Left)) >= perHour,
		r.now < s.Quiet || s.Requested != 0 && r.now-s.Requested < interval:
		return
	}
	var best candidate
	switch {
	case r.state.Short:
		best = r.forMemory()
	case r.stalls:
		best = r.forStall()
	case r.starves != "":
		best = r.forCPU()
	}
	if best.pod == nil {
		return
	}
	s.Request = Request{UID: best.pod.UID, Since: r.now, Expect: best.bytes, Left: r.left, Reason: best.reason}
	s.Requested = r.now
}

// result returns the decision.
func (r *round) result() *model.Evictions {
	s := &r.state
	e := &model.Evictions{Last: s.Last, Stalls: r.stallsShown()}
	if s.Hot != 0 {
		ago := int64((r.now - s.Hot) / time.Second)
		e.Hot = model.Reason{
			Code: s.Why, Operands: []model.Operand{{Name: "ago", Value: ago, Unit: model.UnitSeconds}},
		}
	}
	if pod := model.FindPod(r.n.Pods, s.Request.UID); pod != nil && s.Request.UID != "" {
		e.Request = &model.Eviction{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: s.Request.Reason}
		if !r.acts {
			e.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
		}
	}
	if e.Hot.Code == "" && e.Request == nil && e.Last.UID == "" && e.Stalls == nil {
		return nil
	}
	return e
}

func find(list []Since, uid string) *Since { return model.FindByUID(list, uid, (*Since).uid) }

func insert(list []Since, s Since) []Since {
	i, _ := model.IndexByUID(list, s.UID, (*Since).uid)
	return slices.Insert(list, i, s)
}
