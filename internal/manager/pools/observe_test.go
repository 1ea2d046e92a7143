package pools

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

// TestAsked asks a NodeManager what a decision needs, while the ResourceManager answers and while it is silent. Others
// of the containers of one that drains have not started, also if none runs, or one has ended, or there is no answer.
func TestAsked(t *testing.T) {
	const ip = "127.99.80.42"
	now := time.Now()
	over, left := pool.Marks{Until: now.Add(-time.Second)}, pool.Marks{Until: now.Add(time.Second)}
	two := `{"containers": {"container": [
		{"id": "c1", "state": "RUNNING", "totalMemoryNeededMB": 1024, "totalVCoresNeeded": 2},
		{"id": "c2", "state": "DONE", "totalMemoryNeededMB": 4096, "totalVCoresNeeded": 1},
		{"id": "c3", "state": "LOCALIZING", "totalMemoryNeededMB": 512, "totalVCoresNeeded": 1}]}}`
	drains := func(listed int, unlisted bool) []pool.Manager {
		return []pool.Manager{{State: "RUNNING", Containers: 2, Listed: listed, Unlisted: unlisted}}
	}
	for _, c := range []struct {
		about, answer string
		known         bool
		marks         pool.Marks
		managers      []pool.Manager
		listed        []pool.Manager // afterwards
		own           *pool.Size
		stray         string
	}{
		{about: "it drains", answer: two, known: true, managers: drains(2, false), listed: drains(1, false)},
		{about: "it drains, and none runs", answer: `{"containers": null}`, known: true, managers: drains(2, false),
			listed: drains(0, false)},
		{about: "it drains, and does not answer", known: true, managers: drains(2, false), listed: drains(0, true)},
		{about: "its deadline is over", answer: two, marks: over, own: &pool.Size{MemoryMiB: 1536, VCores: 3}},
		{about: "its deadline is over, and nothing runs", answer: `{"containers": null}`, marks: over, own: &pool.Size{}},
		{about: "its deadline is over, and it does not answer", marks: over},
		{about: "there is time left", answer: two, marks: left},
		{about: "it has another name", answer: `{"nodeInfo": {"id": "other:45454"}}`, known: true, stray: "other"},
		{about: "it has its name", answer: `{"nodeInfo": {"id": "W-0:45454"}}`, known: true},
	} {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(yarn.WebPort)))
		if err != nil {
			t.Fatal(err)
		}
		s := &httptest.Server{Listener: l, Config: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(c.answer))
			}),
		}}
		s.Start()
		cluster, _, err := clusterOf(&v1alpha1.YARNSpec{
			ResourceManagers: []string{"http://rm:8088"}, User: "yarn",
		}, nil, anywhere(t))
		if err != nil {
			t.Fatal(err)
		}
		r := &round{k: &keeper{}, now: now, t: &problems{}, places: []*place{
			{host: "w-0", pod: &podRow{ip: ip}, worker: &pool.Worker{
				Name: "w-0", Pod: &pool.Pod{Started: now.Add(-time.Hour), Marks: c.marks}, Managers: c.managers,
			}}, {worker: &pool.Worker{Name: "w-1"}},
		}, in: pool.Input{Now: now, Settings: pool.Settings{Graceful: true}, RM: pool.RM{Known: c.known}}}
		r.k.observer.Use(cluster)
		r.ask(t.Context())
		s.Close()
		w := r.places[0].worker
		if !reflect.DeepEqual(w.Managers, c.listed) || !reflect.DeepEqual(w.Own, c.own) || w.Stray != c.stray {
			t.Errorf("%s: %+v, %v, %q; want %+v, %v, %q", c.about, w.Managers, w.Own, w.Stray, c.listed, c.own, c.stray)
		}
	}
}

// TestPause checks that a pool of many workers rests longer, and never for more than two seconds.
func TestPause(t *testing.T) {
	for workers, want := range map[int]time.Duration{
		0: 500 * time.Millisecond, 500: 500 * time.Millisecond, 1200: 1200 * time.Millisecond, 2000: 2 * time.Second,
		10000: 2 * time.Second,
	} {
		if got := pauseOf(workers); got != want {
			t.Errorf("%d workers rest for %s, want %s", workers, got, want)
		}
	}
}
