package celeborn

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a master of Celeborn 0.6.3 with its workers, which answer what live ones were seen to answer. Its time goes
// on by beats of 10 s. Workers send a heartbeat at each third, by which the master learns their state, and they get the
// events that wait for them.
type fake struct {
	t    *testing.T
	http *httptest.Server

	mu                      sync.Mutex
	beats                   int
	workers                 []*worker
	shuffles                []string // that the master has
	excluded                []string // hosts
	events                  map[string]string
	calls                   []string // changes that were asked for, in order
	cut                     bool     // answers end in the middle
	failsExit, failsReadmit bool
}

// worker is a worker, and the master's copy of it.
type worker struct {
	http         *httptest.Server
	host         string
	state        string // "": it has ended
	shut         bool
	unregistered bool
	shuffles     []string
	patience     int    // beats until it ends with what it has; 0: for ever
	told         int    // the beat at which it was told to exit
	copy         string // of its state
	silence      int    // beats
}

const port = 37359

// answer is a recorded answer with some words filled in.
func answer(t *testing.T, name string, words ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.NewReplacer(words...).Replace(string(content)))
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, events: map[string]string{}}
	f.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, f.master) }))
	t.Cleanup(f.http.Close)
	return f
}

// add starts a worker with these shuffles.
func (f *fake) add(host string, shuffles ...string) (*worker, drain.Worker) {
	s := &worker{host: host, state: normal, copy: normal, shuffles: shuffles}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.serve(w, r, func(w http.ResponseWriter, r *http.Request) string { return f.worker(s, w, r) })
	}))
	f.t.Cleanup(s.http.Close)
	f.workers = append(f.workers, s)
	f.shuffles = append(f.shuffles, shuffles...)
	return s, drain.Worker{Host: host, URL: s.http.URL}
}

// drop ends an application: the master forgets its shuffles, and workers do at their next beat.
func (f *fake) drop() { f.shuffles = nil }

// end ends a worker's process.
func (s *worker) end() {
	s.state = ""
	s.http.Close()
}

// beat lets times of 10 s pass.
func (f *fake) beat(times int) {
	for range times {
		f.mu.Lock()
		f.beats++
		var over []*worker
		for _, s := range f.workers {
			if s.state != "" {
				s.shuffles = slices.DeleteFunc(s.shuffles, func(id string) bool { return !slices.Contains(f.shuffles, id) })
			}
			switch age := f.beats - s.told; {
			case s.state == inDrain && s.shut && (len(s.shuffles) == 0 || s.patience > 0 && age > s.patience):
				over = append(over, s)
			case s.state == inDrain:
				s.shut = true // it begins 10 s after it was told
			case s.state == thenIdle && len(s.shuffles) == 0:
				s.state = idle
			}
			if s.silence++; f.beats%3 == 0 && s.state != "" {
				f.heartbeat(s)
			}
			if s.silence > 12 {
				s.copy = "lost"
			}
		}
		f.mu.Unlock()
		for _, s := range over {
			s.end()
		}
	}
}

func (f *fake) heartbeat(s *worker) {
	s.copy, s.silence = s.state, 0
	switch event := f.events[s.host]; {
	case event == "DecommissionThenIdle" && s.state == normal:
		if s.state, s.shut = thenIdle, true; len(s.shuffles) == 0 {
			s.state = idle
		}
	case event == "Recommission" && (s.state == thenIdle || s.state == idle):
		s.state, s.shut = normal, false
	case event == "Decommission" && s.state == normal:
		s.state, s.told, s.patience = inDrain, f.beats, 2
	case event == "DecommissionThenIdle" && s.state == idle, event == "Recommission" && s.state == normal:
		delete(f.events, s.host)
	}
}

// placed reports whether the master gives a worker new shuffles, and the worker takes them.
func (f *fake) placed(s *worker) bool {
	return s.state != "" && !s.shut && s.copy == normal && f.events[s.host] == "" && !slices.Contains(f.excluded, s.host)
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request, by func(http.ResponseWriter, *http.Request) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := by(w, r)
	if f.cut {
		text = text[:len(text)/2]
	}
	fmt.Fprintln(w, text)
}

func (f *fake) worker(s *worker, w http.ResponseWriter, r *http.Request) string {
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1/workers":
		return answer(f.t, "worker", "@HOST@", s.host, "@PORT@", strconv.Itoa(port), "@STATE@", s.state,
			"@REGISTERED@", strconv.FormatBool(!s.unregistered), "@SHUT@", strconv.FormatBool(s.shut),
			"@DECOMMISSIONING@", strconv.FormatBool(s.shut && (s.state == inDrain || s.state == thenIdle)))
	case "GET /api/v1/shuffles":
		return answer(f.t, "shuffles", "@IDS@", quoted(s.shuffles))
	case "POST /api/v1/workers/exit":
		var request struct{ Type string }
		if json.NewDecoder(r.Body).Decode(&request) != nil || request.Type != "DECOMMISSION" {
			http.Error(w, "bad request", http.StatusBadRequest)
			return ""
		}
		f.calls = append(f.calls, "exit "+s.host)
		if f.failsExit {
			http.Error(w, "unavailable", http.StatusServiceUnavailable)
			return ""
		}
		if s.state == normal || s.state == idle || s.state == thenIdle {
			s.state, s.told, s.patience = inDrain, f.beats, 0
		}
		return answer(f.t, "handled", "@SUCCESS@", "true", "@TEXT@", "Exit worker by DECOMMISSION triggered")
	}
	http.NotFound(w, r)
	return ""
}

func (f *fake) master(w http.ResponseWriter, r *http.Request) string {
	var request struct {
		Type                 string `json:"eventType"`
		Workers, Add, Remove []id
	}
	if r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&request) != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return ""
	}
	member := func(s *worker) string {
		return answer(f.t, "member", "@HOST@", s.host, "@PORT@", strconv.Itoa(port), "@STATE@", s.copy,
			"@SILENCE@", strconv.Itoa(10*s.silence))
	}
	known := func(ids []id) bool {
		return !slices.ContainsFunc(ids, func(i id) bool {
			return i.RPC != port || i.Push != 38303 || i.Fetch != 37569 || i.Replicate != 37093
		})
	}
	var parts []string
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1/workers":
		var lost, excluded []string
		for _, s := range f.workers {
			if s.copy == "lost" {
				lost = append(lost, answer(f.t, "lost", "@WORKER@", member(s)))
			} else {
				parts = append(parts, member(s))
			}
			if slices.Contains(f.excluded, s.host) {
				excluded = append(excluded, member(s))
			}
		}
		return answer(f.t, "workers", "@WORKERS@", strings.Join(parts, ","), "@LOST@", strings.Join(lost, ","),
			"@EXCLUDED@", strings.Join(excluded, ","))
	case "GET /api/v1/shuffles":
		return answer(f.t, "shuffles", "@IDS@", quoted(f.shuffles))
	case "GET /api/v1/workers/events":
		for _, s := range f.workers {
			if event := f.events[s.host]; event != "" {
				parts = append(parts, answer(f.t, "event", "@WORKER@", member(s), "@TYPE@", event))
			}
		}
		return answer(f.t, "events", "@EVENTS@", strings.Join(parts, ","))
	case "POST /api/v1/workers/exclude":
		if !known(request.Add) || !known(request.Remove) || f.failsReadmit && len(request.Remove) > 0 {
			break
		}
		for _, i := range request.Add {
			f.calls = append(f.calls, "exclude "+i.Host)
			f.excluded = append(f.excluded, i.Host)
		}
		for _, i := range request.Remove {
			f.calls = append(f.calls, "readmit "+i.Host)
			f.excluded = slices.DeleteFunc(f.excluded, func(host string) bool { return host == i.Host })
		}
		return answer(f.t, "handled", "@SUCCESS@", "true", "@TEXT@", "Excluded workers successfully.")
	case "POST /api/v1/workers/events":
		event := map[string]string{"DECOMMISSIONTHENIDLE": "DecommissionThenIdle", "RECOMMISSION": "Recommission",
			"DECOMMISSION": "Decommission"}[request.Type]
		if event == "" || !known(request.Workers) || len(request.Workers) != 1 {
			break
		}
		f.calls = append(f.calls, request.Type+" "+request.Workers[0].Host)
		f.events[request.Workers[0].Host] = event
		return answer(f.t, "handled", "@SUCCESS@", "true", "@TEXT@", "handle "+event+" successfully")
	default:
		http.NotFound(w, r)
		return ""
	}
	http.Error(w, "bad request", http.StatusBadRequest)
	return ""
}

func quoted(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, strconv.Quote(word))
	}
	return strings.Join(all, ",")
}
