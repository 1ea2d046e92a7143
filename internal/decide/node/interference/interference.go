// Package interference finds out which neighbour an online pod waits for, and says which batch pod is kept to less because of that.
//
// A neighbour is named by how its use and the victim's waiting go together over minutes, which proves nothing. So a batch pod that
// is named is throttled on trial, one on a node at a time: only if the victim then waits less does it stay so.
package interference

import (
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// told is for how long whoever was named is not named to people anew.
const told = 10 * time.Minute

// State is what is remembered from one second to the next. What is exported outlives the agent. What was measured does not:
// there is a gap in it then, and it is gathered anew.
type State struct {
	Held    []Held                // batch pods that are throttled
	Records []Record              // of pods that were throttled
	Trials  [hourly]time.Duration // when the last ones began, on the clock of [model.Load]; 0: never
	Ended   time.Duration         // when the last one ended
	Clock   time.Duration         // of the second before

	tracks  []track // of the pods of the second before, in their order
	open    int64   // number of the span that is open
	slot    int     // where what is found of it is put down
	length  int     // spans in a row that were watched, samples at most
	suspect string  // who was found in the span before; "": nobody
	seen    int     // times in a row
	in      Input
	blame   model.Interference
}

// Decide takes in one second, to be called once in each, and says who is to blame and who is kept to what. It changes the state
// in place; what it returns is valid until it is called again.
//
// It looks once in five seconds, when a span is complete, and otherwise says what it said before.
func Decide(in *Input, s *State) *model.Interference {
	if in.Clock < s.Clock {
		*s = State{in: s.in} // of another boot
	}
	s.Clock = in.Clock
	s.blame.Undone = model.Throttle{}
	s.follow(in.Pods)
	complete := s.turn()
	for i := range in.Pods {
		p, t := &in.Pods[i], &s.tracks[i]
		t.used.take(in.Clock, p.UsedAt, p.Used/grain)
		t.wait.take(in.Clock, p.WaitAt, p.Wait)
	}
	if complete {
		s.blame.Finding = s.confirm(s.find(in.Pods))
		s.tell()
		s.act(in)
	}
	return &s.blame
}

// tell keeps who was named with the numbers of then, because people are told once, and not of each number anew.
func (s *State) tell() {
	b, f := &s.blame, &s.blame.Finding
	since := s.Clock - b.NamedAt
	if since >= told {
		b.Named = model.Finding{}
	}
	if f.Suspect == "" || b.Named.Victim == f.Victim && b.Named.Suspect == f.Suspect || b.Named.Suspect != "" && since < pause {
		return
	}
	b.Named, b.NamedAt = *f, s.Clock
}

// confirm names only who is found twice in a row.
func (s *State) confirm(f model.Finding) model.Finding {
	switch {
	case f.Suspect == "":
		s.suspect, s.seen = "", 0
	case f.Suspect == s.suspect:
		s.seen++
	default:
		s.suspect, s.seen = f.Suspect, 1
	}
	if f.Suspect != "" && s.seen < confirmed {
		f.Suspect, f.Code = "", model.SuspectUnknown
	}
	return f
}
