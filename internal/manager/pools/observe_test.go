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

// TestListed asks a NodeManager that drains which containers run. Others of those that the ResourceManager allocated
// have not started, also if none runs, or one has ended, or there is no answer.
func TestListed(t *testing.T) {
	const host, ip = "w-0.w.yarn.svc.cluster.local", "127.99.80.42"
	for _, c := range []struct {
		answer   string
		want     int
		unlisted bool
	}{
		{`{"containers": null}`, 0, false},
		{`{"containers": {"container": [{"id": "c1", "state": "RUNNING"}]}}`, 1, false},
		{`{"containers": {"container": [{"id": "c1", "state": "RUNNING"}, {"id": "c0", "state": "DONE"}]}}`, 1, false},
		{`{"containers": {"container": [{"id": "c1", "state": "NEW"}, {"id": "c2", "state": "LOCALIZING"}]}}`, 0, false},
		{``, 0, true}, // an error
	} {
		e, stop := serveNM(t, ip, c.answer)
		r := &round{
			k: &keeper{engine: e}, now: time.Now(),
			p: &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{YARN: &v1alpha1.YARNSpec{
				ResourceManagers: []string{"http://rm:8088"},
			}}},
			view: &view{nodes: map[string][]yarn.Node{host: {{
				ID: net.JoinHostPort(host, fmt.Sprint(nmPort)), State: yarn.NodeRunning, Containers: 2,
			}}}},
			places: []place{{host: host, pod: &podRow{ip: ip}, worker: &pool.Worker{
				Name: "w-0", Pod: &pool.Pod{Started: time.Now()},
			}}},
			in: pool.Input{Settings: pool.Settings{Graceful: true}},
		}
		r.ask(t.Context())
		r.seen(&r.places[0])
		stop()
		if got := r.places[0].worker.Managers; len(got) != 1 || got[0].Listed != c.want || got[0].Unlisted != c.unlisted {
			t.Errorf("%q: %+v, want %d", c.answer, got, c.want)
		}
	}
}

// serveNM answers as the NodeManager with an address.
func serveNM(t *testing.T, ip, answer string) (e *engine, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(webPort)))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}),
	}}
	server.Start()
	return nmEngine(t), server.Close
}

// nmEngine returns an engine that can only ask NodeManagers.
func nmEngine(t *testing.T) *engine {
	t.Helper()
	nm, peers, err := nodeManagers(yarn.Auth{}, http.DefaultTransport.(*http.Transport), anywhere(t).dialWorker)
	if err != nil {
		t.Fatal(err)
	}
	return &engine{nm: nm, peers: peers}
}

// TestOwn asks the NodeManagers of workers whose deadline is over what their containers use, while no ResourceManager
// answers. Without an answer, nothing is known.
func TestOwn(t *testing.T) {
	const ip = "127.99.80.43"
	two := `{"containers": {"container": [
		{"id": "c1", "state": "RUNNING", "totalMemoryNeededMB": 1024, "totalVCoresNeeded": 2},
		{"id": "c2", "state": "DONE", "totalMemoryNeededMB": 4096, "totalVCoresNeeded": 1},
		{"id": "c3", "state": "LOCALIZING", "totalMemoryNeededMB": 512, "totalVCoresNeeded": 1}]}}`
	for _, c := range []struct {
		what, answer string
		until        time.Duration // from now
		want         *pool.Size
	}{
		{"two containers", two, -time.Second, &pool.Size{MemoryMiB: 1536, VCores: 3}},
		{"no container", `{"containers": null}`, -time.Second, &pool.Size{}},
		{"an error", ``, -time.Second, nil},
		{"there is time left", two, time.Second, nil},
	} {
		e, stop := serveNM(t, ip, c.answer)
		now := time.Now()
		r := &round{
			k: &keeper{engine: e}, now: now,
			p: &v1alpha1.WorkerPool{Spec: v1alpha1.WorkerPoolSpec{YARN: &v1alpha1.YARNSpec{
				ResourceManagers: []string{"http://rm:8088"},
			}}},
			places: []place{{host: "w-0", pod: &podRow{ip: ip}, worker: &pool.Worker{
				Name: "w-0", Pod: &pool.Pod{Started: now, Marks: pool.Marks{Until: now.Add(c.until)}},
			}}, {worker: &pool.Worker{Name: "w-1"}}},
		}
		r.ask(t.Context())
		stop()
		if got := r.places[0].worker.Own; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
