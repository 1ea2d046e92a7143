package model

import "time"

// Evictions is what a node asks the cluster for when nothing that is done on it helps any more.
type Evictions struct {
	Hot     Reason    // why nothing is sold here, although there may be an offer; zero: the node is not hot
	Request *Eviction // the batch pod that should leave; nil: none
	Frozen  Frozen    // the batch pod that takes no more memory until then; zero: none
	Last    Relief    // what came of the last one that was asked for and left; zero: none did
}

// HotFor returns why nothing is sold; the zero value if the node is not hot.
func (e *Evictions) HotFor() Reason {
	if e == nil {
		return Reason{}
	}
	return e.Hot
}

// Requested returns the pod that should leave, if that is more than said; nil: none.
func (e *Evictions) Requested() *Eviction {
	if e == nil || e.Request == nil || e.Request.Withheld != nil {
		return nil
	}
	return e.Request
}

// Eviction asks for one batch pod to leave its node.
type Eviction struct {
	UID       string // of the pod, as the API has it
	Namespace string
	Name      string
	Reason    Reason  // why it, and why now, by the numbers of when it was chosen
	Withheld  *Reason `json:",omitempty"` // it is only said, and this is why; nil: it is asked for
}

// Frozen is a batch pod that stands still.
type Frozen struct {
	UID    string // as in its cgroup; "": none
	Reason Reason // why it, and why now, by the numbers of when it was chosen
}

// Relief is what it was expected to free that a pod left, and what it did free, in bytes of memory.
type Relief struct {
	UID      string
	At       time.Duration // when it began to leave, on the clock of [Load]
	Expected int64
	Seen     bool // it was measured since
	Observed int64
}

// EvictPreference is what a pod says about being evicted.
type EvictPreference string

// The preferences. The zero value has none.
const (
	EvictNever EvictPreference = "never" // whatever happens
	EvictFirst EvictPreference = "first" // before those that do not say so
)
