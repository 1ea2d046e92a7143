package guard

import (
	"context"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
)

// asked is the result of asking the ResourceManager for a signal.
type asked struct {
	container string
	at        time.Time // of the signal
	err       error
}

// askRM asks the ResourceManager to have a container signalled, and reports whether it was asked. The answer comes
// later, because the guard must not wait for it at the hard mark. Only a container that the NodeManager lists is named:
// an id that is only in an environment may be that of a container on another node.
func (g *Guard) askRM(ctx context.Context, id string, signal shed.Signal, now time.Time) bool {
	command, known := map[shed.Signal]yarn.ContainerSignal{
		shed.Terminate: yarn.GracefulShutdown, shed.Kill: yarn.ForcefulShutdown,
	}[signal] // it has none that Spark takes for a decommission
	l := g.listing.known[id]
	if g.rm == nil || !known || l == nil || l.Ended {
		return false
	}
	go func() {
		within, cancel := context.WithTimeout(ctx, listWithin)
		defer cancel()
		a := asked{id, now, g.rm.SignalContainer(within, id, command)}
		select {
		case g.asked <- a:
		case <-ctx.Done():
		}
	}()
	return true
}

// heard records the answer of the ResourceManager. A signal that it refused counts as not tried.
func (g *Guard) heard(ctx context.Context, a asked) {
	g.logOnce(ctx, "signalling "+a.container, a.err)
	if a.err == nil {
		return
	}
	g.refused[a.container] = time.Now()
	g.hits[a.container] = slices.DeleteFunc(g.hits[a.container], func(h hit) bool { return h.remote && h.at.Equal(a.at) })
	if len(g.hits[a.container]) == 0 {
		delete(g.hits, a.container)
	}
	g.failed = append(g.failed, shed.Outcome{Container: a.container})
	g.write(ctx, guardlog.Record{
		At: time.Now(), Container: a.container, Asked: true, Error: a.err.Error(), Tried: g.tried(a.container),
	})
}
