package uniffle

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a coordinator of Uniffle as its sources and its guide say it is. It is no real coordinator: none is in a
// public registry.
type fake map[string]string // states by id

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, data any, message string) {
		_ = json.NewEncoder(w).Encode(map[string]any{"code": code, "data": data, "errMsg": message})
	}
	path, found := strings.CutPrefix(r.URL.Path, "/api/server/")
	id, verb, _ := strings.Cut(strings.TrimPrefix(path, "nodes/"), "/")
	state, known := f[id]
	switch {
	case !found:
		http.NotFound(w, r)
	case !known:
		answer(-1, nil, "Server Id ["+id+"] not found!")
	case r.Method == http.MethodGet && verb == "":
		answer(0, map[string]any{"id": id, "ip": "10.0.0.1", "grpcPort": 19999, "status": state}, "success")
	case r.Method == http.MethodPost && verb == "decommission" && (state == active || state == decommissioning):
		f[id] = decommissioning
		answer(0, nil, "success")
	case r.Method == http.MethodPost && verb == "cancelDecommission" && state == decommissioning:
		f[id] = active
		answer(0, nil, "success")
	default:
		answer(-1, nil, "Shuffle Server is processing other procedures, current status:"+state)
	}
}

func TestDrain(t *testing.T) {
	f := fake{"10.0.0.1-19999": active, "10.0.0.2-19999": "UNHEALTHY"}
	server := httptest.NewServer(f)
	defer server.Close()
	d, err := New(server.URL+"/", drain.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	var _ drain.Reverser = d
	w := drain.Worker{Host: "10.0.0.1-19999"}
	is := func(w drain.Worker, state drain.State) {
		t.Helper()
		if s, err := d.Status(t.Context(), w); err != nil || s.State != state {
			t.Errorf("%s: %+v, %v; want %s", w.Host, s, err, state)
		}
	}
	is(w, drain.Active)
	for range 2 {
		if err := d.Drain(t.Context(), w, time.Minute); err != nil {
			t.Fatal(err)
		}
		is(w, drain.Draining)
	}
	if err := d.Undrain(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	is(w, drain.Active)
	f[w.Host] = decommissioned
	is(w, drain.Drained)
	is(drain.Worker{Host: "10.0.0.9-19999"}, drain.Absent)
	sick := drain.Worker{Host: "10.0.0.2-19999"}
	is(sick, drain.Absent)
	if err := d.Drain(t.Context(), sick, 0); err == nil || !strings.Contains(err.Error(), "UNHEALTHY") {
		t.Errorf("draining a sick server: %v", err)
	}
}

// TestRefused checks that a password goes over https only, and that a page that is no coordinator's is an error.
func TestRefused(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	w := drain.Worker{Host: "10.0.0.1-19999"}
	for _, c := range []struct {
		auth drain.Auth
		word string
	}{
		{drain.Auth{}, "status 404"},
		{drain.Auth{User: "a", Password: "b"}, "https"},
	} {
		d, err := New(server.URL, c.auth)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Status(t.Context(), w); err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("want an error with %q, have %v", c.word, err)
		}
	}
	if _, err := New(server.URL, drain.Auth{CA: []byte("none")}); err == nil {
		t.Error("a certificate that is none is accepted")
	}
}
