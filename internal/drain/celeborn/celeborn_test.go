package celeborn

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a worker of Celeborn as its sources and its OpenAPI description say it is. It is no real worker: none is in a
// public registry.
type fake struct {
	state    string
	shuffles []string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1/workers":
		_ = json.NewEncoder(w).Encode(map[string]any{
			"host": "10.0.0.1", "rpcPort": 37359, "pushPort": 38303, "fetchPort": 37569, "replicatePort": 37093,
			"internalPort": 37359, "workerState": f.state, "isRegistered": true, "isShutdown": f.state != "Normal",
			"isDecommissioning": f.state == "InDecommission",
		})
	case "GET /api/v1/shuffles":
		_ = json.NewEncoder(w).Encode(map[string]any{"shuffleIds": f.shuffles})
	case "POST /api/v1/workers/exit":
		var request struct{ Type string }
		if json.NewDecoder(r.Body).Decode(&request) != nil || request.Type != "DECOMMISSION" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		if f.state == "Normal" {
			f.state = "InDecommission"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"success": true, "message": "Exit worker by DECOMMISSION triggered"})
	default:
		http.NotFound(w, r)
	}
}

func TestDrain(t *testing.T) {
	f := &fake{state: "Normal", shuffles: []string{"app-1-0", "app-1-1"}}
	server := httptest.NewServer(f)
	defer server.Close()
	d, err := New(drain.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	w := drain.Worker{Host: "10.0.0.1", URL: server.URL}
	is := func(state drain.State, work int) {
		t.Helper()
		s, err := d.Status(t.Context(), w)
		if err != nil || s.State != state || s.Work != work {
			t.Errorf("%+v, %v; want %s with %d shuffles", s, err, state, work)
		}
	}
	is(drain.Active, 2)
	for range 2 { // twice is the same
		if err := d.Drain(t.Context(), w, time.Minute); err != nil {
			t.Fatal(err)
		}
		is(drain.Draining, 2)
	}
	f.state, f.shuffles = "Exit", nil
	is(drain.Drained, 0)
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if s, err := d.Status(ctx, w); err == nil || !strings.Contains(err.Error(), "10.0.0.1") {
		t.Errorf("a worker that does not answer: %+v, %v", s, err)
	}
}
