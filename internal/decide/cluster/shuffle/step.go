package shuffle

// Verb is what is to be done for a server now.
type Verb string

// The verbs. Each has the same result if it is done twice.
const (
	Wait  Verb = "Wait"
	Drain Verb = "Drain" // ask the service to drain it
	End   Verb = "End"   // end its process, or see that it has ended
)

// Code is the reason for a step, in one word.
type Code string

// The reasons.
const (
	UpToDate          Code = "UpToDate"          // it is to stay
	ToLeave           Code = "ToLeave"           // it is to go, and does not drain yet
	HasData           Code = "HasData"           // it drains, and applications still wait for its data
	Empty             Code = "Empty"             // nobody waits for its data
	DeadlineExceeded  Code = "DeadlineExceeded"  // it had to end by now, with data or without
	NoReplicas        Code = "NoReplicas"        // its drain takes too long, and its end would fail jobs
	ReplicasAnswer    Code = "ReplicasAnswer"    // its drain takes too long, and other servers have copies of its data
	ReplicasMissing   Code = "ReplicasMissing"   // the same, but with those that are missing, it may have the last copy
	ServerUnreachable Code = "ServerUnreachable" // it does not answer, or the service does not list it
	ServerLost        Code = "ServerLost"        // it ended with data that somebody waits for
)

// Step is what is to be done for a server now.
type Step struct {
	Server string
	Verb   Verb
	Why    Code
}
