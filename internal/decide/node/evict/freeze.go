package evict

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// A pod is frozen when memory has been gone for as long as it takes that batch is held and was asked for page cache, before
// anybody is asked to leave; for less than it takes a liveness probe to fail three times, which by default are 10 s apart; and no
// other soon after.
const (
	deferredFor = 5 * time.Second
	frozenFor   = 20 * time.Second
	thawedFor   = 5 * time.Minute
)

// Frozen is a pod that stands still.
type Frozen struct {
	UID    string // "": none
	At     time.Duration
	Reason model.Reason
}

// Restarted returns the state for an agent that goes on with what another one left. What that one froze goes on too.
func (s State) Restarted() State {
	if s.Frozen.UID != "" {
		s.Frozen, s.Thawed = Frozen{}, s.Clock
	}
	return s
}

// freeze decides who stands still: the pod that is asked for, or would be, for want of memory, so that it takes no more until it
// has left. It goes on as soon as one of the reasons is gone, and in any case when its time is over.
func (r *round) freeze(on bool) {
	s := &r.state
	on = on && r.acts && r.in.Held && r.known && r.watched && !r.n.Tree.ReadOnly
	if s.Frozen.UID != "" && !(on && r.stays()) {
		s.Frozen, s.Thawed = Frozen{}, r.now
	}
	due := s.Short || s.Gone != 0 && r.now-s.Gone >= deferredFor
	if !on || !due || s.Frozen.UID != "" || s.Thawed != 0 && r.now-s.Thawed < thawedFor {
		return
	}
	uid, why := s.Ask.UID, s.Ask.Reason
	if why.Code != model.MemoryGone {
		best := r.forMemory()
		if best.pod == nil {
			return
		}
		uid, why = best.pod.UID, best.reason
	}
	s.Frozen = Frozen{UID: uid, At: r.now, Reason: model.Reason{Code: model.PodFrozen, Operands: why.Operands}}
}

// stays reports whether the pod that is frozen stands still for longer. Whoever thaws it besides us has the last word, and what
// could not be frozen is not tried again.
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

// Settings has the pod stand still that was decided on. All of its containers do, because its own cgroup is frozen: those of the
// containers are the runtime's, which pauses them there and would take them for paused.
func Settings(n *model.Node, e *model.Evictions) []model.Setting {
	if e == nil || e.Frozen.UID == "" {
		return nil
	}
	return []model.Setting{{File: model.File{Dir: freezer(n, e.Frozen.UID).Dir, Knob: model.Freeze}, Value: model.Number(1), Reason: e.Frozen.Reason}}
}
