package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Batch is asked for memory while less than near of the node is left for it under the waterline, until far is, and held until that was
// so for a while. Parts are in thousandths of the node's memory.
const (
	near = 20
	far  = 40
	// Most that is asked for at once, which is at most once a second, and least that is worth it.
	most    = 4
	leastAt = 16 << 20
)

// When asking costs more than it gives, and for how long it is then left off.
const (
	waits    = 100 // of the time that tasks wait for memory, in thousandths
	gives    = 4   // less than one part in so many of what was asked for
	pause    = time.Second
	podRests = 30 * time.Second
	allRest  = 10 * time.Second
	measured = 10 * time.Second // what was measured longer ago says nothing
	relaxed  = 10 * time.Second // for which far must have been left until nobody is held any more
)

// State is what the rule remembers. Times are on the clock of [model.Load].
type State struct {
	Short bool          // memory for batch was near its end, and has not been far from it for long enough
	Near  time.Duration // when it last was not far from it
	Asked time.Duration // when somebody was asked last
	Rest  time.Duration // until when nobody is asked
	Pods  []Rest        `json:",omitempty"` // that are not asked, ordered by UID
}

// Rest says until when a pod is not asked.
type Rest struct {
	UID   string
	Until time.Duration
}

// Relieve decides what is done while memory for batch is near its end: batch pods are held to what they have, and one of them is
// asked for page cache. That is not decided where it is not carried out: it would be wanted anew each second.
func Relieve(n *model.Node, p *model.Policy, s *model.Slack, state State) ([]model.Setting, *model.Reclaim, State) {
	l := n.Load
	if l != nil && l.Clock < max(state.Asked, state.Near) {
		state = State{} // of another boot
	}
	switch {
	case !p.Protect.Memory || Unsupported(n, p).Code != "":
		return nil, nil, State{}
	case s == nil || l == nil:
		return hold(n, nil, state), nil, state
	}
	a := &s.Memory
	left := a.Allow - a.Use.Batch
	switch {
	case !a.Use.Measured || a.Use.Age > measured || a.Capacity == 0:
		return hold(n, nil, state), nil, state
	case left < a.Capacity/1000*far:
		state.Short, state.Near = state.Short || left < a.Capacity/1000*near, l.Clock
	case l.Clock-state.Near >= relaxed:
		state.Short = false
	}
	state = state.learn(n)
	var reclaim *model.Reclaim
	if p.Mode == model.ModeEnforce && !n.Tree.ReadOnly {
		if reclaim = ask(n, a, state); reclaim != nil {
			state.Asked = l.Clock
		}
	}
	return hold(n, a, state), reclaim, state
}

// ask decides which batch pod is asked to give back memory now, before the kernel has to take it from somebody; nil: none is. Only
// page cache is counted on, of the pod with most that it used once only.
//
// It stops where it costs: a pod whose tasks wait for memory, or that had little to give, rests for a while, and all do when
// an online pod waits for memory, since then the disk has enough to do.
func ask(n *model.Node, a *model.Account, state State) *model.Reclaim {
	clock := n.Load.Clock
	if !state.Short || n.Tree.NoReclaim || clock < state.Rest || clock-state.Asked < pause || n.Reclaiming {
		return nil
	}
	pod, cache := coldest(n, state)
	if pod == nil {
		return nil
	}
	left := a.Allow - a.Use.Batch
	need := a.Capacity/1000*far - left
	if need <= 0 {
		return nil
	}
	return &model.Reclaim{
		UID: pod.UID, Dir: n.Tree.Pods[pod.UID].Dir,
		Bytes: min(need+cache.InactiveFile, cache.InactiveFile+cache.ActiveFile, max(a.Capacity/1000*most, leastAt)),
		Reason: model.Reason{Code: model.MemoryReclaimed, Operands: []model.Operand{
			{Name: "left", Value: left, Unit: model.UnitBytes},
			{Name: "cold", Value: cache.InactiveFile, Unit: model.UnitBytes},
			{Name: "cache", Value: cache.InactiveFile + cache.ActiveFile, Unit: model.UnitBytes},
		}},
	}
}

// learn takes in what came of the last time, and who waits for memory now.
func (s State) learn(n *model.Node) State {
	clock := n.Load.Clock
	pods := slices.DeleteFunc(slices.Clone(s.Pods), func(r Rest) bool { return clock >= r.Until })
	rest := func(uid string) {
		if i, resting := slices.BinarySearchFunc(pods, uid, compareRest); resting {
			pods[i].Until = clock + podRests
		} else {
			pods = slices.Insert(pods, i, Rest{UID: uid, Until: clock + podRests})
		}
	}
	if r := n.Reclaimed; r != nil && (r.Failed != "" || r.Freed < r.Asked/gives) {
		rest(r.UID)
	}
	for _, pod := range n.Pods {
		u := n.Load.Pod(pod.UID)
		if u == nil || u.Pressure.At == 0 || n.Load.Age(u.Pressure.At) > measured || u.Pressure.Memory.Some < waits {
			continue
		}
		switch {
		case pod.Class == model.ClassBE:
			rest(pod.UID)
		case pod.Class.Online():
			s.Rest = clock + allRest
		}
	}
	s.Pods = pods
	return s
}

func compareRest(r Rest, uid string) int { return cmp.Compare(r.UID, uid) }

// coldest returns the batch pod with most page cache that it used once only, and what it has; nil if nobody has any to speak of.
func coldest(n *model.Node, s State) (*model.Pod, model.MemoryUsage) {
	var found *model.Pod
	var has model.MemoryUsage
	for _, pod := range n.Pods {
		u := n.Load.Pod(pod.UID)
		_, exists := n.Tree.Pods[pod.UID]
		_, rests := slices.BinarySearchFunc(s.Pods, pod.UID, compareRest)
		if pod.Class != model.ClassBE || pod.Ended || rests || !exists || u == nil || u.Memory.At == 0 || n.Load.Age(u.Memory.At) > measured {
			continue
		}
		m := u.Memory
		if m.InactiveFile+m.ActiveFile < leastAt {
			continue
		}
		if found == nil || cmp.Or(cmp.Compare(m.InactiveFile, has.InactiveFile), cmp.Compare(m.ActiveFile, has.ActiveFile)) > 0 {
			found, has = pod, m
		}
	}
	return found, has
}
