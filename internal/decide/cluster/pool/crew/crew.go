// Package crew decides the next step of each worker of a pool whose engine scales by whole workers only, such as Trino
// and Impala. A worker has one size all its life.
//
// A worker's phase follows from what its engine and its pod show, and from a few marks on the pod. So a controller that
// was killed goes on where it was, and every step may be taken twice.
//
// Two rules come first. A pod is deleted when its engine says that nothing runs in it, when its engine has lost it, or
// when its time is over, and not before. And online services never wait for a query: what must end by a certain time
// ends then.
package crew

import (
	"time"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

const (
	// idleGrace is the termination grace period of a deleted pod in which no query runs, or that its engine has lost.
	idleGrace = 10 * time.Second
	// killGrace is the termination grace period of a deleted pod whose deadline has passed.
	killGrace = time.Second
	// drainRetry is the time after which a drain is requested again if the engine does not report it.
	drainRetry = 15 * time.Second
)

// Settings are the settings of one pool.
type Settings struct {
	// Least is the time that a worker without work needs from the drain request to its end, such as two grace periods
	// of the engine. A drain begins at least this long before the end of a window.
	Least    time.Duration
	Grace    time.Duration // to drain if the node asks for the pod's eviction
	Drain    time.Duration // to drain if the worker is to stop and has no end
	Register time.Duration // a worker that does not register within this time is started anew
	Recover  time.Duration // a worker that its engine does not have as active for this time is started anew
	Patience time.Duration // for which the offer of a node is below what is bound there before a worker drains for that
	CoolDown time.Duration // before the name of a worker is used again
	Attempts int           // a worker that failed to register this many times in a row is given up
	// Reversible means that the engine can take a drain back.
	Reversible bool
	// Invalid means that the present spec of the pool is invalid, and these settings come from an earlier spec. No pod
	// is created.
	Invalid bool
}

// Input is what was observed.
type Input struct {
	Now      time.Time
	Settings Settings
	Known    bool // the coordinator answers; otherwise nobody can tell whether workers are lost
	Workers  []Worker
}

// State is what the engine says about a worker.
type State string

// The states. They are those of internal/drain, and Unknown if the worker does not answer.
const (
	Unknown  State = ""
	Unasked  State = "Unasked"  // there was no time to ask it, so what its marks say stays true
	Absent   State = "Absent"   // the coordinator does not list it
	Serving  State = "Active"   // it gets work
	Leaving  State = "Draining" // it gets no new work
	Finished State = "Drained"  // it has no work
)

// Worker is a worker of a pool, with what its engine says about it.
type Worker struct {
	pool.Worker
	State State
	Tight bool // its node offers less than what is bound there, and this worker is to give way: see [Tight]
}

// Next returns the next step of each worker, in their order.
func Next(in *Input) []Step {
	steps := make([]Step, len(in.Workers))
	for i := range in.Workers {
		r := round{in: in, set: &in.Settings, w: &in.Workers[i]}
		if r.w.Pod != nil {
			r.marks = r.w.Pod.Marks
		}
		s := r.next()
		s.Worker, s.Marks, s.Within = r.w.Name, r.marks, max(s.Within, 0)
		steps[i] = s
	}
	return steps
}

// round decides about one worker.
type round struct {
	in    *Input
	set   *Settings
	w     *Worker
	marks pool.Marks // as they are to be
}

func (r *round) next() Step {
	w := r.w
	if w.Wanted || !w.End.IsZero() { // otherwise its window is over, or gone from the settings
		r.marks.End = w.End
	}
	over := r.marks.Over(r.in.Now)
	switch {
	case w.Pod == nil:
		return r.absent(w.Wanted && !over && !r.soon())
	case over:
		return Step{Phase: Stopped, Verb: DeletePod, Within: killGrace, Why: DeadlineExceeded}
	}
	r.remember()
	if why, leaves := r.leaves(); leaves {
		if r.marks.Leaving.IsZero() {
			r.marks.Leaving = r.in.Now
		}
		return r.drain(why)
	}
	r.marks.Leaving = time.Time{}
	return r.present()
}

// remember keeps what was seen of a worker with a pod.
func (r *round) remember() {
	w := r.w
	switch w.State {
	case Serving:
		r.marks.Registered, r.marks.Drains = true, false // also if its process was started again in a drain
		if r.in.Now.Sub(r.marks.Asked) >= drainRetry {
			r.marks.Asked = time.Time{} // the engine did not take the drain
		}
	case Leaving, Finished:
		r.marks.Drains = true
		if r.marks.Asked.IsZero() { // by somebody else, or an earlier controller
			r.marks.Asked = r.in.Now
		}
	}
	switch missing := w.State == Unknown || w.State == Absent; {
	case w.State == Unasked && r.in.Known:
	case !missing || !r.in.Known:
		r.marks.Missing = time.Time{}
	case r.marks.Missing.IsZero():
		r.marks.Missing = r.in.Now
	}
	switch {
	case !w.Tight:
		r.marks.Tight = time.Time{}
	case r.marks.Tight.IsZero():
		r.marks.Tight = r.in.Now
	}
}

// soon reports whether so little is left until the end that a worker has to drain now.
func (r *round) soon() bool {
	return !r.marks.End.IsZero() && r.marks.End.Sub(r.in.Now) <= r.set.Least
}

// leaves reports whether a worker with a pod is to stop, and why.
func (r *round) leaves() (Code, bool) {
	p := r.w.Pod
	switch {
	case p.Evicted:
		return Evicted, true
	case p.Deleting:
		return Deleted, true
	case !r.w.Wanted:
		return NotWanted, true
	case r.soon():
		return WindowEnding, true
	case !r.marks.Tight.IsZero() && r.in.Now.Sub(r.marks.Tight) >= r.set.Patience:
		return LessSlack, true
	case !r.set.Reversible && !r.marks.Asked.IsZero():
		return DrainIrreversible, true
	}
	return "", false
}

// absent decides about a worker without a pod that runs.
func (r *round) absent(wanted bool) Step {
	w := r.w
	switch {
	case w.Over:
		return Step{Phase: Stopped, Verb: DeletePod, Within: killGrace, Why: Ended}
	case !wanted:
		return Step{Phase: Stopped, Verb: Wait, Why: NotWanted}
	case w.Attempts >= r.set.Attempts:
		return Step{Phase: Quarantined, Verb: Wait, Why: TooManyAttempts}
	case r.set.Invalid:
		return Step{Phase: Stopped, Verb: Wait, Why: SpecInvalid}
	case w.Cordoned:
		return Step{Phase: Stopped, Verb: Wait, Why: NodeCordoned}
	case !w.Room:
		return Step{Phase: Stopped, Verb: Wait, Why: NoRoom}
	case w.Unsold:
		return Step{Phase: Stopped, Verb: Wait, Why: NothingSold}
	case r.in.Now.Sub(w.Ended) < r.set.CoolDown:
		return Step{Phase: Stopped, Verb: Wait, Why: CoolingDown}
	}
	return Step{Phase: Provisioning, Verb: CreatePod, Why: PodMissing}
}

// present decides about a worker that is to run and has a pod.
func (r *round) present() Step {
	w := r.w
	missing := Step{Phase: Registering, Verb: Wait, Why: NotRegistered}
	within := r.set.Register
	if r.marks.Registered {
		missing.Phase, missing.Why, within = Lost, WorkerLost, r.set.Recover
	}
	switch {
	case w.Pod.Started.IsZero():
		return Step{Phase: Provisioning, Verb: Wait, Why: PodStarting}
	case w.State == Serving:
		r.marks.Asked = time.Time{}
		return Step{Phase: Active, Verb: Wait, Why: UpToDate}
	case w.State == Leaving, w.State == Finished: // the engine can take it back, or the worker would leave
		r.marks.Asked = time.Time{}
		return Step{Phase: Draining, Verb: Undrain, Why: UpToDate}
	case !r.in.Known:
		missing.Why = CoordinatorUnreachable
	case w.State == Unasked && r.marks.Registered && r.marks.Missing.IsZero():
		return Step{Phase: Active, Verb: Wait, Why: UpToDate}
	case w.State == Unasked:
	case r.in.Now.Sub(pool.Later(r.marks.Missing, w.Pod.Started)) >= within:
		missing.Verb, missing.Within, missing.Failed = DeletePod, idleGrace, !r.marks.Registered
	}
	return missing
}

// drain decides about a worker that is to stop by a time.
func (r *round) drain(why Code) Step {
	w, left := r.w, r.w.StopsBy(&r.marks, r.set.Drain, r.set.Grace).Sub(r.in.Now)
	asked := !r.marks.Asked.IsZero() && r.in.Now.Sub(r.marks.Asked) < drainRetry
	s := Step{Phase: Draining, Verb: Wait, Within: left, Why: why}
	switch {
	case left <= 0:
		return Step{Phase: Stopped, Verb: DeletePod, Within: killGrace, Why: DeadlineExceeded}
	case w.State == Finished:
		return Step{Phase: Stopped, Verb: DeletePod, Within: idleGrace, Why: Idle}
	case w.Pod.Started.IsZero():
		return Step{Phase: Stopped, Verb: DeletePod, Within: idleGrace, Why: why}
	case asked, r.marks.Drains: // it does not show yet; or it does, and a worker that no longer answers has ended
		return s
	case w.State == Absent && !r.marks.Registered && !r.marks.Asked.IsZero():
		// It never got work, and the engine had time to say otherwise.
		return Step{Phase: Stopped, Verb: DeletePod, Within: idleGrace, Why: why}
	}
	r.marks.Asked, s.Verb = r.in.Now, Drain
	return s
}
