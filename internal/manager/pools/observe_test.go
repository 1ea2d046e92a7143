package pools

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
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
		answer string
		want   int
	}{
		{`{"containers": null}`, 0},
		{`{"containers": {"container": [{"id": "c1", "state": "RUNNING"}]}}`, 1},
		{`{"containers": {"container": [{"id": "c1", "state": "RUNNING"}, {"id": "c0", "state": "DONE"}]}}`, 1},
		{`{"containers": {"container": [{"id": "c1", "state": "NEW"}, {"id": "c2", "state": "LOCALIZING"}]}}`, 0},
		{``, 0}, // an error
	} {
		listener, err := net.Listen("tcp", net.JoinHostPort(ip, fmt.Sprint(webPort)))
		if err != nil {
			t.Fatal(err)
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(c.answer))
			}),
		}}
		server.Start()
		nm, err := yarn.NewNM(yarn.HTTPOptions{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r := &round{
			k: &keeper{engine: &engine{nm: nm}}, now: time.Now(),
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
		server.Close()
		if got := r.places[0].worker.Managers; len(got) != 1 || got[0].Listed != c.want {
			t.Errorf("%q: %+v, want %d", c.answer, got, c.want)
		}
	}
}
