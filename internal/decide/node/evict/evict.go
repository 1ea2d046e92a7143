// Package evict decides which batch pod should leave its node, when nothing that is done on the node helps any more, and
// whether the node is so hot that it takes no new ones. It asks; who may be evicted is decided for the whole cluster.
//
// There are two reasons. No memory is left for batch: CPU that batch was given comes back within milliseconds, memory does
// not. Or a batch pod starves: for minutes it has had hardly any of the CPU that it was sold, and is better off elsewhere.
//
// One pod is asked for at a time, and the next only when what the one before freed was measured and is not enough. Whatever
// is in doubt evicts nobody.
package evict

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Memory is gone for batch while less than gone is left for it under the waterline, and there is enough again above enough, in
// thousandths of the node's memory. Before that, from 20 on, batch is held and asked for page cache where the kernel can do that.
const (
	gone   = 5
	enough = 20
)

// How long things take.
const (
	fresh      = 5 * time.Second  // what was measured longer ago asks for nobody
	tried      = 10 * time.Second // for which memory must be gone without a pause, while less was done about it
	settling   = 15 * time.Second // after a pod has left, until it counts what is left
	window     = time.Minute      // between two pods that are asked for
	again      = 2 * time.Minute  // after a request that was needed no more, until the next
	unanswered = time.Minute      // after which somebody else is asked for
	aside      = 10 * time.Minute // and this one is left alone
	cool       = 3 * time.Minute  // after the last reason, for which the node takes no batch
	mostGrace  = 5 * time.Minute  // of a pod that leaves, which is waited for
	late       = 30 * time.Second // beyond that
)

// Others is what other rules decided in the same round.
type Others struct {
	Slack        *model.Slack
	Suppress     *model.Suppression
	Interference *model.Interference
	Held         bool // batch is held, and asked for page cache, because memory for it is near its end
}

// State is what must be remembered from one round to the next. Times are on the clock of [model.Load]; 0: never.
type State struct {
	Clock   time.Duration   // of the round before
	Gone    time.Duration   // since when memory has been gone without a pause
	Short   bool            // it was for long enough, and there has not been enough since
	Hunger  []Since         `json:",omitempty"` // for how long pods have starved, ordered by UID
	Hot     time.Duration   // when there last was a reason
	Why     model.Code      // which
	Ask     Ask             // who is asked for
	Asked   time.Duration   // when somebody was asked for last
	Quiet   time.Duration   // until when nobody is
	Aside   []Since         `json:",omitempty"` // pods that did not leave though they were asked for, until when that counts
	Leaving []Since         `json:",omitempty"` // batch pods that leave, whoever had them deleted, and since when
	Wait    string          // UID of the one of them that was asked for
	Left    []time.Duration `json:",omitempty"` // when such pods began to leave, within the hour
	Frozen  Frozen
	Thawed  time.Duration // when the last one was let go on
	Before  int64         // memory that was left for batch when the last of them was asked for
	Last    model.Relief
}

// Since is a time of one pod.
type Since struct {
	UID string
	At  time.Duration
}

// Ask is a request for one pod to leave.
type Ask struct {
	UID    string // "": nobody is asked for
	Since  time.Duration
	Expect int64 // bytes of memory; 0: it does not leave for that
	Left   int64 // bytes that were left for batch then
	Reason model.Reason
}

// round is one round.
type round struct {
	n       *model.Node
	in      Others
	now     time.Duration
	elapsed time.Duration // since the round before; 0: nobody watched meanwhile
	acts    bool
	watched bool // it is not long since the round before
	state   State

	known   bool   // how much memory is left is known
	left    int64  // for batch, in bytes
	starves string // a pod that has starved for long; "": none
}

// Decide says who should leave: nil if there is nothing to say.
func Decide(n *model.Node, p *model.Policy, in Others, s State) (*model.Evictions, State) {
	if p.Protect.EvictPerHour <= 0 || p.Mode == model.ModeDisabled || n.Load == nil || in.Slack == nil {
		return nil, State{}
	}
	now := n.Load.Clock
	if now < s.Clock {
		s = State{} // of another boot
	}
	r := round{n: n, in: in, now: now, elapsed: now - s.Clock, acts: p.Mode == model.ModeEnforce, state: s}
	if r.watched = r.elapsed <= fresh && s.Clock != 0; !r.watched {
		r.elapsed, r.state.Gone, r.state.Short = 0, 0, false
	}
	r.state.Clock = now
	r.memory()
	r.starve()
	r.heat()
	r.follow()
	r.freeze(p.Protect.Freeze)
	r.ask(p.Protect.EvictPerHour)
	return r.result(), r.state
}

// memory finds how much is left for batch, and since when that is nothing. What batch keeps in page cache counts as left,
// because the kernel takes that before anything else: nobody is evicted for it.
func (r *round) memory() {
	a, s := &r.in.Slack.Memory, &r.state
	if r.known = a.Use.Measured && a.Use.Age <= fresh && a.Capacity > 0; !r.known {
		s.Gone, s.Short = 0, false
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
	case r.left >= a.Capacity/1000*gone:
		s.Gone = 0
	case s.Gone == 0:
		s.Gone = r.now
	}
	s.Short = s.Gone != 0 && r.now-s.Gone >= tried || s.Short && r.left < a.Capacity/1000*enough
}

// heat decides whether the node is hot, and for which reason. It cools down when none has been there for a while.
func (r *round) heat() {
	s := &r.state
	switch {
	case r.state.Short:
		s.Hot, s.Why = r.now, model.MemoryGone
	case r.starves != "":
		s.Hot, s.Why = r.now, model.BatchStarved
	case s.Hot != 0 && r.now-s.Hot >= cool:
		s.Hot, s.Why = 0, ""
	}
}

// holds reports whether there still is the reason for which somebody is asked for.
func (r *round) holds(ask *Ask, pod *model.Pod) bool {
	if ask.Reason.Code == model.MemoryGone {
		return r.state.Short
	}
	i, known := find(r.state.Hunger, pod.UID)
	return known && r.state.Hunger[i].At >= hungry
}

// follow finds what became of who was asked for, and of who leaves.
func (r *round) follow() {
	s := &r.state
	s.Left = slices.DeleteFunc(slices.Clone(s.Left), func(at time.Duration) bool { return r.now-at >= time.Hour })
	s.Aside = slices.DeleteFunc(slices.Clone(s.Aside), func(a Since) bool { return r.now >= a.At })
	if s.Ask.UID != "" {
		r.answer()
	}
	var leaving []Since
	for _, pod := range r.n.Pods {
		if pod.Class != model.ClassBE || !pod.Leaving || !r.here(pod) {
			continue
		}
		since := Since{pod.UID, r.now}
		if i, known := find(s.Leaving, pod.UID); known {
			since = s.Leaving[i]
		}
		leaving = append(leaving, since)
	}
	s.Leaving = leaving
	if s.Wait != "" && !r.leaves(s.Wait) {
		s.Wait, s.Quiet = "", max(s.Quiet, r.now+settling)
	}
	if s.Last.UID != "" && r.now-s.Last.At >= time.Hour {
		s.Last = model.Relief{}
	}
	if l := &s.Last; l.UID != "" && !l.Seen && s.Wait == "" && r.now >= s.Quiet && r.known {
		l.Seen, l.Observed = true, r.left-s.Before
	}
}

// answer looks what became of who is asked for.
func (r *round) answer() {
	s := &r.state
	ask := s.Ask
	pod := model.FindPod(r.n.Pods, ask.UID)
	switch {
	case pod == nil || pod.Leaving || !r.here(pod):
		s.Ask, s.Wait = Ask{}, ask.UID
		s.Left = append(s.Left, r.now)
		s.Last = model.Relief{}
		if ask.Expect > 0 {
			s.Before, s.Last = ask.Left, model.Relief{UID: ask.UID, At: r.now, Expected: ask.Expect}
		}
		for i := range s.Hunger {
			s.Hunger[i].At = min(s.Hunger[i].At, hungry) // with that one gone there is more for them
		}
	case !r.may(pod) || !r.holds(&ask, pod):
		s.Ask, s.Quiet = Ask{}, r.now+again
	case r.acts && r.now-ask.Since >= unanswered:
		s.Ask = Ask{}
		s.Aside = insert(s.Aside, Since{ask.UID, r.now + aside})
	}
}

// leaves reports whether a pod is leaving, and has not had longer than it may take. One that never comes to an end must not keep
// others from being asked for.
func (r *round) leaves(uid string) bool {
	i, is := find(r.state.Leaving, uid)
	if !is {
		return false
	}
	pod := model.FindPod(r.n.Pods, uid)
	return pod != nil && r.now-r.state.Leaving[i].At < min(max(pod.Grace, 0), mostGrace)+late
}

// ask decides whether somebody is asked for now, and who.
func (r *round) ask(perHour int64) {
	s := &r.state
	switch {
	case s.Ask.UID != "" || s.Wait != "" || int64(len(s.Left)) >= perHour,
		r.now < s.Quiet || s.Asked != 0 && r.now-s.Asked < window:
		return
	}
	var best candidate
	switch {
	case r.state.Short:
		best = r.forMemory()
	case r.starves != "":
		best = r.forCPU()
	}
	if best.pod == nil {
		return
	}
	s.Ask = Ask{UID: best.pod.UID, Since: r.now, Expect: best.bytes, Left: r.left, Reason: best.reason}
	s.Asked = r.now
}

// result says what was decided.
func (r *round) result() *model.Evictions {
	s := &r.state
	e := &model.Evictions{Last: s.Last, Frozen: model.Frozen{UID: s.Frozen.UID, Reason: s.Frozen.Reason}}
	if s.Hot != 0 {
		e.Hot = model.Reason{Code: s.Why, Operands: []model.Operand{{Name: "ago", Value: int64((r.now - s.Hot) / time.Second), Unit: model.UnitSeconds}}}
	}
	if pod := model.FindPod(r.n.Pods, s.Ask.UID); pod != nil && s.Ask.UID != "" {
		e.Request = &model.Eviction{UID: pod.APIUID, Namespace: pod.Namespace, Name: pod.Name, Reason: s.Ask.Reason}
		if !r.acts {
			e.Request.Withheld = &model.Reason{Code: model.ObserveOnly}
		}
	}
	if e.Hot.Code == "" && e.Request == nil && e.Last.UID == "" && e.Frozen.UID == "" {
		return nil
	}
	return e
}

// here reports whether a pod may still run on this node.
func (r *round) here(pod *model.Pod) bool {
	_, exists := r.n.Tree.Pods[pod.UID]
	return exists && !pod.Ended
}

func find(list []Since, uid string) (int, bool) {
	return slices.BinarySearchFunc(list, uid, func(s Since, uid string) int { return cmp.Compare(s.UID, uid) })
}

func insert(list []Since, s Since) []Since {
	i, _ := find(list, s.UID)
	return slices.Insert(list, i, s)
}
