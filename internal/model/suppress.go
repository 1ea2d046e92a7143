package model

import (
	"sort"
	"time"
)

// Suppression is the CPU that batch may use now, and the method that enforces it.
type Suppression struct {
	Milli    int64       // limit of all batch pods together, in milli-cores
	CPUs     int         // number of CPUs for batch; 0: all CPUs of pods
	Cores    bool        `json:",omitempty"` // batch gets the other threads of its last core too
	Parts    []BatchPart // one per batch pod, ordered by UID
	Quotas   bool        // the parts are enforced as CFS quotas
	Reason   Reason      // of the limit
	Reaction Reaction    // the last reduction of the limit
}

// BatchPart is the part of the limit for one batch pod.
type BatchPart struct {
	UID    string
	Milli  int64 // in milli-cores
	Memory int64 // part of the memory for batch, in proportion to requests; enforced only by the pod's own limit
}

// OnCPUs returns the number of CPUs for batch; 0: all CPUs of pods.
func (s *Suppression) OnCPUs() int {
	if s == nil {
		return 0
	}
	return s.CPUs
}

// Part returns the part of a pod; false if it has none.
func (s *Suppression) Part(uid string) (BatchPart, bool) {
	i := sort.Search(len(s.Parts), func(i int) bool { return s.Parts[i].UID >= uid })
	if i == len(s.Parts) || s.Parts[i].UID != uid {
		return BatchPart{}, false
	}
	return s.Parts[i], true
}

// Quota returns the limit of a pod in milli-cores; false if the limit is not enforced by a quota.
func (s *Suppression) Quota(uid string) (int64, bool) {
	if s == nil || !s.Quotas {
		return 0, false
	}
	part, found := s.Part(uid)
	return part.Milli, found
}

// Reaction is one reduction of the limit for batch: what it should have freed and what it freed, in milli-cores.
type Reaction struct {
	At       time.Duration // on the clock of [Load]; 0: no reduction yet
	From     int64         // limit before
	To       int64         // limit after
	Used     int64         // usage before
	Expected int64         // reduction in usage that the new limit requires
	Seen     bool          // Observed was measured
	Observed int64         // reduction in usage, by the first measurement that began after the change
}
