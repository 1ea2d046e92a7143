package celeborn

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/internal/drain"
)

// id names a worker in requests to the master.
type id struct {
	Host      string `json:"host"`
	RPC       int    `json:"rpcPort"`
	Push      int    `json:"pushPort"`
	Fetch     int    `json:"fetchPort"`
	Replicate int    `json:"replicatePort"`
}

// is reports whether a worker is meant.
func (i id) is(w drain.Worker) bool {
	return strings.EqualFold(w.Host, i.Host) || strings.EqualFold(w.Host, net.JoinHostPort(i.Host, strconv.Itoa(i.RPC)))
}

// member is a worker in the master's list.
type member struct {
	id
	State   string `json:"workerState"` // as of its last heartbeat
	Silence int64  `json:"heartbeatElapsedSeconds"`
}

// members is the master's list. decommissioningWorkers is left out, because it still names workers that serve again.
type members struct {
	Workers *[]member `json:"workers"`
	Lost    []struct {
		Worker member `json:"worker"`
	} `json:"lostWorkers"`
	Excluded []member `json:"manualExcludedWorkers"`
}

// find returns a worker that the master has; nil: it has none of that name.
func (l *members) find(w drain.Worker) (*member, error) {
	var found *member
	for i, m := range *l.Workers {
		switch {
		case !m.is(w):
		case found != nil:
			return nil, fmt.Errorf("the master of Celeborn has several workers at %s; write HOST:RPCPORT", w.Host)
		default:
			found = &(*l.Workers)[i]
		}
	}
	return found, nil
}

// lost reports whether the master has lost a worker of that name.
func (l *members) lost(w drain.Worker) bool {
	for _, m := range l.Lost {
		if m.Worker.is(w) {
			return true
		}
	}
	return false
}

// members asks the master for its workers.
func (d *Drainer) members(ctx context.Context) (*members, error) {
	var all members
	if err := d.ask(ctx, "workers", &all); err != nil {
		return nil, err
	}
	if all.Workers == nil {
		return nil, fmt.Errorf("%w: its list of workers has none; is this a master of Celeborn?", drain.ErrCoordinator)
	}
	return &all, nil
}

// member returns a worker as the master lists it, and whether it is excluded there.
func (d *Drainer) member(ctx context.Context, w drain.Worker) (m *member, excluded bool, err error) {
	all, err := d.members(ctx)
	if err != nil {
		return nil, false, err
	}
	switch m, err = all.find(w); {
	case err != nil:
		return nil, false, err
	case m == nil:
		return nil, false, fmt.Errorf("the master of Celeborn does not list worker %s", w.Host)
	}
	return m, slices.ContainsFunc(all.Excluded, func(e member) bool { return e.id == m.id }), nil
}

// pending returns the type of the event that waits for a worker's next heartbeat; "": there is none.
func (d *Drainer) pending(ctx context.Context, w drain.Worker) (string, error) {
	var all struct {
		Events *[]struct {
			Worker id `json:"worker"`
			Event  struct {
				Type string `json:"eventType"`
			} `json:"event"`
		} `json:"workerEvents"`
	}
	if err := d.ask(ctx, "workers/events", &all); err != nil {
		return "", err
	}
	if all.Events == nil {
		return "", fmt.Errorf("%w: it has no list of events; is this a master of Celeborn?", drain.ErrCoordinator)
	}
	for _, e := range *all.Events {
		if e.Worker.is(w) {
			return strings.ToUpper(e.Event.Type), nil
		}
	}
	return "", nil
}

// registered returns how many of these shuffles the master still has (its path was read, not seen).
func (d *Drainer) registered(ctx context.Context, shuffles []string) (left int, err error) {
	if len(shuffles) == 0 {
		return 0, nil
	}
	var all shuffleIDs
	if err := d.ask(ctx, "shuffles", &all); err != nil {
		return 0, err
	}
	if all.IDs == nil {
		return 0, fmt.Errorf("%w: it has no list of shuffles; is this a master of Celeborn?", drain.ErrCoordinator)
	}
	for _, s := range shuffles {
		if slices.Contains(*all.IDs, s) {
			left++
		}
	}
	return left, nil
}

func (d *Drainer) ask(ctx context.Context, path string, into any) error {
	if err := d.client.JSON(ctx, http.MethodGet, d.master+path, nil, into); err != nil {
		return fmt.Errorf("%w: the master of Celeborn: %w", drain.ErrCoordinator, err)
	}
	return nil
}

// exclude keeps new shuffles away from a worker, or does so no longer. It works at once.
func (d *Drainer) exclude(ctx context.Context, m *member, out bool) error {
	body := map[string][]id{"add": {}, "remove": {m.id}}
	if out {
		body = map[string][]id{"add": {m.id}, "remove": {}}
	}
	return d.post(ctx, d.master+"workers/exclude", body, "the exclusion of Celeborn worker "+m.Host+" at its master")
}

// send gives the master an event for a worker. The master knows event types in upper case only.
func (d *Drainer) send(ctx context.Context, m *member, event string) error {
	body := map[string]any{"eventType": event, "workers": []id{m.id}}
	return d.post(ctx, d.master+"workers/events", body, event+" of Celeborn worker "+m.Host+" at its master")
}

// exit makes a worker decommission. Only this way it waits for its shuffles for as long as it should.
func (d *Drainer) exit(ctx context.Context, w drain.Worker) error {
	body := map[string]string{"type": "DECOMMISSION"}
	return d.post(ctx, w.At("/api/v1/workers/exit"), body, "the exit of Celeborn worker "+w.Host)
}

// post asks for a change. Its HTTP status says that the request was read, and not that it had success.
func (d *Drainer) post(ctx context.Context, url string, body any, what string) error {
	var a struct {
		Success bool   `json:"success"`
		Text    string `json:"message"`
	}
	if err := d.client.JSON(ctx, http.MethodPost, url, body, &a); err != nil {
		if drain.IsStatus(err, http.StatusBadRequest) && strings.HasPrefix(url, d.master) {
			what += " (of several masters, only the leader accepts it)"
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	if !a.Success {
		return fmt.Errorf("%s: refused: %s", what, drain.Excerpt(a.Text))
	}
	return nil
}

// own is what a worker says about itself.
type own struct {
	State      string `json:"workerState"`
	Registered bool   `json:"isRegistered"`
	Shut       bool   `json:"isShutdown"` // it refuses new shuffles
	shuffles   []string
}

// empty reports whether a worker has no shuffle and takes none. What it refuses was read before its list.
func (o *own) empty() bool { return o.Shut && len(o.shuffles) == 0 }

// exits reports whether a worker ends, whatever is asked of it.
func (o *own) exits() bool {
	return o.State == inDrain || o.State == inGraceful || o.State == inExit || o.State == exit
}

type shuffleIDs struct {
	IDs *[]string `json:"shuffleIds"`
}

// own asks a worker for its state, and then for its shuffles, which is what it waits for itself.
func (d *Drainer) own(ctx context.Context, w drain.Worker) (*own, error) {
	var o own
	if err := d.client.JSON(ctx, http.MethodGet, w.At("/api/v1/workers"), nil, &o); err != nil {
		return nil, fmt.Errorf("the state of Celeborn worker %s: %w", w.Host, err)
	}
	var all shuffleIDs
	if err := d.client.JSON(ctx, http.MethodGet, w.At("/api/v1/shuffles"), nil, &all); err != nil {
		return nil, fmt.Errorf("the shuffles of Celeborn worker %s: %w", w.Host, err)
	}
	if o.State == "" || all.IDs == nil {
		return nil, fmt.Errorf("worker %s of Celeborn says no state or no shuffles; is this its web server?", w.Host)
	}
	o.shuffles = *all.IDs
	return &o, nil
}
