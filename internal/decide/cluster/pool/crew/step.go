package crew

import "github.com/waterline-io/waterline/internal/decide/cluster/pool"

// What is to be done has the same form for all workers of pools.
type (
	// Phase is where a worker is in its life.
	Phase = pool.Phase
	// Verb is what is to be done to a worker.
	Verb = pool.Verb
	// Code is the reason for a step, in one word.
	Code = pool.Code
	// Step is what is to be done to a worker, and why.
	Step = pool.Step
)

// The phases, in the order of a life, and then those beside it.
const (
	Provisioning Phase = "Provisioning" // its pod is made
	Registering  Phase = "Registering"  // its process starts, and its coordinator does not list it yet
	Active       Phase = "Active"       // it gets work
	Draining     Phase = "Draining"     // it is to stop, and finishes what it has
	Stopped      Phase = "Stopped"      // nothing runs in it, or there is no pod
	Lost         Phase = "Lost"         // its coordinator does not list it any more
	Quarantined  Phase = "Quarantined"  // it is given up until a person looks at it
)

// The verbs. Each has the same result if it is done twice.
const (
	Wait      Verb = "Wait"
	CreatePod Verb = "CreatePod"
	Drain     Verb = "Drain"     // ask the engine to drain it within this time
	Undrain   Verb = "Undrain"   // take a drain back, where the engine can
	DeletePod Verb = "DeletePod" // with this time for its processes to end
)

// The reasons.
const (
	NotWanted              Code = "NotWanted"              // it is not to run now
	NodeCordoned           Code = "NodeCordoned"           // its node takes no new pods, or Waterline is stopped there
	NoRoom                 Code = "NoRoom"                 // its node has no room for its pod
	NothingSold            Code = "NothingSold"            // no policy sells anything: its pod would be an online pod
	SpecInvalid            Code = "SpecInvalid"            // the spec of its pool cannot be used
	CoolingDown            Code = "CoolingDown"            // its name was in use a moment ago
	PodMissing             Code = "PodMissing"             // everything is ready for its pod
	PodStarting            Code = "PodStarting"            // its pod does not run yet
	NotRegistered          Code = "NotRegistered"          // its coordinator does not list it yet
	TooManyAttempts        Code = "TooManyAttempts"        // it failed to register too often
	UpToDate               Code = "UpToDate"               // nothing is to be done
	WindowEnding           Code = "WindowEnding"           // its window ends so soon that it has to drain now
	Deleted                Code = "Deleted"                // somebody deletes its pod, or drains its node
	Evicted                Code = "Evicted"                // its node asks for its eviction
	LessSlack              Code = "LessSlack"              // its node offers less than what is bound there
	DrainIrreversible      Code = "DrainIrreversible"      // it drains already, and its engine cannot take that back
	Idle                   Code = "Idle"                   // nothing runs in it any more
	Ended                  Code = "Ended"                  // its process has ended
	DeadlineExceeded       Code = "DeadlineExceeded"       // its time is over
	WorkerLost             Code = "WorkerLost"             // its coordinator does not list it any more
	CoordinatorUnreachable Code = "CoordinatorUnreachable" // the coordinator does not answer
)
