package guard

import (
	"context"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
)

// goneFor is how long a container is remembered that is not listed any more, while processes cannot be looked at.
const goneFor = time.Minute

// silentAfter is the age of the NodeManager's last list after which only processes show which containers exist.
const silentAfter = 10 * time.Second

// shownDiagnostics is how much of the diagnostics of a container is recorded.
const shownDiagnostics = 200

// leaversPerMinute bounds the records of containers that got no signal of the guard.
const leaversPerMinute = 30

// listing is what the NodeManager says of its containers.
type listing struct {
	at    time.Time // when the last list was asked for
	known map[string]*listed
}

// listed is a container that the NodeManager lists, or listed while it had processes.
type listed struct {
	shed.Container
	user    string
	started time.Time // of its first process; kept when it has none any more
	claims  bool      // it is a master by its environment
	gone    time.Time // since when the NodeManager does not list it any more; zero: it does
	exit    int       // of one that has ended; 0 until then
	told    bool      // its end is recorded
}

// answer is the result of asking the NodeManager.
type answer struct {
	asked      time.Time
	containers []yarn.Container
	err        error
}

// ask asks the NodeManager for its containers.
func (g *Guard) ask(ctx context.Context) answer {
	asked := time.Now()
	containers, err := g.nm.Containers(ctx, g.o.NodeManager)
	return answer{asked, containers, err}
}

// take records an answer.
func (g *Guard) take(ctx context.Context, a answer) {
	g.logOnce(ctx, "asking the NodeManager", a.err)
	if a.err != nil {
		return
	}
	for _, c := range g.listing.take(a) {
		g.recordLeaver(ctx, c)
	}
}

// recordLeaver records the end of a container that somebody else ended.
func (g *Guard) recordLeaver(ctx context.Context, c *yarn.Container) {
	now := time.Now()
	if g.leavers.since.IsZero() || now.Sub(g.leavers.since) >= time.Minute {
		g.leavers.since, g.leavers.count = now, 0
	}
	if len(g.hits[c.ID]) > 0 || g.listing.known[c.ID].told || g.leavers.count >= leaversPerMinute {
		return
	}
	g.leavers.count++
	r := guardlog.Record{
		At: now, Container: c.ID, User: c.User, Master: master(c.ID), Left: true, Exit: c.ExitCode,
		Why: guardlog.Plain(c.Diagnostics, shownDiagnostics),
	}
	if g.last.Closely { // the worker had to shrink, or memory was scarce
		allowed := g.allowance.last
		r.Allowed = &allowed
	}
	g.write(ctx, r)
}

// take records a list. It returns the containers that have ended since the previous list, except those that ended by
// themselves or at the request of their application.
func (l *listing) take(a answer) (left []*yarn.Container) {
	l.at = a.asked
	seen := map[string]bool{}
	for i := range a.containers {
		c := &a.containers[i]
		if !guardlog.IsContainer(c.ID) {
			continue
		}
		seen[c.ID] = true
		known := l.known[c.ID]
		if known == nil {
			known = &listed{}
			l.known[c.ID] = known
		}
		opportunistic := c.ExecutionType == yarn.Opportunistic
		ended := c.Ended()
		known.user, known.gone = c.User, time.Time{}
		if ended && known.Known && !known.Ended {
			if known.exit = c.ExitCode; !c.Wanted() {
				left = append(left, c)
			}
		}
		known.Container = shed.Container{
			ID: c.ID, Known: true, Master: master(c.ID), Opportunistic: opportunistic,
			MemoryMiB: c.Size.MemoryMiB, VCores: c.Size.VCores, Ended: ended,
			// An opportunistic container waits in the NodeManager's queue until there is room.
			Holds: !ended && (!opportunistic || c.State != "SCHEDULED"),
		}
	}
	for id, known := range l.known {
		if seen[id] {
			continue
		}
		if known.Ended, known.Holds = true, false; known.gone.IsZero() {
			known.gone = a.asked
		}
	}
	return left
}
