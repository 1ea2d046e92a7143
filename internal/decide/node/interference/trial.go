package interference

import (
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How batch pods are throttled on trial.
const (
	hourly        = 6                // trials in an hour, at most
	mostThrottled = 4                // pods at once
	pause         = time.Minute      // from the end of a trial to the next
	skipped       = 1                // spans after throttling that do not count
	trial         = skipped + recent // spans that a trial takes
	// spans in which a suspect must have been found after the first: the trial's baseline then began after it
	ripe = recent

	half      = 500 // thousandths of its use, or of its last throttle, that a pod is throttled to
	deepest   = 125 // thousandths of its use before the first throttle: the deepest throttle
	leastPart = 10  // milli-cores, as in rule suppress
	worthy    = 30  // thousandths of the time that a trial must promise
	helps     = 500 // thousandths of the promise; less is no relief
	bites     = 750 // thousandths of its throttle: a pod that uses less is not limited by it

	patience = time.Minute      // until a throttle is eased; doubles each time the pod is throttled again
	longest  = 8 * time.Minute  // patience never exceeds this
	still    = 4                // times patience: then the throttle is eased though the victim still waits
	spared   = 10 * time.Minute // until a pod whose trial did not help is tried again; doubles each time
	ignored  = 80 * time.Minute // the most that this becomes
	records  = 8                // pods that are remembered
	lost     = 12               // spans without a measurement of the victim, until the throttle is lifted
	whole    = 1000             // thousandths: not throttled
)

// Throttled is a batch pod that is throttled. Spans are counted from the last change.
type Throttled struct {
	model.Throttle
	Used   int64          // CPU use before the first throttle, in milli-cores
	Before int64          // waiting of the victim before the last trial, in thousandths of the time
	Was    model.Throttle // before the last trial
	Spans  int            // since the last change
	Blind  int            // of them, the last ones in which the victim was not measured
}

// Record is what is remembered of a pod that was throttled.
type Record struct {
	UID      string
	Again    time.Duration // when it may be tried again
	Failed   int           // trials in a row that did not help
	Patience time.Duration // until its throttle is eased
	Tried    time.Duration // when its last trial began
}

// act continues with the pods that are throttled, and begins a trial of the suspect whose slope this is.
func (s *State) act(in *Input, slope float32) {
	for i := range s.Throttled {
		s.review(&s.Throttled[i], in)
	}
	s.Throttled = slices.DeleteFunc(s.Throttled, func(h Throttled) bool { return h.Times >= whole })
	r := &s.Result
	named := r.Finding.Code == model.SuspectNamed
	tries := in.Acts && named && s.Streak > ripe && s.try(slope)
	r.Waits = named && !tries && s.throttled(r.Finding.Suspect) == nil
	r.Throttles = make([]model.Throttle, 0, len(s.Throttled))
	for i := range s.Throttled {
		r.Throttles = append(r.Throttles, s.Throttled[i].Throttle)
	}
}

// review decides whether a throttle stays, after another span.
func (s *State) review(h *Throttled, in *Input) {
	h.Spans++
	pod, podThere := s.index(h.UID)
	victim, victimThere := s.index(h.Victim)
	if !in.Acts || !podThere || !victimThere || !in.Pods[pod].Batch || !in.Pods[victim].Online {
		s.finish(h)
		h.set(whole)
		return
	}
	t, v := &s.Tracks[pod], &s.Tracks[victim]
	if h.Blind++; v.Wait.Full > 0 {
		h.Blind = 0
	}
	r := s.record(h.UID)
	switch {
	case h.Blind >= lost:
		s.finish(h)
		h.set(whole)
	case h.Code == model.ThrottleTried:
		if h.Spans >= trial {
			s.judge(h, t, v)
		}
	case h.Spans < spans(r.Patience), v.Wait.Full < recent:
	case s.mean(v, wait, recent) < pressed, h.Spans >= still*spans(r.Patience):
		h.Code = model.ThrottleEased
		h.set(2 * h.Times)
	}
}

func spans(d time.Duration) int { return int(d / span) }

// judge ends a trial. Relief counts only if the throttle can have caused it: pod and victim were measured all the time,
// and the throttle limited the pod. If the pod used less of its own accord, the victim's relief proves nothing.
func (s *State) judge(h *Throttled, t, v *Track) {
	s.finish(h)
	r := s.record(h.UID)
	if v.Wait.Full < recent || t.Used.Full < recent {
		r.Again = s.Clock + pause
		h.undo()
		return
	}
	h.Relief = h.Before - s.mean(v, wait, recent)
	uses := grain * s.mean(t, used, recent)
	switch {
	case uses*1000 < h.Milli*bites, uses > h.Milli*5/4+leastPart:
		r.Again = s.Clock + pause
	case h.Relief*1000 >= h.Expect*helps:
		h.Code, h.Spans, r.Failed = model.ThrottleKept, 0, 0
		return
	default:
		s.Result.Undone = h.Throttle
		s.Result.Undone.Code = model.ThrottleUndone
		r.Again = s.Clock + min(spared<<min(r.Failed, 4), ignored)
		r.Failed++
	}
	h.undo()
}

// undo returns to the throttle before the last trial.
func (h *Throttled) undo() { h.Throttle, h.Spans = h.Was, 0 }

// set throttles a pod to so many thousandths of its use before the first throttle.
func (h *Throttled) set(times int64) {
	h.Times, h.Spans = times, 0
	h.Milli = max(h.Used*times/1000, leastPart)
}

// finish ends the trial of a pod, if it is on trial.
func (s *State) finish(h *Throttled) {
	if h.Code == model.ThrottleTried {
		s.Ended, h.Code = s.Clock, model.ThrottleKept
	}
}

// try throttles the suspect on trial, and reports whether it did.
func (s *State) try(slope float32) bool {
	f := &s.Result.Finding
	if _, found := s.index(f.Suspect); !found {
		return false
	}
	r := s.record(f.Suspect)
	spent := s.Trials[0] != 0 && s.Clock-s.Trials[0] < time.Hour
	if s.Clock < r.Again || s.Ended != 0 && s.Clock-s.Ended < pause || spent {
		return false
	}
	if slices.ContainsFunc(s.Throttled, func(h Throttled) bool { return h.Code == model.ThrottleTried }) {
		return false
	}
	h := s.throttled(f.Suspect)
	again := h != nil
	if !again {
		if len(s.Throttled) >= mostThrottled {
			return false
		}
		h = &Throttled{Used: f.Used, Throttle: model.Throttle{UID: f.Suspect, Times: whole}}
	}
	times := h.Times * half / 1000
	expect := min(int64(float64(slope)/grain*float64(f.Used-h.Used*times/1000)), f.Explain)
	if times < deepest || expect < worthy {
		return false
	}
	h.Was, h.Before, h.Blind = h.Throttle, f.Wait, 0
	h.Victim, h.Expect, h.Relief, h.Code = f.Victim, expect, 0, model.ThrottleTried
	h.set(times)
	if s.Clock-r.Tried > time.Hour {
		r.Patience = 0
	}
	r.Tried, r.Patience = s.Clock, min(max(2*r.Patience, patience), longest)
	copy(s.Trials[:], s.Trials[1:])
	s.Trials[hourly-1] = s.Clock
	if !again {
		i, _ := slices.BinarySearchFunc(s.Throttled, h.UID,
			func(h Throttled, uid string) int { return strings.Compare(h.UID, uid) })
		s.Throttled = slices.Insert(s.Throttled, i, *h)
	}
	return true
}

// throttled returns a throttled pod; nil if it is not.
func (s *State) throttled(uid string) *Throttled {
	for i := range s.Throttled {
		if s.Throttled[i].UID == uid {
			return &s.Throttled[i]
		}
	}
	return nil
}

// record returns the record of a pod, and makes it if there is none. If there are too many, the record is dropped of
// the pod that is not throttled and may be tried again soonest.
func (s *State) record(uid string) *Record {
	soonest := -1
	for i := range s.Records {
		r := &s.Records[i]
		if r.UID == uid {
			return r
		}
		if s.throttled(r.UID) == nil && (soonest < 0 || r.Again < s.Records[soonest].Again) {
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
