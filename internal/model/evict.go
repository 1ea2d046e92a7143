package model

import "time"

// Evictions is the result of the eviction rule: what a node does and requests when suppression and memory limits are
// not enough.
type Evictions struct {
	Hot     Reason    // why nothing is sold although there may be an offer; zero: the node is not hot
	Request *Eviction // the batch pod that should leave; nil: none
	Last    Relief    // outcome of the last requested eviction; zero: none
	// Batch pods that stall on their memory, ordered by UID.
	Stalls []PodReason `json:",omitempty"`
}

// PodReason is a reason about one pod.
type PodReason struct {
	UID    string // as in the pod's cgroup
	Reason Reason
}

// HotFor returns why the node is hot; the zero value if it is not.
func (e *Evictions) HotFor() Reason {
	if e == nil {
		return Reason{}
	}
	return e.Hot
}

// Requested returns the eviction request, unless it is only reported (Withheld); nil: none.
func (e *Evictions) Requested() *Eviction {
	if e == nil || e.Request == nil || e.Request.Withheld != nil {
		return nil
	}
	return e.Request
}

// Eviction requests that one batch pod leaves its node.
type Eviction struct {
	UID       string // of the pod, in the API
	Namespace string
	Name      string
	Reason    Reason  // why this pod, and why now, with the numbers at the time of the choice
	Withheld  *Reason `json:",omitempty"` // why the eviction is only reported; nil: it is requested
}

// Relief compares the memory that an eviction was expected to free with the memory that it freed, in bytes.
type Relief struct {
	UID      string
	At       time.Duration // when the pod began to leave, on the clock of [Load]
	Expected int64
	Seen     bool // Observed was measured
	Observed int64
}

// EvictPreference is a pod's annotation about its own eviction.
type EvictPreference string

// The preferences. The zero value states no preference.
const (
	EvictNever EvictPreference = "never" // never evicted
	EvictFirst EvictPreference = "first" // evicted before pods without this preference
)
