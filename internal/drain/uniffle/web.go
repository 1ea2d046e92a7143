package uniffle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/waterline-io/waterline/internal/drain"
)

// refusal is an answer whose code says that it is no success. Its HTTP status is 200.
type refusal struct {
	code int
	text string
}

// Error says what the coordinator said.
func (r *refusal) Error() string {
	return fmt.Sprintf("the coordinator answers code %d: %s", r.code, r.text)
}

// call sends a request to the coordinator, and decodes the data of its answer, if into is not nil.
func (d *Drainer) call(ctx context.Context, method, path string, into any) error {
	var a struct {
		Code *int            `json:"code"`
		Data json.RawMessage `json:"data"`
		Text string          `json:"errMsg"`
	}
	err := d.client.JSON(ctx, method, d.base+path, nil, &a)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", drain.ErrCoordinator, err)
	case a.Code == nil:
		return fmt.Errorf("%w: the answer to %s has no code; is this a coordinator of Uniffle?", drain.ErrCoordinator, path)
	case *a.Code != 0:
		return &refusal{*a.Code, drain.Excerpt(a.Text)}
	case into == nil:
		return nil
	case len(a.Data) == 0:
		return fmt.Errorf("%w: the answer to %s has no data", drain.ErrCoordinator, path)
	}
	if err := json.Unmarshal(a.Data, into); err != nil {
		return fmt.Errorf("%w: the answer to %s: %w", drain.ErrCoordinator, path, err)
	}
	return nil
}

func (d *Drainer) get(ctx context.Context, path string, into any) error {
	if err := d.call(ctx, http.MethodGet, path, into); err != nil {
		return fmt.Errorf("asking the coordinator of Uniffle: %w", err)
	}
	return nil
}

// post asks for a change of a server.
func (d *Drainer) post(ctx context.Context, w drain.Worker, verb string) error {
	if err := d.call(ctx, http.MethodPost, "server/"+url.PathEscape(w.Host)+"/"+verb, nil); err != nil {
		return fmt.Errorf("%s of shuffle server %s: %w", verb, w.Host, err)
	}
	return nil
}

// load is what a server has, by its metrics.
type load struct{ apps, partitions int }

// empty reports whether a server has nothing that somebody waits for. The server waits for its number of applications
// to be 0, but its metric of that number is up to half a minute old (read in its sources). The one of partitions is
// always new, and an application that has just begun has some.
func (l load) empty() bool { return l == load{} }

// load asks a server what it has.
func (d *Drainer) load(ctx context.Context, w drain.Worker) (load, error) {
	if w.URL == "" {
		return load{}, errors.New("the address of its metrics is not known")
	}
	var a struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	err := d.client.JSON(ctx, http.MethodGet, w.At("/metrics/server"), nil, &a)
	if err != nil {
		return load{}, fmt.Errorf("the metrics of shuffle server %s: %w", w.Host, err)
	}
	var l load
	found := 0
	for _, m := range a.Metrics {
		switch m.Name {
		case "app_num_with_node":
			l.apps, found = int(m.Value), found+1
		case "partition_num_with_node":
			l.partitions, found = int(m.Value), found+1
		}
	}
	if found != 2 {
		return load{}, fmt.Errorf("the metrics of shuffle server %s have no app_num_with_node or no partition_num_with_node",
			w.Host)
	}
	return l, nil
}
