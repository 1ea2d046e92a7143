package uniffle

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waterline-io/waterline/internal/drain"
)

// fake is a coordinator of Uniffle 0.9.2 with its shuffle servers, which answer what live ones were seen to answer. Its
// time goes on by beats of 10 s, at which servers and applications send heartbeats.
type fake struct {
	t    *testing.T
	http *httptest.Server

	mu      sync.Mutex
	now     int64 // milliseconds
	servers map[string]*shuffler
	lost    []string
	apps    map[string]*job
	cut     bool // answers of the coordinator end in the middle
	noApps  bool // it does not say which applications there are
}

const active = "ACTIVE"

// shuffler is a shuffle server.
type shuffler struct {
	http       *httptest.Server
	state      string // its own; "": it has ended
	listed     string // by the coordinator
	heard      int64
	apps       []string
	gauge      int // its metric of them, which lags
	partitions int
	late       []string // applications that register just before it is asked to drain
	cut, odd   bool     // its metrics end in the middle, or lack what counts
}

type job struct {
	runs  bool
	heard int64
}

// answer is a recorded answer with some words filled in.
func answer(t *testing.T, name string, words ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.NewReplacer(words...).Replace(string(content)))
}

func newFake(t *testing.T) (*fake, *Drainer) {
	f := &fake{t: t, now: 1795708800000, servers: map[string]*shuffler{}, apps: map[string]*job{}}
	f.http = httptest.NewServer(f)
	t.Cleanup(f.http.Close)
	return f, f.drainer()
}

func (f *fake) drainer() *Drainer {
	d, err := New(f.http.URL+"/", drain.Auth{})
	if err != nil {
		f.t.Fatal(err)
	}
	return d
}

// add starts a server with data of these applications.
func (f *fake) add(id string, apps ...string) (*shuffler, drain.Worker) {
	s := &shuffler{state: active, apps: apps}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if r.Method != http.MethodGet || r.URL.Path != "/metrics/server" {
			http.NotFound(w, r)
			return
		}
		text := answer(f.t, "metrics", "@APPS@", fmt.Sprint(s.gauge), "@PARTITIONS@", fmt.Sprint(s.partitions))
		switch {
		case s.cut:
			text = text[:len(text)/2]
		case s.odd:
			text = strings.ReplaceAll(text, "_with_node", "")
		}
		fmt.Fprintln(w, text)
	}))
	f.t.Cleanup(s.http.Close)
	f.servers[id] = s
	for _, a := range apps {
		f.apps[a] = &job{runs: true}
	}
	f.beat(1)
	return s, drain.Worker{Host: id, URL: s.http.URL}
}

// finish ends an application.
func (f *fake) finish(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apps[name].runs = false
	for _, s := range f.servers {
		s.apps = slices.DeleteFunc(s.apps, func(a string) bool { return a == name })
		if s.partitions = 0; len(s.apps) > 0 {
			s.partitions = 8
		}
	}
}

// end ends a server.
func (s *shuffler) end() {
	s.state = ""
	s.http.Close()
}

// beat lets 10 s pass. Servers that drain and are empty end, the coordinator loses a server after 30 s without a
// heartbeat, and it forgets applications after 60 s.
func (f *fake) beat(times int) {
	for range times {
		f.mu.Lock()
		f.now += 10_000
		for name, a := range f.apps {
			if a.runs {
				a.heard = f.now
			} else if f.now-a.heard > 60_000 {
				delete(f.apps, name)
			}
		}
		var over []*shuffler
		for id, s := range f.servers {
			if s.gauge = len(s.apps); len(s.apps) > 0 {
				s.partitions = 8
			}
			if s.state == decommissioning && len(s.apps) == 0 {
				over = append(over, s)
				continue
			}
			switch {
			case s.state != "":
				s.listed, s.heard = s.state, f.now
			case s.listed != "" && f.now-s.heard > 30_000:
				s.listed, f.lost = "", append(f.lost, id)
			}
		}
		f.mu.Unlock()
		for _, s := range over {
			s.end()
		}
	}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	text, over := f.answer(w, r)
	if f.cut {
		text = text[:len(text)/2]
	}
	f.mu.Unlock()
	if over != nil {
		over.end()
	}
	fmt.Fprintln(w, text)
}

func (f *fake) answer(w http.ResponseWriter, r *http.Request) (text string, over *shuffler) {
	success := func(data string) string { return answer(f.t, "success", "@DATA@", data) }
	failure := func(text string) string { return answer(f.t, "failure", "@TEXT@", text) }
	node := func(id, state string) string {
		return answer(f.t, "node", "@ID@", id, "@TIME@", fmt.Sprint(f.servers[id].heard), "@STATE@", state)
	}
	path, found := strings.CutPrefix(r.URL.Path, "/api/server/")
	id, verb, _ := strings.Cut(strings.TrimPrefix(path, "nodes/"), "/")
	s := f.servers[id]
	switch {
	case r.URL.Path == "/api/app/appInfos" && f.noApps:
		return failure("not now"), nil
	case r.URL.Path == "/api/app/appInfos":
		var all []string
		for name, a := range f.apps {
			all = append(all, answer(f.t, "app", "@ID@", name, "@TIME@", fmt.Sprint(a.heard)))
		}
		return success("[" + strings.Join(all, ",") + "]"), nil
	case !found:
		http.NotFound(w, r)
		return "", nil
	case path == "nodes" && r.URL.RawQuery == "status=LOST":
		var all []string
		for _, id := range f.lost {
			all = append(all, node(id, "LOST"))
		}
		return success("[" + strings.Join(all, ",") + "]"), nil
	case s == nil || s.listed == "":
		return failure("Server Id [" + id + "] not found!"), nil
	case r.Method == http.MethodGet && verb == "":
		return success(node(id, s.listed)), nil
	case r.Method != http.MethodPost:
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return "", nil
	case s.state == "":
		return failure("UNAVAILABLE: io exception"), nil
	case verb == "decommission" && (s.state == active || s.state == decommissioning):
		s.apps = append(s.apps, s.late...)
		if s.state = decommissioning; len(s.apps) == 0 {
			over = s
		}
		return success("null"), over
	case verb == "cancelDecommission":
		if s.state == decommissioning {
			s.state = active
		}
		return success("null"), nil
	}
	return failure("Shuffle Server is processing other procedures, current status:" + s.state), nil
}
