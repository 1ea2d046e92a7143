//go:build bench

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/agent/faillog"
	"github.com/waterline-io/waterline/internal/agent/policy"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/poll"
)

// TestAPIPauseFigures measures how long a pause takes, from the API server's answer to the annotation on: on a node of
// 110 weighted pods, until an outside reader sees the kubelet's value in every file; and for 5,000 nodes with one API
// server, until the last of them follows the pause of their policy. Of these nodes, what an agent has of the API is
// real: what it lists and watches, and the choice of its policy. Their Nodes need not exist for that.
//
// The short form checks only that no figure is grossly wrong.
func TestAPIPauseFigures(t *testing.T) {
	pauses, watchers := 5, 100
	if benchFile != "" {
		pauses, watchers = 50, 5000
		if n, err := strconv.Atoi(scaleNodes); err == nil {
			watchers = n
		}
	}
	c := newCrowd(t)
	c.most = map[string]float64{"restored_p99_ms": 1000, "fleet_last_ms": 5000}
	metrics := map[string]float64{"pauses": float64(pauses), "watchers": float64(watchers)}
	c.fill(110)
	c.agent()
	c.converge()
	restored := c.kubeletValues()
	c.measure("restored_", pauses, metrics, func(int) sight {
		c.pause("nodes", fakeNode, "false")
		for i, dir := range c.pods {
			c.expect(t, dir, model.Shares, c.shares[i])
		}
		c.pause("nodes", fakeNode, "true")
		return restored
	})
	c.pause("nodes", fakeNode, "false")

	f := c.follow(watchers)
	var last, half []float64
	for range 5 {
		for _, pause := range []string{"true", "false"} {
			before := f.changes.Load()
			c.pause("colocationpolicies", "default", pause)
			began := time.Now()
			f.wait("every node follows", func() bool { return f.changes.Load() >= before+int64(watchers) })
			took := f.since(began)
			if pause == "true" {
				last, half = append(last, took[len(took)-1]), append(half, took[len(took)/2])
			}
		}
	}
	t.Logf("the last of them followed after %.0f ms, half of them after %.0f", last, half)
	slices.Sort(half)
	metrics["fleet_last_ms"], metrics["fleet_p50_ms"] = slices.Max(last), half[len(half)/2]
	c.judge("pause", metrics, c.most)
}

// kubeletValues is the sight of a node on which every weight is what the kubelet computes from requests.
func (c *crowd) kubeletValues() sight {
	s := sight{what: "every weight is the kubelet's"}
	var want []string
	add := func(dir string, shares int64) {
		s.files = append(s.files, c.path(dir, model.Shares))
		want = append(want, c.text(model.Shares, shares))
	}
	for _, dir := range c.pods {
		add(dir, model.MilliCPUToShares(5))
	}
	add(c.layout.Class(model.Burstable), model.MilliCPUToShares(5*int64(len(c.pods))+10)) // the last is the agent's pod
	s.seen = func(texts []string) bool {
		for i, text := range texts {
			if strings.TrimSpace(text) != want[i] {
				return false
			}
		}
		return true
	}
	return s
}

// pause writes the annotation on an object without a namespace. It returns when the API server has answered.
func (c *crowd) pause(resource, name, value string) {
	c.t.Helper()
	path := "/api/v1/" + resource
	if resource != "nodes" {
		path = "/apis/" + v1alpha1.GroupVersion + "/" + resource
	}
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationPause, value)
	err := c.client.Patch(types.MergePatchType).AbsPath(path, name).Body([]byte(body)).Do(context.Background()).Error()
	if err != nil {
		c.t.Fatal(err)
	}
}

// followers are what many agents have of the API.
type followers struct {
	t       testing.TB
	known   atomic.Int64 // that have listed everything
	changes atomic.Int64 // of modes, after the first one

	mu sync.Mutex
	at []time.Time // the last change of each
}

// follow starts followers, and waits until they know their policy. They end with the test.
func (c *crowd) follow(count int) *followers {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		c.t.Fatal(err)
	}
	config.QPS = -1
	core, err := kube.NewClient(config)
	if err != nil {
		c.t.Fatal(err)
	}
	custom, err := kube.NewCustomClient(config)
	if err != nil {
		c.t.Fatal(err)
	}
	f := &followers{t: c.t, at: make([]time.Time, count)}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c.t.Cleanup(func() { cancel(); all.Wait() })
	began := time.Now()
	for i := range count {
		name := largeName(i)
		cluster := kube.NewCluster(core, custom, name, "", false, slog.New(slog.DiscardHandler))
		all.Go(func() { cluster.Run(ctx) })
		all.Go(func() { f.run(ctx, i, name, cluster) })
		if i%100 == 99 || i == count-1 { // as agents that are replaced one part after another
			f.wait("they know their policy", func() bool { return f.known.Load() > int64(i) })
		}
	}
	c.t.Logf("%d nodes follow after %s", count, time.Since(began).Round(time.Second))
	return f
}

// run evaluates the policies of a node after each change, as its agent does.
func (f *followers) run(ctx context.Context, i int, name string, cluster *kube.Cluster) {
	r := policy.Governing{Log: faillog.New(slog.New(slog.DiscardHandler))}
	var mode model.Mode
	for {
		select {
		case <-ctx.Done():
			return
		case <-cluster.Wake():
		}
		s := cluster.Snapshot()
		if !s.Known {
			continue
		}
		s.UID = name
		now := time.Now()
		r.Update(now, s.NodeInfo, s.Policies)
		is := r.Policy().Mode
		switch {
		case is == mode:
		case mode == "":
			f.known.Add(1)
		default:
			f.mu.Lock()
			f.at[i] = now
			f.mu.Unlock()
			f.changes.Add(1)
		}
		mode = is
	}
}

// since returns how many milliseconds after a time the followers changed last, the first ones first.
func (f *followers) since(began time.Time) []float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []float64
	for _, at := range f.at {
		all = append(all, float64(at.Sub(began))/1e6)
	}
	slices.Sort(all)
	return all
}

func (f *followers) wait(what string, holds func() bool) {
	f.t.Helper()
	if !poll.Until(10*time.Minute, 20*time.Millisecond, holds) {
		f.t.Fatalf("not within ten minutes: %s", what)
	}
}
