// Package pool decides the next step of each worker of a pool of YARN NodeManagers.
//
// Nothing is remembered between rounds. A worker's phase follows from what the ResourceManager and its pod show, so a
// controller that was killed goes on where the old one stopped, and each step may be taken twice.
//
// Two rules hold everywhere. No container lands on a worker before its host has the label: the label is set before the
// pod is made, and the NodeManager offers no more than the floor until the label was read back. And online services
// never wait for YARN: a worker whose time is over is stopped, whatever the ResourceManager says or does not say.
package pool

import (
	"fmt"
	"slices"
	"time"
)

// Size is what a NodeManager offers to containers.
type Size struct {
	MemoryMiB int64
	VCores    int64
}

// fits reports whether one size fits into another.
func (s Size) fits(into Size) bool { return s.MemoryMiB <= into.MemoryMiB && s.VCores <= into.VCores }

// String returns the size as people write it.
func (s Size) String() string { return fmt.Sprintf("%dMiB,%dvcores", s.MemoryMiB, s.VCores) }

// Settings are those of the pool.
type Settings struct {
	Label string // of every host of the pool
	// Floor is what yarn-site says: a NodeManager that starts registers with it. The ResourceManager refuses one below
	// the scheduler's minimum allocation.
	Floor, Ceiling Size
	Step           Size          // a worker grows by at most this much at once; a part of a step is not offered
	Grace          time.Duration // for containers to end before the ResourceManager kills what does not fit any more
	Drain          time.Duration // the same for a worker that is to stop, if it has no end
	Register       time.Duration // a NodeManager that has not registered after this time is started anew
	CoolDown       time.Duration // for the ResourceManager to forget a worker before its name is used again
	Attempts       int           // a worker whose NodeManager failed to register this many times is given up
	Graceful       bool          // the exclude file of the ResourceManager can be written
}

// Input is what was observed.
type Input struct {
	Now      time.Time
	Settings Settings
	RM       RM
	Workers  []Worker // ordered by name
}

// RM is the active ResourceManager.
type RM struct {
	Known   bool   // it answered just now; otherwise nothing else in the input that comes from it counts
	Labels  bool   // the label exists in its store
	Started string // when this one became active: what an earlier one was told about deadlines, it does not know
}

// Worker is one place for a NodeManager, with a name that stays.
type Worker struct {
	Name      string
	Host      string    // under which its NodeManager must register
	Wanted    bool      // it is to run now
	End       time.Time // when it is stopped, busy or not; zero: it may take its time
	Allowance Size      // what the slack of its node allows
	Label     string    // of its host, in the ResourceManager's store
	Excluded  bool      // its host is in the exclude file
	Pod       *Pod      // nil: there is none
	Ended     time.Time // when its last pod ended
	Attempts  int       // pods in a row whose NodeManager did not register
	Managers  []Manager // that the ResourceManager shows under this host
	Stray     string    // another host under which its NodeManager registered; "": none
}

// Pod is the pod of a worker.
type Pod struct {
	Started  time.Time // when its NodeManager was started; zero: not yet
	Deleting bool      // somebody deletes it, or drains its node
	Armed    string    // the ResourceManager, by [RM.Started], that was told the deadline of the present size
}

// Manager is a NodeManager as the ResourceManager shows it.
type Manager struct {
	ID          string // host:port
	State       string // as the ResourceManager calls it, such as RUNNING
	Label       string
	Total, Used Size
	Containers  int
	Heartbeat   time.Time // the last one
	Health      string    // what it says about itself, if it is unhealthy
}

// The states that are told apart. NEW counts as not registered.
const (
	running         = "RUNNING"
	unhealthy       = "UNHEALTHY"
	decommissioning = "DECOMMISSIONING"
	decommissioned  = "DECOMMISSIONED"
	shutdown        = "SHUTDOWN"
	lost            = "LOST"
)

// Phase is where a worker is in its life.
type Phase string

// The phases, in the order of a life, and then those beside it.
const (
	Terminated     Phase = "Terminated"     // there is no pod
	Provisioning   Phase = "Provisioning"   // the host gets its label, and the pod is made
	Registering    Phase = "Registering"    // the NodeManager starts
	Labelled       Phase = "Labelled"       // it is registered, and its label is not right
	Active         Phase = "Active"         // it runs containers
	Shrinking      Phase = "Shrinking"      // it runs more than it is to have
	Draining       Phase = "Draining"       // it gets no new containers, and is to stop
	Decommissioned Phase = "Decommissioned" // it has stopped
	Lost           Phase = "Lost"           // it does not report, or is not well
	Frozen         Phase = "Frozen"         // the ResourceManager does not answer
	Quarantined    Phase = "Quarantined"    // it is given up until a person looks at it
)

// Verb is what is to be done for a worker now.
type Verb string

// The verbs. Each has the same result if it is done twice.
const (
	Wait      Verb = "Wait"
	LabelHost Verb = "LabelHost" // give the host the pool's label in the ResourceManager's store
	CreatePod Verb = "CreatePod"
	Resize    Verb = "Resize"  // tell the ResourceManager the total, and after which time to kill what does not fit
	Exclude   Verb = "Exclude" // write the host and the time into the exclude file, and have it read
	Include   Verb = "Include" // take the host out of the exclude file, and have it read
	DeletePod Verb = "DeletePod"
)

// Code says why.
type Code string

// The reasons.
const (
	NotWanted       Code = "NotWanted"       // it is not to run now
	CoolingDown     Code = "CoolingDown"     // its name was in use a moment ago
	HostNotLabelled Code = "HostNotLabelled" // its host has not the pool's label
	LabelMissing    Code = "LabelMissing"    // the ResourceManager's store lacks the label
	StillExcluded   Code = "StillExcluded"   // its host is in the exclude file, and it is wanted
	NoPod           Code = "NoPod"           // everything is ready for its pod
	PodStarts       Code = "PodStarts"       // its pod does not run yet
	NotRegistered   Code = "NotRegistered"   // its NodeManager has not registered
	TooManyAttempts Code = "TooManyAttempts" // its NodeManager never registered
	OtherName       Code = "OtherName"       // its NodeManager registered under another name
	TwoManagers     Code = "TwoManagers"     // the ResourceManager shows two NodeManagers on its host
	WrongLabel      Code = "WrongLabel"      // its NodeManager has not the pool's label
	MoreSlack       Code = "MoreSlack"       // its node has room for more
	LessSlack       Code = "LessSlack"       // its node has room for less
	RMForgot        Code = "RMForgot"        // another ResourceManager does not know the deadline
	StillInUse      Code = "StillInUse"      // containers have until the deadline
	AsWanted        Code = "AsWanted"        // nothing is to be done
	Stopping        Code = "Stopping"        // it is to stop, and gets no new containers
	Stopped         Code = "Stopped"         // it runs nothing any more
	TimeOver        Code = "TimeOver"        // its time is over
	ManagerLost     Code = "ManagerLost"     // the ResourceManager does not hear from its NodeManager
	ManagerSick     Code = "ManagerSick"     // its NodeManager says that it is not well
	RMSilent        Code = "RMSilent"        // the ResourceManager does not answer
)

// Step is what is to be done for a worker now.
type Step struct {
	Worker string
	Phase  Phase
	Verb   Verb
	Size   Size          // of Resize
	Within time.Duration // of Resize and Exclude: the time for containers to end
	Why    Code
	Text   string // what a person should know besides
}

// Next returns the next step of each worker, in their order. The caller adds the label to the ResourceManager's store
// if a step says that it is missing.
func Next(in *Input) []Step {
	steps := make([]Step, len(in.Workers))
	for i := range in.Workers {
		r := round{in: in, set: &in.Settings, w: &in.Workers[i]}
		steps[i] = r.next()
		steps[i].Worker = r.w.Name
	}
	return steps
}

// round decides about one worker.
type round struct {
	in  *Input
	set *Settings
	w   *Worker
}

func (r *round) next() Step {
	switch w := r.w; {
	case w.Pod != nil && !w.End.IsZero() && !r.in.Now.Before(w.End):
		return Step{Phase: Decommissioned, Verb: DeletePod, Why: TimeOver}
	case !r.in.RM.Known:
		return Step{Phase: Frozen, Verb: Wait, Why: RMSilent}
	case w.Pod == nil:
		return r.absent()
	case w.Stray != "":
		return Step{Phase: Quarantined, Verb: DeletePod, Why: OtherName, Text: w.Stray}
	case !w.Wanted || w.Pod.Deleting:
		return r.drain()
	}
	return r.present()
}

// absent decides about a worker without a pod.
func (r *round) absent() Step {
	w := r.w
	switch {
	case w.Excluded: // no longer than the drain: another ResourceManager would refuse the worker at once
		return Step{Phase: Terminated, Verb: Include, Why: StillExcluded}
	case !w.Wanted:
		return Step{Phase: Terminated, Verb: Wait, Why: NotWanted}
	case w.Stray != "":
		return Step{Phase: Quarantined, Verb: Wait, Why: OtherName, Text: w.Stray}
	case w.Attempts >= r.set.Attempts:
		return Step{Phase: Quarantined, Verb: Wait, Why: TooManyAttempts}
	case r.in.Now.Sub(w.Ended) < r.set.CoolDown:
		return Step{Phase: Terminated, Verb: Wait, Why: CoolingDown}
	case !r.in.RM.Labels:
		return Step{Phase: Provisioning, Verb: Wait, Why: LabelMissing}
	case w.Label != r.set.Label:
		return Step{Phase: Provisioning, Verb: LabelHost, Why: HostNotLabelled}
	}
	return Step{Phase: Provisioning, Verb: CreatePod, Why: NoPod}
}

// present decides about a worker that is to run and has a pod.
func (r *round) present() Step {
	w := r.w
	m, several := r.manager()
	switch {
	case several:
		return Step{Phase: Quarantined, Verb: DeletePod, Why: TwoManagers}
	case w.Excluded: // also if it is draining: then it goes on with what it had
		return Step{Phase: Draining, Verb: Include, Why: StillExcluded}
	case w.Pod.Started.IsZero():
		return Step{Phase: Provisioning, Verb: Wait, Why: PodStarts}
	case m == nil:
		if r.in.Now.Sub(w.Pod.Started) >= r.set.Register {
			return Step{Phase: Registering, Verb: DeletePod, Why: NotRegistered}
		}
		return Step{Phase: Registering, Verb: Wait, Why: NotRegistered}
	case m.State == unhealthy:
		return Step{Phase: Lost, Verb: Wait, Why: ManagerSick, Text: m.Health}
	case m.State != running: // it was well in this pod: no attempt failed
		return Step{Phase: Lost, Verb: DeletePod, Why: ManagerLost, Text: m.State}
	case !r.in.RM.Labels, m.Label != r.set.Label:
		return r.unlabelled(m)
	}
	return r.size(m)
}

// unlabelled decides about a NodeManager that runs without the label: anybody's containers could land on it.
func (r *round) unlabelled(m *Manager) Step {
	switch {
	case !m.Total.fits(r.set.Floor):
		return Step{Phase: Labelled, Verb: Resize, Size: r.set.Floor, Within: r.set.Grace, Why: WrongLabel, Text: m.Label}
	case !r.in.RM.Labels:
		return Step{Phase: Labelled, Verb: Wait, Why: LabelMissing}
	}
	return Step{Phase: Labelled, Verb: LabelHost, Why: WrongLabel, Text: m.Label}
}

// size follows the slack of the node. It grows by steps, and shrinks at once.
func (r *round) size(m *Manager) Step {
	want := r.target(m)
	s := Step{Phase: Active, Verb: Resize, Size: want, Within: r.set.Grace}
	over := !m.Used.fits(want)
	if over {
		s.Phase = Shrinking
	}
	switch {
	case want != m.Total && m.Total.fits(want):
		s.Why = MoreSlack
	case want != m.Total:
		s.Why = LessSlack
	case !over:
		s.Verb, s.Why = Wait, AsWanted
	case r.w.Pod.Armed == r.in.RM.Started:
		s.Verb, s.Why = Wait, StillInUse
	default:
		// The ResourceManager ignores a size that it has already, deadline included. One MiB less is another size, and
		// the next round returns to the whole step.
		s.Size.MemoryMiB, s.Why = want.MemoryMiB-1, RMForgot
	}
	if s.Verb == Wait {
		s.Size, s.Within = Size{}, 0
	}
	return s
}

// target returns the total that a NodeManager is to have now.
func (r *round) target(m *Manager) Size {
	one := func(allowed, total, floor, ceiling, step int64) int64 {
		step = max(step, 1)
		whole := floor + max(allowed-floor, 0)/step*step
		whole = min(whole, max(ceiling, floor))
		return min(whole, max(total, floor)+step)
	}
	f, c, a := r.set.Floor, r.set.Ceiling, r.w.Allowance
	return Size{
		MemoryMiB: one(a.MemoryMiB, m.Total.MemoryMiB, f.MemoryMiB, c.MemoryMiB, r.set.Step.MemoryMiB),
		VCores:    one(a.VCores, m.Total.VCores, f.VCores, c.VCores, r.set.Step.VCores),
	}
}

// drain decides about a pod whose worker is to stop.
func (r *round) drain() Step {
	w := r.w
	m, several := r.manager()
	left := r.set.Drain
	if !w.End.IsZero() {
		left = w.End.Sub(r.in.Now)
	}
	switch {
	case m == nil || m.State == decommissioned || m.State == shutdown || m.State == lost:
		return Step{Phase: Decommissioned, Verb: DeletePod, Why: Stopped}
	case several: // the exclude file names hosts, so it stops both
	case m.State == decommissioning:
		return Step{Phase: Draining, Verb: Wait, Why: StillInUse}
	case m.Containers == 0 && m.Total.fits(r.set.Floor) && !r.set.Graceful:
		return Step{Phase: Decommissioned, Verb: DeletePod, Why: Stopped}
	}
	switch {
	case r.set.Graceful: // also if it is excluded: the ResourceManager has not read that, or another one leads
		return Step{Phase: Draining, Verb: Exclude, Within: left, Why: Stopping}
	case !m.Total.fits(r.set.Floor):
		return Step{Phase: Draining, Verb: Resize, Size: r.set.Floor, Within: left, Why: Stopping}
	}
	return Step{Phase: Draining, Verb: Wait, Why: StillInUse}
}

// manager returns the NodeManager of the worker's pod, and whether there are several that live. The ResourceManager
// also shows those of earlier pods, whose last heartbeat is older than the pod.
func (r *round) manager() (*Manager, bool) {
	var mine *Manager
	live := 0
	for i := range r.w.Managers {
		m := &r.w.Managers[i]
		if slices.Contains([]string{running, unhealthy, decommissioning}, m.State) {
			live++
		} else if m.Heartbeat.Before(r.w.Pod.Started) || r.w.Pod.Started.IsZero() || m.State == "NEW" {
			continue
		}
		if mine == nil || m.Heartbeat.After(mine.Heartbeat) {
			mine = m
		}
	}
	return mine, live > 1
}
