package pool

import "time"

// drain decides about a worker that is to stop by a time.
func (r *round) drain(m *Manager, end time.Time) Step {
	if m == nil {
		if r.marks.Registered && !r.late() && !r.w.Excluded { // another ResourceManager has still to hear from it
			return Step{Phase: Draining, Verb: Wait, Why: NotRegistered}
		}
		return Step{Phase: Decommissioned, Verb: DeletePod, Within: idleGrace, Why: Stopped}
	}
	allowed := r.w.Allowance.Or(r.set.Floor)
	if until := r.in.Now.Add(r.patience(m, allowed)); !m.Used.Fits(allowed) &&
		(r.marks.Until.IsZero() || until.Before(r.marks.Until)) {
		r.marks.begin(m, until)
		r.marks.Into = allowed // counts in end from the next round on
	}
	if r.partly() && !m.Used.Fits(r.marks.Into) && r.marks.Until.Before(end) {
		s := r.size(m, r.marks.Into)
		s.Phase = Draining
		return s
	}
	s := Step{Phase: Draining, Verb: Wait, Within: end.Sub(r.in.Now), Why: ContainersRunning}
	if r.w.Pod.Evicted && !m.Used.Fits(r.set.Floor) {
		return r.shed(m, s, end)
	}
	switch {
	case m.State == decommissioning:
	case !m.Total.Fits(r.set.Floor):
		// Nothing new fits while more than that is in use. A decommission comes after that, because it kills what was
		// allocated and has not started.
		s.Verb, s.Size, s.Why = Resize, r.set.Floor, Stopping
	case !r.set.Graceful && m.Containers == 0 && m.Total == (Size{}):
		s = Step{Phase: Decommissioned, Verb: DeletePod, Within: idleGrace, Why: Stopped}
	case !r.set.Graceful && m.Total != (Size{}) && m.Used.Fits(r.set.Floor):
		// What containers leave is not given to others, who would drain for ever. Not before, because another
		// ResourceManager refuses a NodeManager that has less than the scheduler's minimum allocation, and kills what it
		// runs.
		s.Verb, s.Size, s.Why = Resize, Size{}, Stopping
	case !r.set.Graceful:
	case m.Containers == 0 && m.Total != (Size{}):
		// So that nothing is allocated to it just before it is excluded. It has nothing to lose if another
		// ResourceManager refuses it.
		s.Verb, s.Size, s.Why = Resize, Size{}, Stopping
	case m.Containers > 0 && m.Listed == 0 && !m.Unlisted,
		// there may always be one that starts
		(m.Listed < m.Containers || m.Unlisted) && r.in.Now.Sub(r.marks.Leaving) < r.set.Grace:
		s.Why = ContainersStarting
	default: // also if it is excluded: the ResourceManager did not act on it
		s.Verb, s.Why = Exclude, Stopping
	}
	if s.Verb == Wait && m.Containers > 0 && !r.marks.Told.IsZero() && end.Sub(r.marks.Told) > clockPrecision {
		s = r.postpone(m, s)
	}
	if s.Verb == Wait {
		s.Within = 0
	} else if r.marks.Told.IsZero() || end.Before(r.marks.Told) {
		r.marks.Told = end // a later time counts when the ResourceManager has confirmed it
	}
	return s
}

// partly reports whether only some containers must end by the deadline of a shrink, and the others may continue. A
// NodeManager that is decommissioned keeps all containers or none.
func (r *round) partly() bool {
	m, _ := r.w.Manager()
	return !r.marks.Until.IsZero() && !r.marks.Into.Fits(r.set.Floor) && !r.w.Pod.Evicted &&
		(m == nil || m.State != decommissioning)
}

// clockPrecision is the precision of deadlines sent to the ResourceManager, which are relative to its clock.
const clockPrecision = time.Second

// postpone sends the ResourceManager a later deadline for containers, because an earlier deadline was lifted.
func (r *round) postpone(m *Manager, s Step) Step {
	s.Why = SlackRestored
	if m.State == decommissioning {
		// The ResourceManager changes the time of a host that is excluded already. It may count from when it excluded the
		// host, so the time from then on is at least what is left.
		s.Verb, s.Within = Exclude, s.Within+r.in.Now.Sub(r.marks.Leaving)
		return s
	}
	// It ignores a size that it has already. The next round takes the MiB back.
	s.Verb, s.Size = Resize, m.Total
	s.Size.MemoryMiB++
	return s
}

// shed lets the containers of a worker whose eviction was granted end first: all but those that fit into the floor have
// half of its time, and the pod stays if its node then has enough.
func (r *round) shed(m *Manager, s Step, end time.Time) Step {
	first := r.marks.Leaving.Add(r.set.Grace / 2)
	if first.After(end) {
		first = end
	}
	// An earlier shrink may have set a later deadline.
	told := !r.marks.Told.IsZero() && !r.marks.Told.After(first.Add(clockPrecision))
	if m.State == decommissioning || m.Total.Fits(r.set.Floor) && r.marks.Armed.Equal(r.in.RM.Since) && told {
		s.Within = 0
		return s
	}
	s.Verb, s.Size, s.Within, s.Why = Resize, r.set.Floor, first.Sub(r.in.Now), EvictionPending
	if m.Total == s.Size {
		s.Size.MemoryMiB++ // the ResourceManager ignores a size that it has already, deadline included
	}
	r.marks.Armed, r.marks.Told = r.in.RM.Since, first
	r.shrinks()
	return s
}
