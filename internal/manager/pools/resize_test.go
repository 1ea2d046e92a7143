package pools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/yarn"
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestShrinkFirst has an API server that takes a second for each mark, a few workers that shrink, and many that
// grow. Those that shrink are marked before any other, and the round does not wait for all others: each has its turn in
// one of the next rounds.
func TestShrinkFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var marked []string
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.test", QPS: -1, Transport: transport(
			func(r *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				marked = append(marked, path.Base(r.URL.Path))
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
					Body: io.NopCloser(strings.NewReader("{}")),
				}, nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		r := poolRound(t, "testdata/small.yaml", nil)
		r.k.c.o.Core = client.CoreV1().RESTClient()
		refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
		if r.k.actor.Cluster, err = yarn.NewCluster(yarn.ClusterOptions{
			Endpoint: yarn.Endpoint{ResourceManagers: []string{"http://rm.test:8088"}, User: "yarn"},
			Dial:     refuse, DialWorker: refuse,
		}); err != nil {
			t.Fatal(err)
		}
		const growing, shrinking = 100, 10
		grown := map[string]bool{}
		for turn := 0; len(grown) < growing; turn++ {
			if turn > growing {
				t.Fatalf("%d of %d have grown", len(grown), growing)
			}
			r.places, marked = nil, nil
			for i := range growing + shrinking {
				name, size := fmt.Sprintf("grows-%d", i), pool.Size{MemoryMiB: 4096, VCores: 2}
				if i >= growing {
					name, size = fmt.Sprintf("shrinks-%d", i), pool.Size{MemoryMiB: 1024, VCores: 2}
				}
				if grown[name] {
					continue
				}
				r.places = append(r.places, &place{
					pod: &podRow{name: name},
					worker: &pool.Worker{Name: name, Pod: &pool.Pod{}, Managers: []pool.Manager{{
						ID: name + ":1", State: "RUNNING", Total: pool.Size{MemoryMiB: 2048, VCores: 2},
					}}},
					step: pool.Step{Verb: pool.Resize, Size: size, Marks: pool.Marks{Grown: r.now}},
				})
			}
			r.k.actor.Begin()
			r.resize(t.Context())
			if n := len(marked); n < shrinking || turn == 0 && n == growing+shrinking {
				t.Fatalf("%d workers were marked in one round", n)
			}
			for i, name := range marked {
				if strings.HasPrefix(name, "shrinks") != (i < shrinking) {
					t.Errorf("round %d: mark %d is of %s", turn, i, name)
				}
				if i >= shrinking {
					grown[name] = true
				}
			}
		}
	})
}
