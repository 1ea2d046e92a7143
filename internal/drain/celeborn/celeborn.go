// Package celeborn drains workers of Apache Celeborn, by the web services of their master and their own.
//
// The requests, answers and states are those of a live master and workers of 0.6.3. What was read in its sources only
// (tag v0.6.3) is said where it counts. Masters and workers before 0.6 do not have these paths.
package celeborn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// Drainer drains workers by their exit, which cannot be taken back.
//
// No data moves in a drain. A worker that is to exit waits until the shuffles that it has are dropped, which may be at
// the end of their applications, and then ends. It knows no deadline of ours: by itself it ends after
// celeborn.worker.decommission.forceExitTimeout (6 h by default). It tells its master only 10 s after it was told, and
// shuffles that begin meanwhile would come to it. So a Drainer excludes it at the master first (this order was not
// seen live), and takes that back when the master knows from the worker that it leaves, or has lost it: an exclusion
// would hold for a later worker on the same ports too. [Drainer.Excludes] says whether that is still to come.
//
// A Drainer keeps what it saw of workers that drain, because nobody says it once they have ended.
type Drainer struct {
	client *drain.Client
	master string
	notes  sync.Map // *note by the host of a worker
}

// New returns a Drainer for the cluster of a master, such as http://master:9098. With several masters, it is their
// leader, because the others refuse changes. A master wants auth if celeborn.master.http.auth.supportedSchemes is set
// there, and a worker if celeborn.worker.http.auth.supportedSchemes is (all of this read, not seen).
func New(master string, auth drain.Auth) (*Drainer, error) {
	client, err := drain.NewClient(auth, nil)
	if err != nil {
		return nil, err
	}
	return &Drainer{client: client, master: strings.TrimSuffix(master, "/") + "/api/v1/"}, nil
}

// Reversible drains workers by an event of the master that can be taken back. It implements [drain.Reverser].
//
// The worker gets no new shuffle from then on, takes part in the drain at its next heartbeat (30 s by default), and is
// idle when its shuffles are dropped. Its process stays until somebody ends it: [Drainer.Drain] can follow, or its pod
// is deleted.
type Reversible struct{ *Drainer }

// NewReversible returns a Reversible, as [New] does a Drainer.
func NewReversible(master string, auth drain.Auth) (*Reversible, error) {
	d, err := New(master, auth)
	return &Reversible{d}, err
}

// The states of workers, as they call them. InDecommissionThenIdle and Exit were read only.
const (
	normal     = "Normal"
	thenIdle   = "InDecommissionThenIdle"
	idle       = "Idle"
	inDrain    = "InDecommission"
	inGraceful = "InGraceFul"
	inExit     = "InExit"
	exit       = "Exit"
)

// note is what is kept of a worker. Its lock is held while the worker is asked.
type note struct {
	sync.Mutex
	kept
}

type kept struct {
	asked    bool         // to drain
	drained  bool         // at the last look
	state    string       // at the last look; "": there was none
	shuffles []string     // at the last look
	excluded *member      // it is excluded at the master, by this Drainer
	missed   time.Time    // since when it does not answer and the master does not know it; zero: it does
	end      drain.Status // how it ended; no state: it has not
}

// registerTimeout is for how long a worker that its master does not know may be about to register again. A master that
// is started again, without other masters, knows no worker for 17 s or more.
const registerTimeout = time.Minute

func (d *Drainer) note(w drain.Worker) *note {
	n, _ := d.notes.LoadOrStore(strings.ToLower(w.Host), &note{})
	return n.(*note)
}

// Drain implements [drain.Drainer]. The host of a worker is the one that the master lists, as HOST:RPCPORT where a host
// may have several workers, and its URL that of its own web server.
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	own, err := d.own(ctx, w)
	if err != nil {
		if drain.Silent(err) && (n.end.State != "" || n.drained) {
			return nil // it was asked before, and has ended
		}
		return err
	}
	m, excluded, err := d.member(ctx, w)
	if err != nil {
		return err
	}
	if !excluded {
		if err := d.exclude(ctx, m, true); err != nil {
			return err
		}
		n.excluded = m
	}
	if err := d.exit(ctx, w); err != nil {
		if !excluded {
			if back := d.exclude(ctx, m, false); back != nil {
				return errors.Join(err, back) // Status takes it back
			}
			n.excluded = nil
		}
		return err
	}
	n.kept = kept{
		asked: true, drained: own.empty(), state: own.State, shuffles: own.shuffles, excluded: n.excluded,
	}
	return nil
}

// Drain implements [drain.Drainer], as [Drainer.Drain] does. It never sends the event DECOMMISSION, which ends a worker
// after celeborn.worker.graceful.shutdown.timeout (600 s by default) with the shuffles that it still has.
func (r *Reversible) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	n := r.note(w)
	n.Lock()
	defer n.Unlock()
	m, _, err := r.member(ctx, w)
	if err != nil {
		return err
	}
	if err := r.send(ctx, m, "DECOMMISSIONTHENIDLE"); err != nil {
		return err
	}
	n.asked = true
	return nil
}

// Undrain implements [drain.Reverser]. The worker gets shuffles again when the master has heard from it twice, which
// takes up to a minute.
func (r *Reversible) Undrain(ctx context.Context, w drain.Worker) error {
	n := r.note(w)
	n.Lock()
	defer n.Unlock()
	own, err := r.own(ctx, w)
	if err != nil {
		return err
	}
	pending, err := r.pending(ctx, w)
	switch {
	case err != nil:
		return err
	case own.exits():
		return fmt.Errorf("worker %s of Celeborn exits (%s); that cannot be taken back", w.Host, own.State)
	case own.State == normal && pending == "": // an event would keep shuffles away until its next heartbeat
		return nil
	}
	m, _, err := r.member(ctx, w)
	if err != nil {
		return err
	}
	return r.send(ctx, m, "RECOMMISSION")
}

// Status implements [drain.Drainer]. A worker that is excluded at the master by others counts as active, because it
// serves what it has. Status also takes back what [Drainer.Drain] excluded, as soon as that is no longer needed.
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	own, err := d.own(ctx, w)
	switch {
	case drain.Silent(err):
		s, err := d.gone(ctx, w, n, err)
		if n.end.State != "" && n.excluded != nil {
			d.readmit(ctx, n, &s)
		}
		return s, err
	case err != nil:
		return drain.Status{}, err
	}
	pending, err := d.pending(ctx, w)
	if err != nil {
		return drain.Status{}, err
	}
	s := drain.Status{State: drain.Draining, Work: len(own.shuffles), Text: own.State}
	if pending != "" {
		s.Text += "; the event " + pending + " waits for its next heartbeat"
	}
	comes := pending == "RECOMMISSION"
	switch own.State {
	case normal:
		switch {
		case pending != "" && !comes:
		case own.Registered:
			s.State = drain.Active
		default:
			s.State, s.Text = drain.Absent, "it has not registered"
		}
	case thenIdle, idle, inDrain, inGraceful, inExit, exit:
		if own.empty() && !comes {
			s.State = drain.Drained
		}
	default:
		return drain.Status{}, fmt.Errorf("worker %s of Celeborn is in state %q, which is not known here", w.Host, own.State)
	}
	n.end, n.missed, n.state, n.shuffles = drain.Status{}, time.Time{}, own.State, own.shuffles
	n.drained = s.State == drain.Drained
	n.asked = n.drained || s.State == drain.Draining
	if n.excluded != nil && (own.Shut || own.State == normal) {
		d.readmit(ctx, n, &s)
	}
	return s, nil
}

// gone says where a worker is that does not answer.
func (d *Drainer) gone(ctx context.Context, w drain.Worker, n *note, silent error) (drain.Status, error) {
	all, err := d.members(ctx)
	if err != nil {
		return drain.Status{}, errors.Join(silent, err)
	}
	m, err := all.find(w)
	n.asked = n.asked || w.Asked
	known := m != nil || all.lost(w)
	if known {
		n.missed = time.Time{}
	} else if n.missed.IsZero() {
		n.missed = time.Now()
	}
	drained := drain.Status{State: drain.Drained, Text: "it has ended"}
	switch {
	case err != nil:
		return drain.Status{}, err
	case m != nil && (n.asked || m.State != normal): // the master misses it 2 minutes after its end
		if n.drained {
			return drained, nil
		}
		n.asked = true
		return drain.Status{State: drain.Draining, Work: drain.UnknownWork,
			Text: fmt.Sprintf("it does not answer; the master heard from it %d s ago", m.Silence)}, nil
	case m != nil:
		return drain.Status{}, silent
	case n.end.State != "":
		return n.end, nil
	case n.state == inGraceful: // it is to start again with what it has
		return drain.Status{State: drain.Absent, Work: len(n.shuffles), Text: "it left to start again"}, nil
	case !known && !n.asked: // it has not registered, or left long ago
		return drain.Status{State: drain.Absent, Work: drain.UnknownWork}, nil
	case !known && time.Since(n.missed) < registerTimeout:
		return drain.Status{State: drain.Draining, Work: drain.UnknownWork,
			Text: "it does not answer, and the master does not list it"}, nil
	case !n.asked:
		n.end = drain.Status{State: drain.Lost, Work: drain.UnknownWork, Text: "it ended, and had not been asked to"}
	default:
		left, err := d.registered(ctx, n.shuffles)
		switch {
		case err != nil:
			return drain.Status{}, err
		case left > 0:
			n.end = drain.Status{State: drain.Lost, Work: left, Text: "it ended before its shuffles were dropped"}
		case n.state == "":
			drained.Text += "; nobody saw what it had then"
			n.end = drained
		default:
			n.end = drained
		}
	}
	return n.end, nil
}

// Excludes reports whether a worker is still excluded at the master by [Drainer.Drain]. A worker without shuffles is
// drained before the master knows that it leaves. So after a drain, callers go on asking for the Status of a worker
// until it is excluded no longer.
func (d *Drainer) Excludes(w drain.Worker) bool {
	n := d.note(w)
	n.Lock()
	defer n.Unlock()
	return n.excluded != nil
}

// readmit takes an exclusion back, unless the master would give the worker shuffles then. If it cannot, s says why, and
// the next look does it again.
func (d *Drainer) readmit(ctx context.Context, n *note, s *drain.Status) {
	all, err := d.members(ctx)
	if err == nil {
		for _, m := range *all.Workers {
			if m.id == n.excluded.id && m.State == normal && n.state != normal {
				s.Text += "; excluded at the master, which does not know yet that it leaves"
				return
			}
		}
		err = d.exclude(ctx, n.excluded, false)
	}
	if err != nil {
		s.Text += "; still excluded at the master: " + err.Error()
		return
	}
	n.excluded = nil
}
