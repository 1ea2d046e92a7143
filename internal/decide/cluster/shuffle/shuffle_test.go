package shuffle

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/fixture"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the steps. Each server is
// one line, with what is true of it; times are seconds from now.
//
//	drain SECONDS spare SERVERS
//	NAME STATE [leaves] [since SECONDS] [asked SECONDS] [end SECONDS] [lostdata]
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		in := &Input{Now: start}
		do := func(command string) error { return in.command(strings.Fields(command)) }
		return golden.Blocks(t, content, do, func() string {
			var out strings.Builder
			for _, s := range Next(in) {
				fmt.Fprintf(&out, "%s %s, %s\n", s.Server, s.Verb, s.Why)
			}
			in = &Input{Now: start}
			return out.String()
		})
	}, "testdata/*.case")
}

var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func (in *Input) command(words []string) error {
	seconds := func(word string) time.Duration {
		n, _ := strconv.Atoi(word)
		return time.Duration(n) * time.Second
	}
	if words[0] == "drain" {
		in.Settings.Drain = seconds(words[1])
		_, err := fmt.Sscan(words[3], &in.Settings.Spare)
		return err
	}
	s := Server{Name: words[0], State: State(words[1])}
	if s.State == "Unknown" {
		s.State = Unknown
	}
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "leaves":
			s.Leaves = true
		case "lostdata":
			s.LostData = true
		case "since", "asked", "end":
			at := in.Now.Add(seconds(words[i+1]))
			*map[string]*time.Time{"since": &s.Since, "asked": &s.Asked, "end": &s.End}[words[i]] = at
			i++
		default:
			return fmt.Errorf("unknown word %q", words[i])
		}
	}
	if s.Asked.IsZero() {
		s.Asked = s.Since
	}
	in.Servers = append(in.Servers, s)
	return nil
}

// TestAny checks, for random clusters, that no server is ended in the hope of copies unless as few servers are missing
// as jobs can bear, that none is ended before its time, and that each one that may be ended is.
func TestAny(t *testing.T) {
	states := []State{Unknown, Absent, Active, Draining, Draining, Draining, Drained, Lost}
	for seed := range fixture.Times(uint64(2000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := &Input{Now: start, Settings: Settings{Drain: time.Hour, Spare: r.IntN(4)}}
		before := func() time.Time { return start.Add(-time.Duration(r.IntN(120)) * time.Minute) }
		for i := range r.IntN(7) {
			s := Server{Name: strconv.Itoa(i), State: states[r.IntN(len(states))]}
			s.Leaves, s.LostData = r.IntN(3) > 0, r.IntN(9) == 0
			if r.IntN(4) > 0 {
				s.Since, s.Asked = before(), before()
			}
			if r.IntN(6) == 0 {
				s.End = start.Add(time.Duration(r.IntN(20)-10) * time.Minute)
			}
			in.Servers = append(in.Servers, s)
		}
		missing, ended, waiting := 0, 0, 0
		for i, step := range Next(in) {
			s := in.Servers[i]
			ends := s.Leaves && !s.End.IsZero() && s.State != Drained
			gone := s.LostData || s.State == Lost || s.State == Unknown || s.State == Absent || ends
			if gone && (step.Why != ReplicasAnswer || s.LostData) {
				missing++
			}
			overdue := s.Leaves && !s.Since.IsZero() && !start.Before(s.Since.Add(in.Settings.Drain))
			switch {
			case step.Why == ReplicasAnswer && (!overdue || s.State == Unknown || s.State == Absent || step.Verb != End):
				t.Errorf("seed %d: %+v is ended: %+v", seed, s, step)
			case step.Why == ReplicasAnswer:
				ended++
			case step.Why == ReplicasMissing || step.Why == NoReplicas:
				waiting++
			case step.Verb == End && s.State != Drained && s.State != Lost && (s.End.IsZero() || s.End.After(start)):
				t.Errorf("seed %d: %+v is ended with its data: %+v", seed, s, step)
			case step.Verb == End && !s.Leaves:
				t.Errorf("seed %d: %+v is to stay, and is ended: %+v", seed, s, step)
			}
		}
		spare := in.Settings.Spare
		if ended > 0 && missing+ended > spare || waiting > 0 && missing+ended < spare {
			t.Errorf("seed %d: %d may be missing, %d are, %d are ended: %+v", seed, spare, missing, ended, in.Servers)
		}
	}
}

func TestSpare(t *testing.T) {
	for _, c := range []struct{ copies, write, read, want int }{
		{1, 1, 1, 0},
		{3, 2, 2, 1},
		{5, 3, 3, 2},
		{2, 2, 1, 0}, // reads can miss a server, writes cannot
		{3, 1, 1, 0}, // a read may meet only servers that a write left out
		{3, 2, 1, 0},
		{3, 4, 4, 0},
		{0, 0, 0, 0},
	} {
		if got := Spare(c.copies, c.write, c.read); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
