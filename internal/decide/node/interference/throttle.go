package interference

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How batch is throttled on trial.
const (
	hourly   = 6                 // trials at most in an hour
	mostHeld = 4                 // pods that are throttled at once
	pause    = time.Minute       // after a trial, until the next one
	settling = 1                 // spans from throttling on that are not looked at
	trial    = settling + recent // spans after which the trial is over
	ripe     = recent            // spans after the first in which the pod was found: what the trial is compared with is then all of after it began

	half      = 500 // thousandths of what it had, which a pod is throttled to
	deepest   = 125 // likewise, of what it used before it was throttled the first time
	leastPart = 10  // milli-cores, as in rule suppress
	worthy    = 30  // thousandths of the time that a trial must promise
	helps     = 500 // thousandths of what was promised, of which less is no relief
	bites     = 750 // thousandths of what it may use, of which a pod that uses less is not held by that

	patience = time.Minute      // until a pod is given some back; it doubles each time that it is throttled again
	longest  = 8 * time.Minute  // the most that it becomes
	still    = 4                // times patience, until it is given some back though the victim waits as before
	spared   = 10 * time.Minute // until a pod is tried again that did not help; it doubles each time
	ignored  = 80 * time.Minute
	records  = 8  // pods of which that is remembered
	lost     = 12 // spans without a measurement of the victim, until the pod has back what it had
)

// Held is a batch pod that is throttled. Spans are counted from the last change on.
type Held struct {
	model.Throttle
	Used   int64          // milli-cores before it was throttled
	Before int64          // thousandths of the time that the victim waited before the last trial
	Was    model.Throttle // before the last trial
	Spans  int
	Blind  int // of them in a row, in which the victim was not measured
}

// Record is what is remembered of a pod that was throttled.
type Record struct {
	UID      string
	Again    time.Duration // when it may be tried again
	Failed   int           // trials that did not help, in a row
	Patience time.Duration // until it is given some back
	Tried    time.Duration // when that was last
}

// act goes on with what is throttled, and tries who was named.
func (s *State) act(in *Input) {
	for i := range s.Held {
		s.hold(&s.Held[i], in)
	}
	s.Held = slices.DeleteFunc(s.Held, func(h Held) bool { return h.Times >= 1000 })
	tries := in.Acts && s.blame.Finding.Code == model.SuspectNamed && s.seen > ripe && s.try()
	s.blame.Waits = s.blame.Finding.Code == model.SuspectNamed && !tries && s.held(s.blame.Finding.Suspect) == nil
	s.blame.Throttles = s.blame.Throttles[:0]
	for i := range s.Held {
		s.blame.Throttles = append(s.blame.Throttles, s.Held[i].Throttle)
	}
}

// hold decides what becomes of a throttled pod after another span.
func (s *State) hold(h *Held, in *Input) {
	h.Spans++
	pod, victim := s.index(h.UID), s.index(h.Victim)
	if !in.Acts || pod < 0 || victim < 0 || !in.Pods[pod].Batch || !in.Pods[victim].Online {
		s.finish(h)
		s.set(h, 1000)
		return
	}
	t, v := &s.tracks[pod], &s.tracks[victim]
	if h.Blind++; v.wait.full > 0 {
		h.Blind = 0
	}
	r := s.record(h.UID)
	switch {
	case h.Blind >= lost:
		s.finish(h)
		s.set(h, 1000)
	case h.Code == model.ThrottleTried:
		if h.Spans >= trial {
			s.judge(h, t, v)
		}
	case h.Spans < s.spans(r.Patience), v.wait.full < recent:
	case v.wait.mean(s.slot, recent) < pressed, h.Spans >= still*s.spans(r.Patience):
		h.Code = model.ThrottleEased
		s.set(h, 2*h.Times)
	}
}

func (s *State) spans(d time.Duration) int { return int(d / span) }

// judge ends a trial. Relief counts only if it can have come from this: the pod and the victim were measured all the time, and the
// pod was held by what it may use. Where it stopped of its own accord, the victim's relief proves nothing.
func (s *State) judge(h *Held, t, v *track) {
	s.finish(h)
	r := s.record(h.UID)
	if v.wait.full < recent || t.used.full < recent {
		r.Again = s.Clock + pause
		h.undo()
		return
	}
	h.Relief = h.Before - v.wait.mean(s.slot, recent)
	used := grain * t.used.mean(s.slot, recent)
	switch {
	case used*1000 < h.Milli*bites, used > h.Milli*5/4+leastPart:
		r.Again = s.Clock + pause
	case h.Relief*1000 >= h.Expect*helps:
		h.Code, h.Spans, r.Failed = model.ThrottleKept, 0, 0
		return
	default:
		s.blame.Undone = h.Throttle
		s.blame.Undone.Code = model.ThrottleUndone
		r.Again = s.Clock + min(spared<<min(r.Failed, 4), ignored)
		r.Failed++
	}
	h.undo()
}

// undo gives a pod back what the last trial took.
func (h *Held) undo() { h.Throttle, h.Spans = h.Was, 0 }

// finish ends a trial, if one runs.
func (s *State) finish(h *Held) {
	if h.Code == model.ThrottleTried {
		s.Ended, h.Code = s.Clock, model.ThrottleKept
	}
}

// set lets a pod use so many thousandths of what it used.
func (s *State) set(h *Held, times int64) {
	h.Times, h.Spans = times, 0
	h.Milli = max(h.Used*times/1000, leastPart)
}

// try throttles who was named, and reports whether it did.
func (s *State) try() bool {
	f := &s.blame.Finding
	suspect := s.index(f.Suspect)
	if suspect < 0 {
		return false
	}
	r := s.record(f.Suspect)
	if s.Clock < r.Again || s.Ended != 0 && s.Clock-s.Ended < pause || s.Trials[0] != 0 && s.Clock-s.Trials[0] < time.Hour {
		return false
	}
	if slices.ContainsFunc(s.Held, func(h Held) bool { return h.Code == model.ThrottleTried }) {
		return false
	}
	h := s.held(f.Suspect)
	again := h != nil
	if !again {
		if len(s.Held) >= mostHeld {
			return false
		}
		h = &Held{Used: f.Used, Throttle: model.Throttle{UID: f.Suspect, Times: 1000}}
	}
	times := h.Times * half / 1000
	slope := float64(s.tracks[suspect].slope) / grain
	expect := min(int64(slope*float64(f.Used-h.Used*times/1000)), f.Explain)
	if times < deepest || expect < worthy {
		return false
	}
	h.Was, h.Before, h.Blind = h.Throttle, f.Wait, 0
	h.Victim, h.Expect, h.Relief, h.Code = f.Victim, expect, 0, model.ThrottleTried
	s.set(h, times)
	if s.Clock-r.Tried > time.Hour {
		r.Patience = 0
	}
	r.Tried, r.Patience = s.Clock, min(max(2*r.Patience, patience), longest)
	copy(s.Trials[:], s.Trials[1:])
	s.Trials[hourly-1] = s.Clock
	if !again {
		i, _ := slices.BinarySearchFunc(s.Held, h.UID, func(h Held, uid string) int { return strings.Compare(h.UID, uid) })
		s.Held = slices.Insert(s.Held, i, *h)
	}
	return true
}

// held returns a throttled pod; nil if it is not.
func (s *State) held(uid string) *Held {
	for i := range s.Held {
		if s.Held[i].UID == uid {
			return &s.Held[i]
		}
	}
	return nil
}

// index returns where a pod stands; below 0: nowhere.
func (s *State) index(uid string) int {
	i, found := slices.BinarySearchFunc(s.tracks, uid, func(t track, uid string) int { return strings.Compare(t.uid, uid) })
	if !found {
		return -1
	}
	return i
}

// record returns what is remembered of a pod. Where there are too many, the one is forgotten that is not throttled and may be
// tried again soonest.
func (s *State) record(uid string) *Record {
	soonest := -1
	for i := range s.Records {
		r := &s.Records[i]
		if r.UID == uid {
			return r
		}
		if s.held(r.UID) == nil && (soonest < 0 || r.Again < s.Records[soonest].Again) {
			soonest = i
		}
	}
	if len(s.Records) < records {
		s.Records = append(s.Records, Record{UID: uid})
		return &s.Records[len(s.Records)-1]
	}
	s.Records[soonest] = Record{UID: uid}
	return &s.Records[soonest]
}
