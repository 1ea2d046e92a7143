package model

import (
	"sort"
	"time"
)

// Suppression is how much CPU batch may use now, and how that is carried out.
type Suppression struct {
	Milli    int64       // that all batch pods together may use, in milli-cores
	CPUs     int         // on so many CPUs; 0: on all that pods may run on
	Parts    []BatchPart // whose they are, ordered by UID
	Quotas   bool        // the parts are carried out as quotas
	Reason   Reason      // why so much
	Reaction Reaction    // the last time that it became less
}

// BatchPart is what one batch pod may use.
type BatchPart struct {
	UID    string
	Milli  int64 // in milli-cores
	Memory int64 // of the memory that batch may use, by what was asked for; nothing but its own limit keeps it to that
}

// OnCPUs returns on how many CPUs batch may run; 0: on all that pods may run on.
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

// Quota returns what a pod may use in milli-cores; false if no quota is to keep it to that.
func (s *Suppression) Quota(uid string) (int64, bool) {
	if s == nil || !s.Quotas {
		return 0, false
	}
	part, found := s.Part(uid)
	return part.Milli, found
}

// Reaction is one time that batch was given less, what that should have freed and what it did free, in milli-cores.
type Reaction struct {
	At       time.Duration // on the clock of [Load]; 0: there was none yet
	From     int64         // what batch might use before
	To       int64         // what it might use then
	Used     int64         // what it used before
	Expected int64         // by how much it had to use less for that
	Seen     bool          // it was measured since
	Observed int64         // by how much it used less, by the first measurement that began after it
}
