package evict

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// A pod is frozen after memory has been exhausted for deferredFor: long enough to limit batch and reclaim page cache,
// and earlier than the first request for an eviction. It stays frozen for less time than a liveness probe needs to
// fail three times (by default, 10 s apart). The next freeze must wait for thawedFor.
const (
	deferredFor = 5 * time.Second
	frozenFor   = 20 * time.Second
	thawedFor   = 5 * time.Minute
)

// Frozen is a frozen pod.
type Frozen struct {
	UID    string // "": none
	At     time.Duration
	Reason model.Reason
}

// Restarted returns the state for an agent that continues after a restart. A pod that its predecessor froze is
// thawed.
func (s State) Restarted() State {
	if s.Frozen.UID != "" {
		s.Frozen, s.Thawed = Frozen{}, s.Clock
	}
	return s
}

// freeze decides which pod is frozen: the pod requested for want of memory, or the one that would be requested, so
// that it allocates no more until it has left. It is thawed as soon as one of the reasons is gone, and at the latest
// after frozenFor.
func (r *round) freeze(on bool) {
	s := &r.state
	on = on && r.acts && r.in.Limited && r.known && r.watched && !r.n.Tree.ReadOnly
	if s.Frozen.UID != "" && !(on && r.stays()) {
		s.Frozen, s.Thawed = Frozen{}, r.now
	}
	due := s.Short || s.Exhausted != 0 && r.now-s.Exhausted >= deferredFor
	if !on || !due || s.Frozen.UID != "" || s.Thawed != 0 && r.now-s.Thawed < thawedFor {
		return
	}
	uid, why := s.Request.UID, s.Request.Reason
	if why.Code != model.MemoryExhausted {
		best := r.forMemory()
		if best.pod == nil {
			return
		}
		uid, why = best.pod.UID, best.reason
	}
	s.Frozen = Frozen{UID: uid, At: r.now, Reason: model.Reason{Code: model.PodFrozen, Operands: why.Operands}}
}

// stays reports whether the frozen pod stays frozen. If another writer thaws the pod, it stays thawed; if the freeze
// failed, it is not tried again.
func (r *round) stays() bool {
	f := &r.state.Frozen
	pod := model.FindPod(r.n.Pods, f.UID)
	if pod == nil || !r.may(pod) || r.left >= r.in.Slack.Memory.Capacity/1000*enough || r.now-f.At >= frozenFor {
		return false
	}
	file := freezer(r.n, f.UID)
	answered := slices.ContainsFunc(r.n.Incidents, func(i model.Incident) bool { return i.File == file })
	return !answered && (r.now == f.At || r.n.Wrote(file) != nil)
}

func freezer(n *model.Node, uid string) model.File {
	return model.File{Dir: n.Tree.Pods[uid].Dir, Knob: model.Freeze}
}

// Settings returns the setting that freezes the chosen pod. It freezes the cgroup of the pod and thus all containers.
// The cgroup.freeze files of the containers belong to the container runtime, which pauses containers with them and
// would take frozen ones for paused.
func Settings(n *model.Node, e *model.Evictions) []model.Setting {
	if e == nil || e.Frozen.UID == "" {
		return nil
	}
	return []model.Setting{{
		File:  model.File{Dir: freezer(n, e.Frozen.UID).Dir, Knob: model.Freeze},
		Value: model.Number(1), Reason: e.Frozen.Reason,
	}}
}
