// Package celeborn drains workers of Apache Celeborn by their own web services.
//
// No worker of Celeborn is in a public registry of packages, so nothing here was run against one. The requests and
// answers are those of docs/decommissioning.md, openapi3/worker_rest_v1.yaml and the classes Worker and
// WorkerStatusManager in Celeborn's sources of August 2026 (commit 7b05008).
package celeborn

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// Drainer drains workers.
//
// A worker that is to decommission tells its master, so that it gets no new shuffle, waits until the data that it has
// has expired, and ends. It begins 10 s after it was told. It knows no deadline of ours: by itself it ends after
// celeborn.worker.decommission.forceExitTimeout (6 h by default). Its drain cannot be taken back.
type Drainer struct{ client *drain.Client }

// New returns a Drainer. Workers want auth if celeborn.worker.http.auth.supportedSchemes is set there.
func New(auth drain.Auth) (*Drainer, error) {
	client, err := drain.NewClient(auth, nil)
	if err != nil {
		return nil, err
	}
	return &Drainer{client}, nil
}

// Drain implements [drain.Drainer].
func (d *Drainer) Drain(ctx context.Context, w drain.Worker, _ time.Duration) error {
	var a struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
	}
	body := map[string]string{"type": "DECOMMISSION"}
	if err := d.client.JSON(ctx, http.MethodPost, at(w, "workers/exit"), body, &a); err != nil {
		return fmt.Errorf("decommission of Celeborn worker %s: %w", w.Host, err)
	}
	if !a.Success {
		return fmt.Errorf("decommission of Celeborn worker %s: it refuses: %s", w.Host, a.Message)
	}
	return nil
}

// Status implements [drain.Drainer].
func (d *Drainer) Status(ctx context.Context, w drain.Worker) (drain.Status, error) {
	var info struct {
		State      string `json:"workerState"`
		Registered bool   `json:"isRegistered"`
	}
	if err := d.client.JSON(ctx, http.MethodGet, at(w, "workers"), nil, &info); err != nil {
		return drain.Status{}, fmt.Errorf("the state of Celeborn worker %s: %w", w.Host, err)
	}
	var shuffles struct {
		IDs []string `json:"shuffleIds"`
	}
	if err := d.client.JSON(ctx, http.MethodGet, at(w, "shuffles"), nil, &shuffles); err != nil {
		return drain.Status{}, fmt.Errorf("the shuffles of Celeborn worker %s: %w", w.Host, err)
	}
	s := drain.Status{State: drain.Absent, Work: len(shuffles.IDs), Text: info.State}
	switch state := strings.ToUpper(info.State); {
	case state == "NORMAL" && info.Registered:
		s.State = drain.Active
	case state == "EXIT", state == "IDLE":
		s.State = drain.Drained
	case strings.HasPrefix(state, "IN"): // InDecommission, InDecommissionThenIdle, InGraceFul, InExit
		s.State = drain.Draining
	}
	return s, nil
}

func at(w drain.Worker, path string) string {
	return strings.TrimSuffix(w.URL, "/") + "/api/v1/" + path
}
