package pool

import (
	"cmp"
	"slices"
	"time"
)

// Phase is where a worker is in its life.
type Phase string

// The phases, in the order of a life, and then those beside it.
const (
	Terminated     Phase = "Terminated"     // there is no pod
	Provisioning   Phase = "Provisioning"   // the host gets its label, and the pod is made
	Registering    Phase = "Registering"    // the NodeManager starts
	Labelled       Phase = "Labelled"       // it is registered, and its label is put right
	Active         Phase = "Active"         // it runs containers
	Shrinking      Phase = "Shrinking"      // its containers use more than it is to have
	Draining       Phase = "Draining"       // it is to stop, and gets no new containers
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
	Resize    Verb = "Resize"    // tell the ResourceManager the total, and when to kill what does not fit
	Exclude   Verb = "Exclude"   // write the host and the time into the exclude file, and have it read
	Include   Verb = "Include"   // take the host out of the exclude file, and have it read
	DeletePod Verb = "DeletePod" // with this time for its processes to end
)

// Code is the reason for a step, in one word.
type Code string

// The reasons.
const (
	NotWanted                  Code = "NotWanted"                  // it is not to run now
	NoDemand                   Code = "NoDemand"                   // no application waits for it
	NodeCordoned               Code = "NodeCordoned"               // its node is closed, or Waterline is stopped there
	NoRoom                     Code = "NoRoom"                     // its node has no room for its pod
	NothingSold                Code = "NothingSold"                // no policy sells anything
	SpecInvalid                Code = "SpecInvalid"                // the spec of its pool cannot be used
	PodsRefused                Code = "PodsRefused"                // a pod would not be safe
	CoolingDown                Code = "CoolingDown"                // its name was in use a moment ago
	PreviousNodeManagerListed  Code = "PreviousNodeManagerListed"  // the NodeManager of an earlier pod is listed
	HostNotLabelled            Code = "HostNotLabelled"            // its host has not the pool's label
	LabelMissing               Code = "LabelMissing"               // the ResourceManager's store lacks the label
	HostExcluded               Code = "HostExcluded"               // its host is in the exclude file, and should not be
	PodMissing                 Code = "PodMissing"                 // everything is ready for its pod
	PodEnded                   Code = "PodEnded"                   // its pod has ended, and is deleted
	PodStarting                Code = "PodStarting"                // its pod does not run yet
	NotRegistered              Code = "NotRegistered"              // its NodeManager has not registered
	TooManyAttempts            Code = "TooManyAttempts"            // its NodeManager failed to register too often
	HostNameMismatch           Code = "HostNameMismatch"           // its NodeManager registered under another name
	DuplicateNodeManagers      Code = "DuplicateNodeManagers"      // two NodeManagers are listed on its host
	WrongLabel                 Code = "WrongLabel"                 // its NodeManager has not the pool's label
	MoreSlack                  Code = "MoreSlack"                  // its node has room for more
	LessSlack                  Code = "LessSlack"                  // its node has room for less
	SlackRestored              Code = "SlackRestored"              // its node has room for them again
	DeadlineUnknown            Code = "DeadlineUnknown"            // another ResourceManager does not know the deadline
	ContainersRunning          Code = "ContainersRunning"          // containers have until the deadline
	ContainersStarting         Code = "ContainersStarting"         // containers were allocated, and have not started
	UpToDate                   Code = "UpToDate"                   // nothing is to be done
	PodOutdated                Code = "PodOutdated"                // its pod is of an earlier spec, and to be replaced
	EvictionPending            Code = "EvictionPending"            // its node asks for its eviction; containers end first
	Stopping                   Code = "Stopping"                   // it is to stop
	Stopped                    Code = "Stopped"                    // it runs nothing any more
	DeadlineExceeded           Code = "DeadlineExceeded"           // its time is over
	NodeManagerLost            Code = "NodeManagerLost"            // its NodeManager sends no heartbeats
	NodeManagerUnhealthy       Code = "NodeManagerUnhealthy"       // its NodeManager says that it is not well
	ResourceManagerUnreachable Code = "ResourceManagerUnreachable" // the ResourceManager does not answer
)

// Step is what is to be done for a worker now.
type Step struct {
	Worker string
	Phase  Phase
	Verb   Verb
	Size   Size          // of Resize
	Within time.Duration // of Resize, Exclude, drains and DeletePod; never negative
	By     time.Time     // when a worker that is to stop must have stopped; zero: it is to stay
	Marks  Marks         // to be on the pod before the verb is carried out
	Held   int64         // MiB of memory that its containers use beyond what the slack of its node allows
	Failed bool          // this pod counts as a failed attempt
	Why    Code
	Text   string // what a person should know besides
}

// Deadline returns the time until which containers that do not fit after a resize may run. It lies in the past if an
// earlier shrink set it. It is wall-clock time, like the marks, so that all rounds compute the same deadline.
func (s *Step) Deadline(now time.Time) time.Time {
	if s.Within == 0 && !s.Marks.Told.IsZero() {
		return s.Marks.Told.Round(0)
	}
	return now.Add(s.Within).Round(0)
}

// Leave postpones a step to a later round. It keeps the marks of the pod, because new marks would record a growth, or a
// deadline of containers, that did not happen.
func (s *Step) Leave(p *Pod) { s.Verb, s.Within, s.Marks = Wait, 0, p.Marks }

// Pace leaves resizes beyond a number to later rounds: first those that grow most. It changes the steps of [Next] for
// the same input.
func Pace(in *Input, steps []Step, most int) {
	var all []int
	for i, s := range steps {
		if s.Verb == Resize {
			all = append(all, i)
		}
	}
	if len(all) <= most {
		return
	}
	growth := func(i int) int64 {
		m, _ := in.Workers[i].Manager()
		return max(steps[i].Size.MemoryMiB-m.Total.MemoryMiB, 0) // a resize is of a NodeManager that lives
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(growth(a), growth(b)) })
	for _, i := range all[most:] {
		steps[i].Leave(in.Workers[i].Pod)
	}
}
