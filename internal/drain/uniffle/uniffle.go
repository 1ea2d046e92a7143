// Package uniffle drains shuffle servers of Apache Uniffle, by the web services of their coordinator and their metrics.
//
// The requests, answers and states are those of live coordinators and servers of 0.9.2. What was read in its sources
// only (tag v0.9.2-rc2) is said where it counts.
package uniffle

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// Drainer drains shuffle servers. It implements [drain.Reverser].
//
// No data moves in a drain. A decommissioned server gets no new shuffle from the next heartbeat on (10 s by default),
// waits until every application that has data on it has ended, and then ends. It knows no deadline. It looks each
// rss.server.decommission.check.interval (60 s by default), the first time at once: an idle server ends immediately,
// and cannot be had back then.
//
// A Drainer keeps what it saw of servers that drain, because nobody says it once they have ended: the coordinator lists
// a drained server and a killed one alike.
type Drainer struct {
	client *drain.Client
	base   string
	notes  sync.Map // *note by the id of a server
}

// New returns a Drainer for the cluster of a coordinator, such as http://coordinator:19998. The coordinator wants
// auth's password if rss.rest.authorization.credentials is set there; its address must begin with https then.
func New(coordinator string, auth drain.Auth) (*Drainer, error) {
	client, err := drain.NewClient(auth, nil)
	if err != nil {
		return nil, err
	}
	return &Drainer{client: client, base: strings.TrimSuffix(coordinator, "/") + "/api/"}, nil
}

// The states of shuffle servers that drain, as the coordinator calls them. The others are ACTIVE, and EXCLUDED,
// UNHEALTHY and UNKNOWN, which get no new work, but keep what they have.
const (
	decommissioning = "DECOMMISSIONING"
	decommissioned  = "DECOMMISSIONED"
)

// note is what is kept of a server. Its lock is held while the server is asked.
type note struct {
	sync.Mutex
	kept
}

type kept struct {
	asked   bool         // to drain
	drained bool         // at the last look
	heard   int64        // the coordinator's last heartbeat of it when it was asked: its list knows nothing newer
	work    int          // applications at the last look
	ran     []app        // applications of the cluster then
	missed  time.Time    // since when it does not answer and the coordinator does not know it; zero: it does
	end     drain.Status // how it ended; no state: it has not
}

// registerTimeout is for how long a server that its coordinator does not know may be about to register again. A
// coordinator that is started again knows no server, until its next heartbeat.
const registerTimeout = time.Minute

func (d *Drainer) note(w drain.Worker) *note {
	n, _ := d.notes.LoadOrStore(w.Host, &note{kept: kept{work: drain.UnknownWork}})
	return n.(*note)
}

// Drain implements [drain.Drainer]. The host of a worker is its id: IP-PORT, such as 10.0.0.1-19999. Its URL is that of
// its own web server, which has its metrics; without one, its work is not known.
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	load, silent := d.load(ctx, w)
	before, err := d.server(ctx, w)
	if err != nil {
		return err
	}
	if err := d.post(ctx, w, "decommission"); err != nil {
		if (n.asked || w.Asked) && drain.Silent(silent) {
			return nil // it was asked before, and has ended
		}
		return err
	}
	n.asked = true
	if silent == nil {
		d.remember(ctx, n, load)
	}
	// A heartbeat may have come in between.
	if after, err := d.server(ctx, w); err == nil && after != nil {
		before = after
	}
	if before != nil {
		n.heard = before.Heard
	}
	return nil
}

// Undrain implements [drain.Reverser].
func (d *Drainer) Undrain(ctx context.Context, w drain.Worker) error {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	if err := d.post(ctx, w, "cancelDecommission"); err != nil {
		return err
	}
	n.kept = kept{work: drain.UnknownWork}
	return nil
}

// Status implements [drain.Drainer]. A server that is excluded or unhealthy counts as active, because it serves what it
// has. One that does not answer is what the coordinator says.
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	server, err := d.server(ctx, w)
	if err != nil {
		n.missed = time.Time{} // the coordinator may start again, and would know no application at first either
		return drain.Status{}, err
	}
	n.asked = n.asked || w.Asked || server != nil && server.leaves()
	load, silent := d.load(ctx, w)
	if silent == nil {
		d.remember(ctx, n, load)
	}
	switch {
	case server != nil:
		n.end, n.missed = drain.Status{}, time.Time{}
		return n.listed(server, load, silent), nil
	case silent == nil:
		return n.unlisted(load.apps, ""), nil
	case n.end.State != "":
		return n.end, nil
	case w.URL != "" && !drain.Silent(silent): // it answers, whatever it says
		return n.unlisted(drain.UnknownWork, silent.Error()), nil
	}
	return d.ended(ctx, w, n)
}

// unlisted says where a server is that the coordinator does not list, although it may well work: one of the two has
// just started.
func (n *note) unlisted(work int, text string) drain.Status {
	s := drain.Status{State: drain.Absent, Work: work, Text: "the coordinator does not list it"}
	if n.asked {
		s.State = drain.Draining
	}
	if text != "" {
		s.Text += "; " + text
	}
	return s
}

// remember keeps the applications of a server that was asked to drain.
func (d *Drainer) remember(ctx context.Context, n *note, l load) {
	if !n.asked {
		return
	}
	if n.work, n.ran = l.apps, nil; !l.empty() {
		n.work = max(1, l.apps)
		n.ran, _ = d.apps(ctx) // without it, only the end of all applications proves that those of the server have ended
	}
}

// listed says where a server is that the coordinator has.
func (n *note) listed(server *server, l load, silent error) drain.Status {
	s := drain.Status{State: drain.Active, Work: drain.UnknownWork, Text: server.State}
	if silent == nil {
		s.Work = l.apps
	} else {
		s.Text += "; " + silent.Error()
	}
	switch {
	case server.State == decommissioned, server.State == decommissioning && silent == nil && l.empty(),
		server.State == decommissioning && silent != nil && n.drained: // nothing can come any more
		n.drained, n.work, s.State, s.Work = true, 0, drain.Drained, 0
	case server.State == decommissioning:
		n.drained, s.State = false, drain.Draining
	case n.asked && n.heard != 0 && n.heard == server.Heard:
		s.State = drain.Draining // the list is older than the drain
	default:
		n.kept = kept{work: drain.UnknownWork}
	}
	return s
}

// ended says how a server ended that neither answers nor is among those that the coordinator has.
func (d *Drainer) ended(ctx context.Context, w drain.Worker, n *note) (drain.Status, error) {
	var all []server
	if err := d.get(ctx, "server/nodes?status=LOST", &all); err != nil {
		return drain.Status{}, err
	}
	i := slices.IndexFunc(all, func(s server) bool { return s.ID == w.Host })
	if i < 0 && n.missed.IsZero() {
		n.missed = time.Now()
	}
	switch {
	case i < 0 && (!n.asked || w.URL == "" || time.Since(n.missed) < registerTimeout):
		return n.unlisted(drain.UnknownWork, "it does not answer"), nil
	case !n.asked:
		n.end = drain.Status{State: drain.Lost, Work: drain.UnknownWork, Text: "it ended, and had not been asked to"}
		return n.end, nil
	case n.work > 0:
		now, err := d.apps(ctx)
		if err != nil {
			return drain.Status{}, err
		}
		var died int64 // a minute ago or more: each application that the coordinator lists was heard since
		if i >= 0 {
			died = all[i].Heard
		}
		if outlived(n.work, n.ran, now, died) {
			n.end = drain.Status{State: drain.Lost, Work: n.work, Text: "it ended before its applications"}
			return n.end, nil
		}
	}
	n.end = drain.Status{State: drain.Drained, Text: "it has ended"}
	if n.work == drain.UnknownWork {
		n.end.Text = "it has ended; nobody saw what it had then"
	}
	return n.end, nil
}

// heartbeatGap is between one interval of heartbeats and two, in the coordinator's milliseconds. A server ends within
// one interval after its last heartbeat, and an application that runs has sent one within the last interval. A server
// counts as lost after three. So what is that far from a server's last heartbeat ran after it. The interval of both is
// 10 s unless rss.server.heartbeat.interval or the client's rss.heartbeat.interval is set.
const heartbeatGap = 15_000

// outlived reports whether one of the applications with data on a server ran longer than the server did, or may have.
// had is their number at the last look, ran are the applications of the whole cluster then. Nobody says which of them
// had data on the server, but if fewer have ended since than had data on it, one of those runs. The coordinator lists
// an application for a minute after its end, and the number is up to half a minute old, so ran has each one that counts
// in had. If it has fewer, nobody saw them all, and any application may be one that had data on the server.
func outlived(had int, ran, now []app, died int64) bool {
	runs := 0
	for _, a := range now {
		known := slices.ContainsFunc(ran, func(r app) bool { return r.ID == a.ID })
		if a.Heard > died+heartbeatGap && (known || len(ran) < had) {
			runs++
		}
	}
	return runs > max(0, len(ran)-had)
}

// server is a server in the coordinator's list. Times are Unix milliseconds of the coordinator.
type server struct {
	ID    string `json:"id"`
	State string `json:"status"`
	Heard int64  `json:"timestamp"`
}

// leaves reports whether anyone asked a server to drain.
func (s *server) leaves() bool { return s.State == decommissioning || s.State == decommissioned }

// server returns a server as the coordinator lists it; nil: it does not.
func (d *Drainer) server(ctx context.Context, w drain.Worker) (*server, error) {
	var s server
	err := d.get(ctx, "server/nodes/"+url.PathEscape(w.Host), &s)
	var refused *refusal
	switch {
	case errors.As(err, &refused) && strings.Contains(refused.text, "not found"):
		return nil, nil
	case err == nil && s.State == "":
		err = fmt.Errorf("%w: shuffle server %s has no state; is this its coordinator?", drain.ErrCoordinator, w.Host)
	}
	return &s, err
}

// app is an application, with the time of its last heartbeat.
type app struct {
	ID    string `json:"appId"`
	Heard int64  `json:"updateTime"`
}

func (d *Drainer) apps(ctx context.Context) (all []app, err error) {
	return all, d.get(ctx, "app/appInfos", &all)
}
