// Package pool decides the next step of each worker of a pool of YARN NodeManagers.
//
// A worker's phase follows from what the ResourceManager and its pod show, and from a few marks on the pod. So a
// controller that was killed goes on where it was, and every step may be taken twice.
//
// Two rules come first. The host of a worker has the pool's label before its pod is made, and a NodeManager without the
// label offers no more than the floor. And online services never wait for YARN: what must end by a certain time ends
// then, whatever the ResourceManager answers.
package pool

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Times of a pod that is deleted. A NodeManager that is told to end says so to the ResourceManager and kills its
// containers at once, and takes up to 17 s for the rest (Hadoop 3.5.0). While containers run, the pod's preStop hook
// uses all of its time, and then two seconds are left (the kubelet's minimumGracePeriodInSeconds).
const (
	idleGrace = 30 * time.Second // of one that runs nothing
	killGrace = time.Second      // of one whose time is over
)

// Size is what a NodeManager offers to containers.
type Size = model.Size

// Settings are the settings of one pool.
type Settings struct {
	Label string // of every host of the pool
	// Floor is the size in yarn-site.xml, with which a starting NodeManager registers. The ResourceManager refuses a
	// NodeManager below the scheduler's minimum allocation.
	Floor, Ceiling Size
	Step           Size          // a worker grows by at most one step at a time, and offers whole steps above the floor
	Pause          time.Duration // between two steps up
	Window         time.Duration // over which a node's slack must last for a worker to grow
	Core           int64         // vcores that a CPU is worth, at least 1
	Grace          time.Duration // for containers to end when their worker shrinks, before the ResourceManager kills some
	Drain          time.Duration // for containers to end when their worker is to stop and has no end
	Register       time.Duration // a NodeManager that does not register within this time is started anew
	Recover        time.Duration // a NodeManager that is not well for this time, and so has no containers, is started anew
	CoolDown       time.Duration // before the name of a worker is used again
	Attempts       int           // a worker that failed this many times in a row is given up for a while ([Retry])
	Graceful       bool          // the exclude file of the ResourceManager can be written
	// Invalid means that the present spec of the pool is invalid, and these settings come from an earlier spec. Workers
	// still shrink and drain, but none grows, and no pod is created or replaced.
	Invalid bool
}

// Input is what was observed.
type Input struct {
	Now      time.Time
	Settings Settings
	RM       RM
	Demand   Demand    // of applications; see [FollowDemand]
	Workers  []Worker  // ordered by name
	Deleted  time.Time // when the pool was deleted; zero: it was not
}

// RM is the active ResourceManager.
type RM struct {
	Known  bool // it answered in this round; otherwise no input that comes from it counts
	Labels bool // the label exists in its store
	// StaleLabels means that labels were read in an earlier round and may have been removed since. A NodeManager that
	// registers without its label takes containers of any application, so no pod is created. See [ReadLabels].
	StaleLabels bool
	Since       time.Time // it is active since then; it does not know the deadlines that an earlier one was told
}

// Worker is a slot for one NodeManager. The name of the slot stays the same over all of its pods.
type Worker struct {
	Name      string
	Wanted    bool      // it is to run now
	Needless  bool      // it is not wanted because no application waits for it and it runs no container
	End       time.Time // it must have stopped by then, busy or not; zero: it has no end, or none that is known
	Cordoned  bool      // its node takes no new pods
	Room      bool      // its node has room for its pod
	Unsold    bool      // no policy sells anything
	Barred    bool      // a pod of the pool would not be safe
	Sells     bool      // its node offers something now
	Allowance Size      // what the slack of its node allows now
	Figures   Figures   // what it allowed over time; a worker that stays is sized by them
	Label     string    // of its host, in the ResourceManager's store
	// Excluded means that its host is in the exclude file, or that the file was changed and is not known to have been
	// read since.
	Excluded bool
	Pod      *Pod      // nil: there is none
	Over     bool      // its last pod is over and still there; then Pod is nil
	Ended    time.Time // when its last pod ended
	Attempts int       // pods in a row whose step said that they failed
	GivenUp  bool      // it was given up when the spec of its pool changed last, and has not worked since
	Managers []Manager // those that the ResourceManager shows on its host, of this pod or earlier ones
	// Own is the usage of its containers as its NodeManager reports it. The NodeManager is asked when a deadline has
	// passed and the ResourceManager does not answer; nil: not known.
	Own *Size
	// Heard is the deadline that the ResourceManager confirmed in the last round; zero: none.
	Heard time.Time
	Stray string // another host under which the NodeManager of its pod registered; "": none
}

// Leaves reports whether a worker with a pod is to stop.
func (w *Worker) Leaves() bool { return !w.Wanted || w.Pod.Deleting || w.Pod.Evicted }

// Pod is the pod of a worker.
type Pod struct {
	Created  time.Time
	Started  time.Time // when its NodeManager was started; zero: it was not
	Deleting bool      // somebody deletes it, or drains its node
	Evicted  bool      // its node asks for its eviction: it has the time of a shrink
	// Floor is what its NodeManager registers with, and what the pod requests for containers. Ceiling is what its limits
	// leave for them. The settings may have changed since the pod was made. Zero: they are as in the settings.
	Floor, Ceiling Size
	Outdated       bool // it was made from an earlier spec, and another pod is to replace it
	Marks          Marks
}

// Marks are notes of the controller on a pod: facts that neither YARN, or another engine, nor the API reports.
type Marks struct {
	// Its NodeManager was seen running, or its engine listed it as active.
	Registered bool `json:"registered,omitzero"`
	// [RM.Since] of the ResourceManager that received Until.
	Armed time.Time `json:"armed,omitzero"`
	// When what does not fit into the present size is killed; zero: everything fits.
	Until time.Time `json:"until,omitzero"`
	// The size that Until is for. Once everything fits into it, Until is over, and the next shrink has a deadline of its
	// own. The present total does not say that, because a resize may not have had an effect yet.
	Into Size `json:"into,omitzero"`
	// The total when Until was set. While the total has not fallen below it, no shrink has reached the ResourceManager.
	From Size `json:"from,omitzero"`
	// The node had less memory than containers use. Since then, running containers need not leave the memory margin free.
	Short bool `json:"short,omitzero"`
	// The earliest time at which the ResourceManager kills containers that do not fit, or ends a decommission. The last
	// request that set a later time may not have arrived. Zero: no deadline was sent.
	Told time.Time `json:"told,omitzero"`
	// The last step up.
	Grown time.Time `json:"grown,omitzero"`
	// The last time that it shrank to follow its node.
	Shrunk time.Time `json:"shrunk,omitzero"`
	// The time without growth after that shrink; less than a window counts as one window.
	Hold time.Duration `json:"hold,omitzero"`
	// The margin of memory in MiB by which it was sized then or at the last step up; 0: none was measured yet.
	Margin int64 `json:"margin,omitzero"`
	// Since when it is to stop; zero: it is to stay.
	Leaving time.Time `json:"leaving,omitzero"`
	// Since when its NodeManager is unhealthy; zero: it is healthy.
	Unhealthy time.Time `json:"sick,omitzero"`
	// This one and the next three are marks of a worker of one size (package crew): when its engine was last asked to
	// drain it; zero: never, or the drain was taken back.
	Asked time.Time `json:"asked,omitzero"`
	// The engine showed the drain.
	Drains bool `json:"drains,omitzero"`
	// Since when its engine does not list it as active; zero: the engine lists it.
	Missing time.Time `json:"missing,omitzero"`
	// Since when its node is tight; zero: it is not.
	Tight time.Time `json:"tight,omitzero"`
	// The last known end of the worker; zero: it has none.
	End time.Time `json:"end,omitzero"`
}

// Manager is a NodeManager as the ResourceManager shows it.
type Manager = model.NodeManager

// The states of NodeManagers that live.
const (
	running         = model.NodeManagerRunning
	unhealthy       = model.NodeManagerUnhealthy
	decommissioning = model.NodeManagerDecommissioning
)

// Next returns the next step of each worker, in their order. If a step says that the label is missing, the caller adds
// it to the ResourceManager's store.
func Next(in *Input) []Step {
	steps := make([]Step, len(in.Workers))
	replaced := replace(in)
	for i := range in.Workers {
		r := round{in: in, set: in.Workers[i].settings(in.Settings), w: &in.Workers[i], replaced: replaced[i]}
		if r.w.Pod != nil {
			r.marks = r.w.Pod.Marks
		}
		s := r.next()
		s.Worker, s.Marks, s.Within, s.Held = r.w.Name, r.marks, max(s.Within, 0), r.held()
		if r.w.Pod != nil && !r.marks.Leaving.IsZero() {
			s.By = r.end()
		}
		if s.Why == UpToDate && r.w.Pod.Outdated {
			s.Why = PodOutdated
		}
		steps[i] = s
	}
	return steps
}

// round decides about one worker.
type round struct {
	in       *Input
	set      *Settings // with the floor and the ceiling of the worker's pod
	w        *Worker
	replaced bool  // another pod is to take the place of its pod
	marks    Marks // as they are to be
}

// settings returns the settings with the floor and the ceiling of the worker's pod. What the pod requests is what its
// node sold, and what is above its limit is killed by the kernel, whatever the pool's spec says by now.
func (w *Worker) settings(s Settings) *Settings {
	if w.Pod != nil && w.Pod.Floor != (Size{}) {
		s.Floor = w.Pod.Floor
		if w.Pod.Ceiling != (Size{}) {
			s.Ceiling = s.Ceiling.And(w.Pod.Ceiling)
		}
	}
	return &s
}

func (r *round) next() Step {
	w := r.w
	if w.Wanted || !w.End.IsZero() { // otherwise its window is over, or gone from the settings
		r.marks.End = w.End
	}
	over := r.marks.Over(r.in.Now)
	switch {
	case w.Over: // whatever is wanted, or nobody would ever delete it
		return Step{Phase: Terminated, Verb: DeletePod, Why: PodEnded}
	case w.Pod == nil && !r.in.RM.Known && r.abandoned():
		return Step{Phase: Terminated, Verb: Wait, Why: ResourceManagerUnreachable}
	case w.Pod == nil && !r.in.RM.Known:
		return Step{Phase: Frozen, Verb: Wait, Why: ResourceManagerUnreachable}
	case w.Pod == nil:
		return r.absent(w.Wanted && !over)
	case over:
		return Step{Phase: Decommissioned, Verb: DeletePod, Within: killGrace, Why: DeadlineExceeded}
	}
	if !w.Heard.IsZero() && !r.marks.Told.IsZero() {
		r.marks.Told = w.Heard
	}
	m, several := r.w.Manager()
	if m != nil && r.in.RM.Known {
		r.marks.Registered = true
	}
	r.noteHealth(m)
	if r.in.RM.Known && m != nil {
		r.lift(m)
	}
	leaves := w.Leaves() || several || r.replaced
	switch {
	case !leaves:
		r.marks.Leaving = time.Time{}
	case r.marks.Leaving.IsZero():
		r.marks.Leaving = r.in.Now
	}
	switch end := r.end(); {
	case leaves && !r.in.Now.Before(end), r.overdue():
		return Step{Phase: Decommissioned, Verb: DeletePod, Within: killGrace, Failed: several, Why: DeadlineExceeded}
	case !r.in.RM.Known:
		return Step{Phase: Frozen, Verb: Wait, Why: ResourceManagerUnreachable}
	case w.Stray != "":
		return Step{
			Phase: Quarantined, Verb: DeletePod, Within: idleGrace, Failed: true, Why: HostNameMismatch, Text: w.Stray,
		}
	case several:
		s := r.drain(m, end)
		s.Failed, s.Why = s.Verb == DeletePod, DuplicateNodeManagers
		return s
	case leaves:
		s := r.drain(m, end)
		switch {
		case w.Needless:
			s.Text = "no application waits for it, and it runs nothing"
		case !w.Leaves():
			s.Text = "its pod is replaced, because the spec of the pool changed"
		}
		return s
	}
	return r.present(m)
}

// Manager returns the NodeManager of a worker that lives, nil if none does, and whether there are several. Of several
// it returns one that still offers something, if there is one.
func (w *Worker) Manager() (m *Manager, several bool) {
	for i := range w.Managers {
		next := &w.Managers[i]
		if !next.Lives() {
			continue
		}
		several = m != nil
		if m == nil || m.Total == (Size{}) {
			m = next
		}
	}
	return m, several
}

// overdue reports whether containers outlived the deadline of a shrink, which no ResourceManager enforced.
func (r *round) overdue() bool {
	until := r.until()
	return !until.IsZero() && r.in.Now.Sub(until) >= r.set.Grace
}

// until returns the deadline of a shrink, zero if there is none. While the ResourceManager is silent, there is none for
// containers that fit by the account of their NodeManager: the guard ended the others, or the ResourceManager, which
// only the controller does not reach, or the node has room for them again. The mark stays, because what was allocated
// before may still start.
func (r *round) until() time.Time {
	if own := r.w.Own; !r.in.RM.Known && own != nil && (own.Fits(r.marks.Into) || own.Fits(r.room())) {
		return time.Time{}
	}
	return r.marks.Until
}

// held returns the memory that containers use beyond what is allowed. While the ResourceManager is silent, nobody
// knows, and the caller keeps what it knew.
func (r *round) held() int64 {
	if m, _ := r.w.Manager(); m != nil && r.w.Pod != nil {
		return max(m.Used.MemoryMiB-max(r.w.Allowance.MemoryMiB, r.set.Floor.MemoryMiB), 0)
	}
	return 0
}

// end returns when a worker that is to stop must have stopped.
func (r *round) end() time.Time {
	end := r.w.StopsBy(&r.marks, r.set.Drain, r.set.Grace)
	if r.partly() {
		return end
	}
	return earlier(end, r.until()) // its slack is gone
}

// absent decides about a worker without a pod.
func (r *round) absent(wanted bool) Step {
	w := r.w
	live, _ := r.w.Manager()
	switch {
	case w.Excluded && r.set.Graceful: // no longer than the drain: it would be refused
		return Step{Phase: Terminated, Verb: Include, Why: HostExcluded}
	case !wanted && w.Needless:
		return Step{Phase: Terminated, Verb: Wait, Why: NoDemand}
	case !wanted:
		return Step{Phase: Terminated, Verb: Wait, Why: NotWanted}
	case w.quarantined(r.in):
		return Step{Phase: Quarantined, Verb: Wait, Why: TooManyAttempts, Text: w.Stray}
	case r.set.Invalid:
		return Step{Phase: Terminated, Verb: Wait, Why: SpecInvalid}
	case w.Cordoned:
		return Step{Phase: Terminated, Verb: Wait, Why: NodeCordoned}
	case !w.Room:
		return Step{Phase: Terminated, Verb: Wait, Why: NoRoom}
	case w.Unsold:
		return Step{Phase: Terminated, Verb: Wait, Why: NothingSold}
	case w.Barred:
		return Step{Phase: Terminated, Verb: Wait, Why: PodsRefused}
	case w.cools(r.in):
		return Step{Phase: Terminated, Verb: Wait, Why: CoolingDown}
	case live != nil: // it was not stopped in order, and the ResourceManager has still to notice
		return Step{Phase: Terminated, Verb: Wait, Why: PreviousNodeManagerListed, Text: live.ID}
	case w.Excluded:
		return Step{Phase: Provisioning, Verb: Wait, Why: HostExcluded}
	case !r.in.RM.Labels:
		return Step{Phase: Provisioning, Verb: Wait, Why: LabelMissing}
	case w.Label != r.set.Label:
		return Step{Phase: Provisioning, Verb: LabelHost, Why: HostNotLabelled}
	case r.in.RM.StaleLabels:
		return Step{Phase: Provisioning, Verb: Wait, Why: PodMissing}
	}
	return Step{Phase: Provisioning, Verb: CreatePod, Why: PodMissing}
}

// quarantined reports whether a worker without a pod is given up for a while.
func (w *Worker) quarantined(in *Input) bool {
	return w.Attempts >= in.Settings.Attempts && in.Now.Sub(w.Ended) < Retry(w.Attempts-in.Settings.Attempts)
}

// cools reports whether the name of a worker without a pod was in use a moment ago.
func (w *Worker) cools(in *Input) bool { return in.Now.Sub(w.Ended) < in.Settings.CoolDown }

// labelRemovalTimeout is how long a deleted pool waits for a ResourceManager that does not answer, to remove the labels
// of its hosts.
const labelRemovalTimeout = 2 * time.Minute

// abandoned reports whether a worker without a pod needs no further step, because its pool is deleted and no
// ResourceManager answers, or none ever did.
func (r *round) abandoned() bool {
	since := Later(r.in.Deleted, r.w.Ended)
	return !r.in.Deleted.IsZero() && (r.in.RM.Since.IsZero() || r.in.Now.Sub(since) >= labelRemovalTimeout)
}

// late reports whether a NodeManager had enough time to register. It registers again with each ResourceManager that
// becomes active.
func (r *round) late() bool {
	return r.in.Now.Sub(Later(r.w.Pod.Started, r.in.RM.Since)) >= r.set.Register
}

// present decides about a worker that is to run and has a pod.
func (r *round) present(m *Manager) Step {
	gone := Step{Phase: Registering, Verb: Wait, Why: NotRegistered}
	if r.marks.Registered {
		gone.Phase, gone.Why = Lost, NodeManagerLost
	}
	switch {
	case r.w.Pod.Started.IsZero():
		return Step{Phase: Provisioning, Verb: Wait, Why: PodStarting}
	case r.set.Graceful && (r.w.Excluded || m != nil && m.State == decommissioning): // it goes on with what it had
		return Step{Phase: Draining, Verb: Include, Why: HostExcluded}
	case m != nil && m.State == decommissioning: // by others, in a file that the pool does not use
		return Step{Phase: Draining, Verb: Wait, Why: HostExcluded}
	case m == nil && r.late():
		gone.Verb, gone.Within, gone.Failed = DeletePod, idleGrace, !r.marks.Registered
		return gone
	case m == nil && r.in.RM.Labels && r.w.Label != r.set.Label: // lost since its pod was made
		gone.Verb, gone.Why = LabelHost, HostNotLabelled
		return gone
	case m == nil:
		return gone
	case m.State == unhealthy && r.in.Now.Sub(r.marks.Unhealthy) >= r.set.Recover:
		return Step{Phase: Lost, Verb: DeletePod, Within: idleGrace, Failed: true, Why: NodeManagerUnhealthy, Text: m.Health}
	case !r.in.RM.Labels, m.Label != r.set.Label: // also if it is not well, because it may be well in a moment
		return r.unlabelled(m)
	case m.State == unhealthy: // it gets no containers
		return Step{Phase: Lost, Verb: Wait, Why: NodeManagerUnhealthy, Text: m.Health}
	}
	return r.size(m, r.target(m))
}

// unlabelled decides about a NodeManager that runs without the label. Anybody's containers could land on it, so it
// offers as little as it can.
func (r *round) unlabelled(m *Manager) Step {
	s := r.size(m, r.set.Floor)
	s.Phase = Labelled
	switch {
	case !r.in.RM.Labels:
		s.Why = LabelMissing
	case s.Verb == Wait:
		s.Verb, s.Why, s.Text = LabelHost, WrongLabel, m.Label
	default:
		s.Why, s.Text = WrongLabel, m.Label
	}
	return s
}

// size brings a NodeManager to a total. It shrinks at once, with a deadline for the containers that do not fit. Until
// they have ended, nothing grows beyond what they use, and the deadline stands unless the node has room for them again:
// otherwise slack that comes and goes would move it for ever.
func (r *round) size(m *Manager, want Size) Step {
	over := !m.Used.Fits(want)
	s := Step{Phase: Active, Verb: Resize, Size: want}
	if over {
		s.Phase = Shrinking
	}
	if m.Used.Fits(m.Total) && !over {
		r.marks.lift()
	}
	if over {
		r.marks.Into = want
	}
	until := r.in.Now.Add(r.patience(m, want))
	sooner := over && !r.marks.Until.IsZero() && until.Before(r.marks.Until) // containers have less than they had
	switch {
	case want == m.Total && !over:
		return Step{Phase: s.Phase, Verb: Wait, Why: UpToDate}
	case want == m.Total && r.marks.Armed.Equal(r.in.RM.Since) && !sooner:
		return Step{Phase: s.Phase, Verb: Wait, Why: ContainersRunning}
	case want == m.Total:
		// The ResourceManager ignores a size that it has already, deadline included. One MiB more is another size and room
		// for nothing. The next round takes it back.
		s.Size.MemoryMiB, s.Why = want.MemoryMiB+1, DeadlineUnknown
		if sooner {
			s.Why = LessSlack
		}
	case m.Total.Fits(want) && want.Fits(m.Total.Or(m.Used)): // no growth: nothing new fits
		s.Why = SlackRestored
	case m.Total.Fits(want):
		r.marks.Grown, s.Why = r.in.Now, MoreSlack
	default:
		s.Why = LessSlack
	}
	if sooner || over && r.marks.Until.IsZero() {
		r.marks.begin(m, until)
	}
	r.marks.Armed, s.Within, r.marks.Told = r.in.RM.Since, r.set.Grace, time.Time{}
	if over {
		s.Within, r.marks.Told = r.marks.Until.Sub(r.in.Now), r.marks.Until
	}
	return s
}
