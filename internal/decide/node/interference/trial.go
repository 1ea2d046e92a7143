package interference

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How batch pods are throttled on trial.
const (
	trialsPerHour = 6                          // trials in an hour, at most
	maxThrottled  = 4                          // pods at once
	trialInterval = time.Minute                // from the end of a trial to the next
	skippedSpans  = 1                          // spans after throttling that do not count
	trialSpans    = skippedSpans + recentSpans // spans that a trial takes
	// spans in which a suspect must have been found after the first: the trial's baseline then began after it
	ripeSpans = recentSpans

	halved          = 500 // thousandths of its use, or of its last throttle, that a pod is throttled to
	deepestThrottle = 125 // thousandths of its use before the first throttle: the deepest throttle
	minPromise      = 30  // thousandths of the time that a trial must promise
	minRelief       = 500 // thousandths of the promise; less is no relief
	limitingUse     = 750 // thousandths of its throttle: a pod that uses less is not limited by it

	minPatience     = time.Minute      // until a throttle is eased; doubles each time the pod is throttled again
	maxPatience     = 8 * time.Minute  // patience never exceeds this
	patiencesAtMost = 4                // times patience: then the throttle is eased though the victim still waits
	retryAfter      = 10 * time.Minute // until a pod whose trial did not help is tried again; doubles each time
	maxRetryAfter   = 80 * time.Minute // the most that this becomes
	blindSpans      = 12               // spans without a measurement of the victim, until the throttle is lifted
	unthrottled     = 1000             // thousandths: not throttled
)

// Throttled is a batch pod that is throttled, or was: what is remembered of that bounds further trials. Spans are
// counted from the last change.
type Throttled struct {
	model.Throttle
	Used   int64          // CPU use before the first throttle, in milli-cores
	Before int64          // waiting of the victim before the last trial, in thousandths of the time
	Was    model.Throttle // before the last trial
	Spans  int            // since the last change
	Blind  int            // of them, the last ones in which the victim was not measured

	Again    time.Duration // when it may be tried again
	Failed   int           // trials in a row that did not help
	Patience time.Duration // until its throttle is eased
	Tried    time.Duration // when its last trial began
}

// act continues with the pods that are throttled, and begins a trial of the suspect whose slope this is.
func (s *State) act(in *Input, slope float64) {
	s.Throttled = slices.Clone(s.Throttled)
	for i := range s.Throttled {
		if h := &s.Throttled[i]; h.Times < unthrottled {
			s.review(h, in)
		}
	}
	s.Throttled = slices.DeleteFunc(s.Throttled, func(h Throttled) bool {
		return h.Times >= unthrottled && s.Clock >= h.Again && s.Clock-h.Tried > time.Hour
	})
	r := &s.Result
	named := r.Finding.Code == model.SuspectNamed
	tries := in.Acts && named && s.Streak > ripeSpans && s.try(slope)
	r.Throttles = make([]model.Throttle, 0, len(s.Throttled))
	for i := range s.Throttled {
		if s.Throttled[i].Times < unthrottled {
			r.Throttles = append(r.Throttles, s.Throttled[i].Throttle)
		}
	}
	r.Waits = named && !tries && r.Throttle(r.Finding.Suspect) == nil
}

// review decides whether a throttle stays, after another span.
func (s *State) review(h *Throttled, in *Input) {
	h.Spans++
	pod, podThere := s.index(h.UID)
	victim, victimThere := s.index(h.Victim)
	there := in.Acts && podThere && victimThere && in.Pods[pod].Batch && in.Pods[victim].Online
	if h.Blind++; there && s.Tracks[victim].Wait > 0 {
		h.Blind = 0
	}
	eases := int(h.Patience / spanLength)
	switch {
	case !there || h.Blind >= blindSpans:
		s.finish(h)
		h.set(unthrottled)
	case h.Code == model.ThrottleTried:
		if h.Spans >= trialSpans {
			s.judge(h, pod, victim)
		}
	case h.Spans < eases, s.Tracks[victim].Wait < recentSpans:
	case s.Rows[victim].Wait.mean(s.Span, recentSpans) < minVictimWait, h.Spans >= patiencesAtMost*eases:
		h.Code = model.ThrottleEased
		h.set(2 * h.Times)
	}
}

// judge ends a trial. Relief counts only if the throttle can have caused it: pod and victim were measured all the time,
// and the throttle limited the pod. If the pod used less of its own accord, the victim's relief proves nothing.
func (s *State) judge(h *Throttled, pod, victim int) {
	s.finish(h)
	measured := s.Tracks[victim].Wait >= recentSpans && s.Tracks[pod].Used >= recentSpans
	uses := s.Rows[pod].Used.mean(s.Span, recentSpans)
	h.Relief = h.Before - s.Rows[victim].Wait.mean(s.Span, recentSpans)
	switch {
	case !measured || uses*1000 < h.Milli*limitingUse || uses > h.Milli*5/4+model.MinBatchPart:
		h.Again = s.Clock + trialInterval
	case h.Relief*1000 >= h.Expect*minRelief:
		h.Code, h.Spans, h.Failed = model.ThrottleKept, 0, 0
		return
	default:
		s.Result.Undone = h.Throttle
		s.Result.Undone.Code = model.ThrottleUndone
		h.Again = s.Clock + min(retryAfter<<min(h.Failed, 4), maxRetryAfter)
		h.Failed++
	}
	h.Throttle, h.Spans = h.Was, 0 // as before the trial
}

// set throttles a pod to so many thousandths of its use before the first throttle.
func (h *Throttled) set(times int64) {
	h.Times, h.Spans = times, 0
	h.Milli = max(h.Used*times/1000, model.MinBatchPart)
}

// finish ends the trial of a pod, if it is on trial.
func (s *State) finish(h *Throttled) {
	if h.Code == model.ThrottleTried {
		s.Ended, h.Code = s.Clock, model.ThrottleKept
	}
}

// try throttles the suspect on trial, and reports whether it did.
func (s *State) try(slope float64) bool {
	f := &s.Result.Finding
	throttled := 0
	for i := range s.Throttled {
		h := &s.Throttled[i]
		if h.Code == model.ThrottleTried || h.UID == f.Suspect && s.Clock < h.Again {
			return false
		}
		if h.Times < unthrottled && h.UID != f.Suspect {
			throttled++
		}
	}
	spent := s.Trials[0] != 0 && s.Clock-s.Trials[0] < time.Hour
	if spent || s.Ended != 0 && s.Clock-s.Ended < trialInterval || throttled >= maxThrottled {
		return false
	}
	i, known := model.IndexByUID(s.Throttled, f.Suspect, func(h *Throttled) string { return h.UID })
	h := Throttled{Throttle: model.Throttle{UID: f.Suspect, Times: unthrottled}}
	if known {
		h = s.Throttled[i]
	}
	if h.Times >= unthrottled {
		h.Used = f.Used
	}
	times := h.Times * halved / 1000
	expect := min(int64(slope*float64(f.Used-h.Used*times/1000)), f.Explain)
	if times < deepestThrottle || expect < minPromise {
		return false
	}
	h.Was, h.Before, h.Blind = h.Throttle, f.Wait, 0
	h.Victim, h.Expect, h.Relief, h.Code = f.Victim, expect, 0, model.ThrottleTried
	h.set(times)
	h.Tried, h.Patience = s.Clock, min(max(2*h.Patience, minPatience), maxPatience)
	copy(s.Trials[:], s.Trials[1:])
	s.Trials[trialsPerHour-1] = s.Clock
	if known {
		s.Throttled[i] = h
	} else {
		s.Throttled = slices.Insert(s.Throttled, i, h)
	}
	return true
}
