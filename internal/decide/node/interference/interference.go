// Package interference finds the pod whose CPU use makes an online pod wait for CPUs, and decides which batch pod is
// throttled for it. What an online pod lacks comes from the rule contention, with its baselines.
//
// A suspect is found by correlation: over minutes, its CPU use and the victim's waiting rise and fall together. That
// proves nothing. So a batch pod that is suspected is throttled on trial, one pod of a node at a time, and stays
// throttled only if the victim then waits less. See docs/design/interference.md.
package interference

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// repeatAfter is how long the same suspect is not reported again.
const repeatAfter = 10 * time.Minute

// State is what the rule remembers from one second to the next. Decide never changes a state that it was given.
type State struct {
	Clock   time.Duration      // of the last call, on the clock of [model.Load]
	Span    int64              // number of the open span; 0: none is open
	Length  int64              // complete spans up to now without a gap, at most samples
	Tracks  []Track            // pods of the last call, ordered by UID
	Rows    []Row              // samples of the same pods
	Suspect string             // UID of the suspect of the last span; "": none
	Streak  int                // spans in a row with that suspect
	Result  model.Interference // of the last call

	Throttled []Throttled                  // batch pods that are throttled or were, ordered by UID
	Trials    [trialsPerHour]time.Duration // when the last trials began; 0: never
	Ended     time.Duration                // when the last trial ended
}

// Kept returns the part of a state that outlives the agent. Samples do not: an agent that restarts has missed a span,
// and measures two minutes anew before it suspects any pod.
func (s *State) Kept() *State {
	if s == nil {
		return nil
	}
	return &State{Clock: s.Clock, Throttled: s.Throttled, Trials: s.Trials, Ended: s.Ended}
}

// Decide takes in the measurements of one second. It is to be called once a second, and returns what is known of
// interference and which pods are throttled. It searches when a span is complete, once in five seconds, and otherwise
// repeats the last result.
func Decide(in Input, before State) (model.Interference, State) {
	s := before
	if in.Clock < s.Clock {
		s = State{} // the machine booted: its clock started anew
	}
	s.Clock = in.Clock
	s.Result.Undone = model.Throttle{}
	s.follow(in.Pods)
	complete := s.turn()
	for i := range in.Pods {
		s.Tracks[i].measure(in.Clock, &in.Pods[i])
	}
	if complete {
		finding, slope := s.find(in.Pods)
		s.Result.Finding = s.confirm(finding)
		s.report()
		s.act(&in, slope)
	}
	return s.Result, s
}

// report keeps the finding that people are shown: with the numbers of the moment in which the suspect was found, until
// another suspect is found or ten minutes went by.
func (s *State) report() {
	r, f := &s.Result, &s.Result.Finding
	since := s.Clock - r.NamedAt
	if since >= repeatAfter {
		r.Named = model.Finding{}
	}
	same := r.Named.Victim == f.Victim && r.Named.Suspect == f.Suspect
	if f.Suspect == "" || same || r.Named.Suspect != "" && since < trialInterval {
		return
	}
	r.Named, r.NamedAt = *f, s.Clock
}

// confirm drops a suspect that was not found in two spans in a row.
func (s *State) confirm(f model.Finding) model.Finding {
	if f.Suspect != s.Suspect {
		s.Suspect, s.Streak = f.Suspect, 0
	}
	s.Streak++
	if f.Suspect != "" && s.Streak < confirmSpans {
		f.Suspect, f.Code = "", model.SuspectUnknown
	}
	return f
}
