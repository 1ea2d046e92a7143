// Package trino drains workers of Trino.
//
// It was run against Trino 435. Later versions have further states, of their class NodeStateManager, which it knows.
package trino

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

const (
	// steady is for how long the list of the coordinator's workers counts. Each look is a query, and the coordinator
	// remembers a hundred of them by default (query.max-history), so looks must be rare.
	steady = time.Minute
	// eager is the same while a worker is missing from the list.
	eager = 3 * time.Second
	// askTimeout bounds the questions to one worker about its state. Many may be hung, and others have to be asked.
	askTimeout = time.Second
	// drainTimeout bounds the request to one worker to shut down, for the same reason.
	drainTimeout = 2 * time.Second
	// The bounds of one query's answer, of all pages: whoever names a coordinator must not use up the memory of the
	// manager, which is that of others too. A row is a worker.
	maxPages = 1000
	maxRows  = 10_000
	maxBytes = 4 << 20
	// maxInfo bounds the answer of a worker, in bytes. It has a few hundred.
	maxInfo = 64 << 10
)

// Drainer drains workers by their graceful shutdown, which cannot be taken back.
//
// A worker that shuts down waits for shutdown.grace-period, in which the coordinator must notice, and then for its
// tasks. It waits for one grace period more, and its process ends with code 0. It knows no deadline. If it has no task
// after the first grace period, Trino 435 does not look again, and a task that comes later ends with the worker.
type Drainer struct {
	client      *drain.Client // of the coordinator
	workers     *drain.Client
	coordinator string
	user        string

	mu     sync.Mutex
	nodes  map[string]bool // hosts of active workers, in lower case
	looked time.Time
}

// New returns a Drainer for the cluster of a coordinator, such as http://trino:8080. The user of auth may need rights:
// see [Drainer.Drain].
func New(coordinator string, auth drain.Auth) (*Drainer, error) {
	header := http.Header{}
	header.Set("X-Trino-User", auth.User)
	header.Set("X-Trino-Source", "waterline")
	client, err := drain.NewClient(auth, header)
	if err != nil {
		return nil, err
	}
	return &Drainer{
		client: client.Limited(maxBytes), workers: client.Limited(maxInfo),
		coordinator: strings.TrimSuffix(coordinator, "/"), user: auth.User,
	}, nil
}

// Drain implements [drain.Drainer]. The access control of the worker must let the user write system information, which
// Trino's default one does not.
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	err := d.workers.JSON(ctx, http.MethodPut, w.At("/v1/info/state"), "SHUTTING_DOWN", nil)
	switch {
	case err == nil:
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.nodes, strings.ToLower(w.Host)) // the list is from before
		return nil
	case drain.IsStatus(err, http.StatusForbidden):
		return fmt.Errorf("shutting down Trino worker %s: user %q may not. Let it write system information on the workers: "+
			"in etc/access-control.properties, access-control.name=file and a rules file with "+
			`{"system_information": [{"user": %q, "allow": ["read", "write"]}]}, or access-control.name=allow-all: %w`,
			w.Host, d.user, d.user, err)
	case drain.IsStatus(err, http.StatusUnauthorized):
		return fmt.Errorf("shutting down Trino worker %s: it does not accept the password or token of user %q: %w",
			w.Host, d.user, err)
	}
	return fmt.Errorf("shutting down Trino worker %s: %w", w.Host, err)
}

// Status implements [drain.Drainer]. What a worker still does, Trino says to the coordinator only. A worker that cannot
// be asked is active if the coordinator lists it so: it gets work, and the network or its access control is at fault.
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	state, silent := d.state(ctx, w)
	s := drain.Status{State: drain.Absent, Work: drain.UnknownWork, Text: state}
	switch {
	case ctx.Err() != nil && silent != nil:
		return drain.Status{}, silent // there is no time for the coordinator
	case state == "SHUTTING_DOWN", state == "DRAINING":
		s.State = drain.Draining
	case state == "DRAINED":
		s.State, s.Work = drain.Drained, 0
	case state == "ACTIVE", silent != nil:
		listed, err := d.listed(ctx, w.Host)
		switch {
		case err != nil:
			return drain.Status{}, errors.Join(silent, err)
		case listed && silent != nil:
			s.State, s.Text = drain.Active, "the coordinator lists it as active, but: "+silent.Error()
		case listed:
			s.State = drain.Active
		case silent != nil:
			return drain.Status{}, silent
		default:
			s.Text = "the coordinator does not list it as active"
		}
	}
	return s, nil
}

// state asks a worker for its state, in Trino's words, or for people if it starts.
func (d *Drainer) state(ctx context.Context, w drain.Worker) (state string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var info struct {
		Starting bool `json:"starting"`
	}
	if err := d.workers.JSON(ctx, http.MethodGet, w.At("/v1/info"), nil, &info); err != nil {
		return "", fmt.Errorf("asking Trino worker %s: %w", w.Host, err)
	}
	if info.Starting {
		return "it starts", nil
	}
	if err := d.workers.JSON(ctx, http.MethodGet, w.At("/v1/info/state"), nil, &state); err != nil {
		return "", fmt.Errorf("the state of Trino worker %s: %w", w.Host, err)
	}
	return state, nil
}

// listed reports whether the coordinator lists a host as an active worker.
func (d *Drainer) listed(ctx context.Context, host string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	host = strings.ToLower(host)
	age := time.Since(d.looked)
	if age < eager || age < steady && d.nodes[host] {
		return d.nodes[host], nil
	}
	addresses, err := d.query(ctx, "select http_uri from system.runtime.nodes where not coordinator and state = 'active'")
	if err != nil {
		return false, fmt.Errorf("%w: listing the workers of Trino coordinator %s as user %q: %w", drain.ErrCoordinator,
			d.coordinator, d.user, err)
	}
	nodes := map[string]bool{}
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil {
			nodes[strings.ToLower(u.Hostname())] = true
		}
	}
	d.nodes, d.looked = nodes, time.Now()
	return nodes[host], nil
}

// page is one answer to a query, by Trino's client protocol.
type page struct {
	Next  string `json:"nextUri"`
	Data  column `json:"data"`
	Error *struct {
		Name string `json:"errorName"`
	} `json:"error"`
}

// column has the values of the first column of a page's rows: maxRows+1 at most, however many there are.
type column []string

// UnmarshalJSON reads one row after another, because a row of nothing takes more memory than its bytes.
func (c *column) UnmarshalJSON(rows []byte) error {
	d := json.NewDecoder(bytes.NewReader(rows))
	_, err := d.Token() // the bracket
	for err == nil && d.More() && len(*c) <= maxRows {
		var row [1]string
		err = d.Decode(&row)
		*c = append(*c, row[0])
	}
	return err
}

// query runs a query at the coordinator, and returns the first column of its rows.
func (d *Drainer) query(ctx context.Context, sql string) (values []string, err error) {
	var p page
	size := 0
	answer, err := d.client.Send(ctx, http.MethodPost, d.coordinator+"/v1/statement", "text/plain", []byte(sql))
	for range maxPages {
		if err == nil {
			p, err = decode(answer)
		}
		if err != nil {
			return nil, err
		}
		if size += len(answer); size > maxBytes {
			return nil, fmt.Errorf("the answer of a query has more than %d bytes", maxBytes)
		}
		if values = append(values, p.Data...); len(values) > maxRows {
			return nil, fmt.Errorf("the answer of a query has more than %d rows", maxRows)
		}
		if p.Next == "" {
			return values, nil
		}
		// Only the path counts: the address may be one that means nothing here, and the password must not go elsewhere.
		u, bad := url.Parse(p.Next)
		if bad != nil {
			return nil, errors.New("the address of a query's next page cannot be read")
		}
		answer, err = d.client.Send(ctx, http.MethodGet, d.coordinator+u.RequestURI(), "", nil)
		if drain.IsStatus(err, http.StatusServiceUnavailable, http.StatusBadGateway) { // the protocol says: again
			select {
			case <-time.After(100 * time.Millisecond):
				answer, err = d.client.Send(ctx, http.MethodGet, d.coordinator+u.RequestURI(), "", nil)
			case <-ctx.Done():
			}
		}
	}
	return nil, fmt.Errorf("the answer of a query has more than %d pages", maxPages)
}

// errorName is the form of the names of Trino's errors, such as PERMISSION_DENIED.
var errorName = regexp.MustCompile(`^[A-Z][A-Z_]{1,63}$`)

// decode reads one page of a query's answer. The error of a query is an error.
func decode(answer []byte) (page, error) {
	var p page
	if json.Unmarshal(answer, &p) != nil {
		return p, errors.New("the answer of a query is not that of Trino")
	}
	if p.Error != nil { // its message may be another server's
		name := p.Error.Name
		if !errorName.MatchString(name) {
			name = "without a name of Trino's errors"
		}
		return p, fmt.Errorf("the query failed: %s; the coordinator's log has more", name)
	}
	return p, nil
}
