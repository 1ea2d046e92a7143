// Package uniffle drains shuffle servers of Apache Uniffle by the web services of their coordinator.
//
// No server of Uniffle is in a public registry of packages, so nothing here was run against one. The requests and
// answers are those of docs/coordinator_guide.md and of coordinator/web/resource/ServerResource in Uniffle's sources of
// August 2026 (commit b1ac32f).
package uniffle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// Drainer drains shuffle servers. It implements [drain.Reverser].
//
// A decommissioned server waits until every application that has data on it has ended, and then stops. It knows no
// deadline. It looks each rss.server.decommission.check.interval (60 s by default).
type Drainer struct {
	client *drain.Client
	base   string
}

// New returns a Drainer for the cluster of a coordinator, such as http://coordinator:19998. The coordinator wants
// auth's password if rss.rest.authorization.credentials is set there; its address must begin with https then.
func New(coordinator string, auth drain.Auth) (*Drainer, error) {
	client, err := drain.NewClient(auth, nil)
	if err != nil {
		return nil, err
	}
	return &Drainer{client, strings.TrimSuffix(coordinator, "/") + "/api/server/"}, nil
}

// The states of shuffle servers, as the coordinator calls them. EXCLUDED, LOST, UNHEALTHY and UNKNOWN get no work.
const (
	active          = "ACTIVE"
	decommissioning = "DECOMMISSIONING"
	decommissioned  = "DECOMMISSIONED"
)

// answer is the envelope of all answers. Errors come with HTTP status 200.
type answer[T any] struct {
	Code    int    `json:"code"`
	Data    T      `json:"data"`
	Message string `json:"errMsg"`
}

// Drain implements [drain.Drainer]. The host of a worker is its id: IP-PORT, such as 10.0.0.1-19999.
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	return d.post(ctx, w, "decommission")
}

// Undrain implements [drain.Reverser].
func (d *Drainer) Undrain(ctx context.Context, w drain.Worker) error {
	return d.post(ctx, w, "cancelDecommission")
}

func (d *Drainer) post(ctx context.Context, w drain.Worker, verb string) error {
	var a answer[any]
	err := d.client.JSON(ctx, http.MethodPost, d.base+url.PathEscape(w.Host)+"/"+verb, nil, &a)
	if err == nil && a.Code != 0 {
		err = errors.New(a.Message)
	}
	if err != nil {
		return fmt.Errorf("%s of shuffle server %s: %w", verb, w.Host, err)
	}
	return nil
}

// Status implements [drain.Drainer].
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	var a answer[*struct {
		Status string `json:"status"`
	}]
	err := d.client.JSON(ctx, http.MethodGet, d.base+"nodes/"+url.PathEscape(w.Host), nil, &a)
	switch {
	case err != nil:
		return drain.Status{}, fmt.Errorf("the state of shuffle server %s: %w", w.Host, err)
	case a.Code != 0 && strings.Contains(a.Message, "not found"): // it stopped, or has not registered
		return drain.Status{State: drain.Absent, Work: drain.UnknownWork}, nil
	case a.Code != 0 || a.Data == nil:
		return drain.Status{}, fmt.Errorf("the state of shuffle server %s: the coordinator answers code %d: %s",
			w.Host, a.Code, a.Message)
	}
	s := drain.Status{State: drain.Absent, Work: drain.UnknownWork, Text: a.Data.Status}
	switch a.Data.Status {
	case active:
		s.State = drain.Active
	case decommissioning:
		s.State = drain.Draining
	case decommissioned:
		s.State, s.Work = drain.Drained, 0
	}
	return s, nil
}
