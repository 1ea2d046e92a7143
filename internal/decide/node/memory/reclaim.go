package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Memory for batch is short while less than near is left under the waterline, until far has been left for a while.
// During that time batch pods are limited. Page cache is reclaimed while less than far is left. Fractions are in
// thousandths of the node's memory.
const (
	near = 20
	far  = 40
	// Size of one reclaim, of which there is at most one per second: at most, and at least.
	maxPart    = 4
	leastBytes = 16 << 20
)

// When a reclaim costs more than it frees, and how long to pause then.
const (
	maxWait  = 100 // fraction of time that tasks wait for memory, in thousandths
	minFreed = 4   // a reclaim fails if it frees less than one in so many bytes requested
	pause    = time.Second
	podRests = 30 * time.Second
	allRest  = 10 * time.Second
	measured = 10 * time.Second // older measurements do not count
	settling = 10 * time.Second // far must have been left for this long until the limits are removed
)

// State is the state between rounds. Times are on the clock of [model.Load].
type State struct {
	Short bool          // memory for batch is short
	Near  time.Duration // when less than far was left last
	Last  time.Duration // when memory was reclaimed last
	Rest  time.Duration // no reclaim until then
	Pods  []Rest        `json:",omitempty"` // pods without reclaim for now, ordered by UID
}

// Rest is the time until which nothing is reclaimed from a pod.
type Rest struct {
	UID   string
	Until time.Duration
}

// Relieve decides what to do while memory for batch is short: limits for batch pods, and one reclaim of page cache.
// If plans are not carried out, there is no reclaim: the request would come anew each second.
func Relieve(n *model.Node, p *model.Policy, s *model.Slack, state State) ([]model.Setting, *model.Reclaim, State) {
	l := n.Load
	if l != nil && l.Clock < max(state.Last, state.Near) {
		state = State{} // from another boot
	}
	switch {
	case !p.Protect.Memory || Unsupported(n, p).Code != "":
		return nil, nil, State{}
	case s == nil || l == nil:
		return withoutWorkers(n, limitGrowth(n, nil, state)), nil, state
	}
	a := &s.Memory
	left := a.Allow - a.Use.Batch
	switch {
	case !a.Use.Measured || a.Use.Age > measured || a.Capacity == 0:
		return withoutWorkers(n, limitGrowth(n, nil, state)), nil, state
	case left < a.Capacity/1000*far:
		state.Short, state.Near = state.Short || left < a.Capacity/1000*near, l.Clock
	case l.Clock-state.Near >= settling:
		state.Short = false
	}
	state = state.learn(n)
	var reclaim *model.Reclaim
	if p.Mode == model.ModeEnforce && !n.Tree.ReadOnly {
		if reclaim = reclaimNow(n, a, state); reclaim != nil {
			state.Last = l.Clock
		}
	}
	return withoutWorkers(n, limitGrowth(n, a, state)), reclaim, state
}

// withoutWorkers leaves out the limits of workers of pools. The tasks of a worker and the containers that it runs share
// one limit, so a container that grows would stop the NodeManager's heartbeats. Its guard ends containers instead.
func withoutWorkers(n *model.Node, limits []model.Setting) []model.Setting {
	for _, pod := range n.Pods {
		if pod.Pool != "" {
			dir := n.Tree.Pods[pod.UID].Dir
			limits = slices.DeleteFunc(limits, func(s model.Setting) bool { return s.Dir == dir })
		}
	}
	return limits
}

// reclaimNow returns the reclaim to start now, before the kernel has to reclaim from other pods; nil: none. It
// chooses the batch pod with the most page cache used only once (inactive file pages) and counts on page cache only.
//
// It stops when reclaim does harm. A pod whose tasks wait for memory, or that had little to reclaim, is skipped for a
// while. When an online pod waits for memory, all reclaim pauses, because the disk is busy enough.
func reclaimNow(n *model.Node, a *model.Account, state State) *model.Reclaim {
	clock := n.Load.Clock
	if !state.Short || n.Tree.NoReclaim || clock < state.Rest || clock-state.Last < pause || n.Reclaiming {
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
	all := cache.InactiveFile + cache.ActiveFile
	return &model.Reclaim{
		UID: pod.UID, Dir: n.Tree.Pods[pod.UID].Dir,
		Bytes: min(need+cache.InactiveFile, all, max(a.Capacity/1000*maxPart, leastBytes)),
		Reason: model.Reason{Code: model.MemoryReclaimed, Operands: []model.Operand{
			{Name: "left", Value: left, Unit: model.UnitBytes},
			{Name: "cold", Value: cache.InactiveFile, Unit: model.UnitBytes},
			{Name: "cache", Value: all, Unit: model.UnitBytes},
		}},
	}
}

// learn updates the pauses from the result of the last reclaim and from memory pressure.
func (s State) learn(n *model.Node) State {
	clock := n.Load.Clock
	pods := slices.DeleteFunc(slices.Clone(s.Pods), func(r Rest) bool { return clock >= r.Until })
	rest := func(uid string) {
		if i, resting := model.IndexByUID(pods, uid, (*Rest).uid); resting {
			pods[i].Until = clock + podRests
		} else {
			pods = slices.Insert(pods, i, Rest{UID: uid, Until: clock + podRests})
		}
	}
	if r := n.Reclaimed; r != nil && (r.Failed != "" || r.Freed < r.Requested/minFreed) {
		rest(r.UID)
	}
	for _, pod := range n.Pods {
		u := n.Load.Pod(pod.UID)
		if u == nil || u.Pressure.At == 0 || n.Load.Age(u.Pressure.At) > measured || u.Pressure.Memory.Some < maxWait {
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

func (r *Rest) uid() string { return r.UID }

// coldest returns the batch pod with the most page cache used only once, and its memory usage; nil if no batch pod
// has a relevant amount of page cache.
func coldest(n *model.Node, s State) (*model.Pod, model.MemoryUsage) {
	var found *model.Pod
	var has model.MemoryUsage
	for _, pod := range n.Pods {
		u := n.Load.Pod(pod.UID)
		_, exists := n.Tree.Pods[pod.UID]
		_, rests := model.IndexByUID(s.Pods, pod.UID, (*Rest).uid)
		if pod.Class != model.ClassBE || pod.Ended || rests || !exists || u == nil ||
			u.Memory.At == 0 || n.Load.Age(u.Memory.At) > measured {
			continue
		}
		m := u.Memory
		if m.InactiveFile+m.ActiveFile < leastBytes {
			continue
		}
		colder := cmp.Or(cmp.Compare(m.InactiveFile, has.InactiveFile), cmp.Compare(m.ActiveFile, has.ActiveFile)) > 0
		if found == nil || colder {
			found, has = pod, m
		}
	}
	return found, has
}
