package trino

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a coordinator and a worker at one address. It answers what Trino 435 was seen to answer.
type fake struct {
	t *testing.T

	mu       sync.Mutex
	starting bool
	state    string
	refuses  int // HTTP status of a shutdown; 0: it is accepted
	listed   bool
	queries  int
	busy     int // answers 503 to so many pages
	fails    string
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if user := r.Header.Get("X-Trino-User"); user != "ops" {
		f.t.Errorf("%s %s is of user %q", r.Method, r.URL, user)
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/info":
		answer(map[string]any{"nodeVersion": map[string]string{"version": "435"}, "environment": "bed", "coordinator": false,
			"starting": f.starting, "uptime": "1.00m"})
	case "GET /v1/info/state":
		answer(f.state)
	case "PUT /v1/info/state":
		body, _ := io.ReadAll(r.Body)
		if string(body) != `"SHUTTING_DOWN"` || r.Header.Get("Content-Type") != "application/json" {
			f.t.Errorf("the body is %s of type %s", body, r.Header.Get("Content-Type"))
		}
		if f.refuses != 0 {
			http.Error(w, "Access Denied: Management only resource", f.refuses)
			return
		}
		f.state = "SHUTTING_DOWN"
	case "POST /v1/statement":
		f.queries++
		if f.fails != "" {
			answer(map[string]any{"id": "q", "error": map[string]string{"message": f.fails, "errorName": "PERMISSION_DENIED"}})
			return
		}
		// The address is one that only the coordinator's own network knows.
		answer(map[string]any{"id": "q", "nextUri": "http://inside.invalid:8080/v1/statement/queued/q/1?slug=x"})
	case "GET /v1/statement/queued/q/1":
		if f.busy > 0 {
			f.busy--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.RawQuery != "slug=x" {
			f.t.Errorf("the page is %s", r.URL)
		}
		data := [][]any{{"http://other:8080"}}
		if f.listed {
			data = append(data, []any{"http://W1.Pool:8080"})
		}
		answer(map[string]any{"id": "q", "data": data})
	default:
		http.NotFound(w, r)
	}
}

func start(t *testing.T) (*fake, *Drainer, drain.Worker) {
	f := &fake{t: t, state: "ACTIVE", listed: true, busy: 1}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	d, err := New(server.URL+"/", drain.Auth{User: "ops"})
	if err != nil {
		t.Fatal(err)
	}
	return f, d, drain.Worker{Host: "w1.pool", URL: server.URL}
}

func TestDrain(t *testing.T) {
	f, d, w := start(t)
	is := func(state drain.State) {
		t.Helper()
		if s, err := d.Status(t.Context(), w); err != nil || s.State != state {
			t.Errorf("%+v, %v; want %s", s, err, state)
		}
	}
	f.starting = true
	is(drain.Absent)
	f.starting = false
	is(drain.Active)
	is(drain.Active)
	if f.queries != 1 {
		t.Errorf("%d queries for two looks", f.queries)
	}
	for range 2 { // twice is the same
		if err := d.Drain(t.Context(), w, time.Minute); err != nil {
			t.Fatal(err)
		}
		is(drain.Draining)
	}
	for state, want := range map[string]drain.State{
		"DRAINING": drain.Draining, "DRAINED": drain.Drained, "INACTIVE": drain.Absent, "anything": drain.Absent,
	} {
		f.state = state
		is(want)
	}
}

// TestListed checks that a worker that the coordinator does not list is absent, and looked for again soon.
func TestListed(t *testing.T) {
	f, d, w := start(t)
	f.listed = false
	if s, err := d.Status(t.Context(), w); err != nil || s.State != drain.Absent {
		t.Errorf("%+v, %v", s, err)
	}
	f.listed = true
	d.looked = d.looked.Add(-eager)
	if s, err := d.Status(t.Context(), w); err != nil || s.State != drain.Active {
		t.Errorf("%+v, %v", s, err)
	}
	f.listed = false
	d.looked = d.looked.Add(-eager)
	if s, err := d.Status(t.Context(), w); err != nil || s.State != drain.Active || f.queries != 2 {
		t.Errorf("it was looked for again at once: %+v, %v, %d queries", s, err, f.queries)
	}
	d.looked = d.looked.Add(-steady)
	if s, err := d.Status(t.Context(), w); err != nil || s.State != drain.Absent {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRefused(t *testing.T) {
	f, d, w := start(t)
	for status, words := range map[int][]string{
		http.StatusForbidden:    {"403", `user "ops" may not`, `"system_information"`, `"allow": ["read", "write"]`, "w1.pool"},
		http.StatusUnauthorized: {"401", "password or token", `"ops"`},
		http.StatusBadGateway:   {"502", "w1.pool"},
	} {
		f.refuses = status
		err := d.Drain(t.Context(), w, time.Minute)
		for _, word := range words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("status %d: the error lacks %q: %v", status, word, err)
			}
		}
	}
	f.fails = "Access Denied: Cannot select from table"
	_, err := d.Status(t.Context(), w)
	if !errors.Is(err, drain.ErrCoordinator) || !strings.Contains(err.Error(), "PERMISSION_DENIED") ||
		strings.Contains(err.Error(), f.fails) { // what a server says may be for others
		t.Errorf("a coordinator that refuses: %v", err)
	}
}

// TestSilentWorker has workers whom the manager cannot ask. Only one that the coordinator does not list either counts
// as silent: the network between the manager and the workers may be at fault.
func TestSilentWorker(t *testing.T) {
	f, d, w := start(t)
	refuses := httptest.NewServer(http.NotFoundHandler())
	defer refuses.Close()
	for about, url := range map[string]string{"no answer": "http://127.0.0.1:9", "a refusal": refuses.URL} {
		listed, other := drain.Worker{Host: w.Host, URL: url}, drain.Worker{Host: "w2.pool", URL: url}
		if s, err := d.Status(t.Context(), listed); err != nil || s.State != drain.Active || !strings.Contains(s.Text, url) {
			t.Errorf("%s of a worker that is listed: %+v, %v", about, s, err)
		}
		if s, err := d.Status(t.Context(), other); err == nil || errors.Is(err, drain.ErrCoordinator) {
			t.Errorf("%s of a worker that is not listed: %+v, %v", about, s, err)
		}
	}
	if f.queries != 1 {
		t.Errorf("%d queries for four looks", f.queries)
	}
	silent := drain.Worker{Host: w.Host, URL: "http://127.0.0.1:9"}
	if err := d.Drain(t.Context(), w, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.listed = false
	if s, err := d.Status(t.Context(), silent); err == nil {
		t.Errorf("a worker that drained, by a list from before: %+v", s)
	}
	f.fails = "Access Denied: Cannot select from table"
	d.looked = time.Time{}
	_, err := d.Status(t.Context(), silent)
	if !errors.Is(err, drain.ErrCoordinator) || !strings.Contains(err.Error(), silent.URL) {
		t.Errorf("neither the worker nor the coordinator says anything: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Status(over, silent); err == nil || errors.Is(err, drain.ErrCoordinator) {
		t.Errorf("the time was over before the worker answered: %v", err)
	}
}

// TestHungWorker has a worker that takes connections and does not answer. It leaves time to ask others.
func TestHungWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := New("http://coordinator:8080", drain.Auth{
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		d.nodes, d.looked = map[string]bool{"w1.pool": true}, began
		w := drain.Worker{Host: "w1.pool", URL: "http://w1.pool:8080"}
		if s, err := d.Status(t.Context(), w); err != nil || s.State != drain.Active || time.Since(began) != askTimeout {
			t.Errorf("after %s: %+v, %v", time.Since(began), s, err)
		}
		began = time.Now()
		if err := d.Drain(t.Context(), w, time.Minute); err == nil || time.Since(began) != drainTimeout {
			t.Errorf("the drain ended after %s: %v", time.Since(began), err)
		}
	})
}

// TestLargeAnswers has a coordinator whose answers would use up the manager's memory. Each query ends with an error
// that says which limit it exceeds.
func TestLargeAnswers(t *testing.T) {
	row := func(n int) string { return strings.Repeat(`[],`, n-1) + `["http://w1.pool:8080"]` }
	for about, c := range map[string]struct {
		page, word string // "": it is taken
		pages      int    // that are asked for; the last one has no next
	}{
		"the most rows":          {row(maxRows), "", 1},
		"the most rows by pages": {row(maxRows / 100), "", 100},
		"a row too many":         {row(maxRows + 1), "more than 10000 rows", 1},
		"rows without end":       {row(maxRows / 4), "more than 10000 rows", 5},
		"a large page":           {`["` + strings.Repeat("x", maxBytes) + `"]`, "more than 4194304 bytes", 1},
		"pages without end":      {`["` + strings.Repeat("x", maxBytes/4) + `"]`, "more than 4194304 bytes", 4},
		"a row of rows":          {`[[[],[]]]`, "not that of Trino", 1},
		"rows of more columns":   {`["http://w1.pool:8080",[1,2]]`, "", 1},
	} {
		pages := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			next := ""
			if pages++; c.word != "" || pages < c.pages {
				next = fmt.Sprintf(`"nextUri":"http://x/%d",`, pages)
			}
			fmt.Fprintf(w, `{%s"data":[%s]}`, next, c.page)
		}))
		d, err := New(server.URL, drain.Auth{User: "ops"})
		if err != nil {
			t.Fatal(err)
		}
		listed, err := d.listed(t.Context(), "w1.pool")
		if pages != c.pages {
			t.Errorf("%s: %d pages were asked for, want %d", about, pages, c.pages)
		}
		if c.word == "" && (err != nil || !listed) || c.word != "" && (err == nil || !strings.Contains(err.Error(), c.word)) {
			t.Errorf("%s: listed %v, %v; want %q", about, listed, err, c.word)
		}
		server.Close()
	}
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"starting":true,"x":%q}`, strings.Repeat("x", maxInfo))
	}))
	defer large.Close()
	_, d, w := start(t)
	w.URL = large.URL
	if s, err := d.Status(t.Context(), w); err != nil || !strings.Contains(s.Text, "more than 65536 bytes") {
		t.Errorf("a large answer of a worker: %+v, %v", s, err)
	}
}
