// Package shuffle decides when a server of a remote shuffle service that is to go is ended, such as one of Uniffle or
// Celeborn.
//
// No data moves when such a server drains. It waits for all applications with data on it, and one that runs for days
// holds it for days. So each drain has a time, and a decision after it. If jobs keep copies of their data on other
// servers, the server is ended, and the copies answer. Otherwise it goes on waiting, because its end would fail jobs.
package shuffle

import "time"

// drainRetry is the time after which a drain is requested again if the service does not report it.
const drainRetry = time.Minute

// Settings apply to all servers of one cluster of the service.
type Settings struct {
	Drain time.Duration // that a drain may take before copies may answer
	// Spare is the number of servers that every job can lose at the same time: 0 if any job keeps no copies. Copies are
	// configured in each job, so an administrator must set this. For Uniffle, see [Spare]. It is 1 for Celeborn with
	// spark.celeborn.client.push.replicate.enabled.
	Spare int
}

// Spare returns how many servers a job of Uniffle can miss, by its settings spark.rss.data.replica, .write and .read.
// It is 0 if a read may meet only servers that a write left out, or if the job could not write any more.
func Spare(copies, write, read int) int {
	if write < 1 || read < 1 || write+read <= copies {
		return 0
	}
	return max(0, copies-max(write, read))
}

// State is what the service says about a server.
type State string

// The states. They are those of internal/drain, and Unknown if nothing is known.
const (
	Unknown  State = ""
	Absent   State = "Absent"   // the service does not list it, and it may have data
	Active   State = "Active"   // it gets new shuffles
	Draining State = "Draining" // it gets none, and has data
	Drained  State = "Drained"  // it has no data, or has ended without any
	Lost     State = "Lost"     // it ended with data that somebody waits for
)

// Input is what was observed.
type Input struct {
	Now      time.Time
	Settings Settings
	Servers  []Server // all of the cluster, the most dispensable first
}

// Server is a shuffle server.
type Server struct {
	Name   string
	State  State
	Leaves bool      // it is to go
	Since  time.Time // when it was first asked to drain for that; zero: it was not
	Asked  time.Time // when it was last asked
	End    time.Time // it ends then in any case, for example with its node; zero: it does not
	// LostData means that it ended with data, or one of this name did. It holds until the applications of that time have
	// ended, also if the service does not list the server any more, or lists another one of this name.
	LostData bool
}

// Next returns the next step of each server, in their order.
func Next(in *Input) []Step {
	steps, missing := make([]Step, len(in.Servers)), 0
	for i := range in.Servers {
		steps[i] = in.step(&in.Servers[i])
		if in.Servers[i].misses() {
			missing++
		}
	}
	for i := range in.Servers {
		s, step, others := &in.Servers[i], &steps[i], missing
		own := s.ends() && !s.LostData // it counts as missing for its own end only
		if own {
			others--
		}
		switch {
		case step.Verb != Wait || step.Why != HasData || in.Now.Sub(s.Since) < in.Settings.Drain:
		case in.Settings.Spare <= 0:
			step.Why = NoReplicas
		case others >= in.Settings.Spare:
			step.Why = ReplicasMissing
		default:
			step.Verb, step.Why = End, ReplicasAnswer
			if !own {
				missing++
			}
		}
	}
	return steps
}

// misses reports whether the copies on a server cannot be relied on. A server that does not answer, or that the service
// does not list, may have ended.
func (s *Server) misses() bool {
	return s.LostData || s.State == Lost || s.State == Unknown || s.State == Absent || s.ends()
}

// ends reports whether a server with data ends at a fixed time.
func (s *Server) ends() bool { return s.Leaves && !s.End.IsZero() && s.State != Drained }

// step decides about a server without regard to copies.
func (in *Input) step(s *Server) Step {
	step := Step{Server: s.Name, Verb: Wait}
	switch {
	case s.State == Lost:
		step.Why = ServerLost
		if s.Leaves {
			step.Verb = End // so that it is not started again
		}
	case !s.Leaves && s.State != Unknown && s.State != Absent:
		step.Why = UpToDate
	case !s.Leaves:
		step.Why = ServerUnreachable
	case s.State == Drained:
		step.Verb, step.Why = End, Empty
	case !s.End.IsZero() && !in.Now.Before(s.End):
		step.Verb, step.Why = End, DeadlineExceeded
	case s.Since.IsZero(), s.State == Active && in.Now.Sub(s.Asked) >= drainRetry:
		step.Verb, step.Why = Drain, ToLeave
	case s.State == Unknown, s.State == Absent:
		step.Why = ServerUnreachable
	default:
		step.Why = HasData
	}
	return step
}
