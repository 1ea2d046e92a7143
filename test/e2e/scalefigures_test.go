//go:build bench

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/lab/host"
	"github.com/waterline-io/waterline/test/poll"
)

// TestAPIScaleFigures measures the cost of Waterline in a large cluster: the rate of the agents' writes, by the API
// server's own counters, and the usage of the manager. API server, etcd, controllers, scheduler and manager are real,
// and so are the parts of the agents that write (see [fleet]). Nodes exist as objects only, with thirty running pods
// each, and with the writes of kubelets: a Lease every ten seconds and a status every five minutes. Kwok, which is made
// for that, writes the same. But it would need one request for each of 150,000 pods, on the CPUs that the manager is
// measured on, and its writes to the status of Nodes could not be distinguished from the agents'. The kubelets' Leases
// are written into etcd, and the API server learns of each like of any other: 500 requests a second would use up the
// CPUs of a small machine, and Waterline does not cause them.
//
// No time is compressed. The usage of nodes is that of traces, each at another time, so that a minute of all nodes
// stands for days of one. A morning in which slack goes from 60 to 20 % within two hours is measured by nodes that are
// each at another minute of it. All nodes sell by their present usage, the method that writes most. In the wave, all
// nodes change at once from one usage to the other. Its figure is the time until the last node has published.
//
// The short form checks only that no figure is grossly wrong.
func TestAPIScaleFigures(t *testing.T) {
	count, over := 100, 10*time.Second
	if benchFile != "" {
		count, over = 5000, 2*time.Minute
		if n, err := strconv.Atoi(scaleNodes); err == nil {
			count = n
		}
	}
	m := newManaged(t)
	l := &large{managed: m, count: count}
	l.build()
	stop := l.live()
	defer stop()
	machines := measured(t)
	f := newFleet(t, model.SellRealtime, l.names())
	f.place(func(i, of int) *host.Host { return at(machines, i, of) })
	p := m.manager("--lost-after", "1m", "--fresh-within", "25s", "--back-after", "30s", "--sweep-period", "1m")
	l.wait("the manager knows all agents", func() bool {
		return strings.Contains(m.metrics(), fmt.Sprintf("waterline_nodes{state=\"agent\"} %d\n", count))
	})
	defer l.start(f.run)()

	metrics := map[string]float64{"nodes": float64(count), "pods": float64(count * podsOnEach)}
	c := noCrowd(t)
	t.Logf("all nodes sell after %v", l.settle(f))
	l.measure(c, p.cmd.Process.Pid, over, "", metrics)
	f.place(inTheMorning)
	metrics["wave_seconds"] = l.settle(f).Seconds()
	l.measure(c, p.cmd.Process.Pid, over, "ramp_", metrics)
	if all := m.metrics(); !strings.Contains(all, `waterline_nodes{state="withdrawn"} 0`) {
		t.Errorf("nodes were withdrawn: %s", all)
	}
	c.judge("scale", metrics, map[string]float64{
		"manager_cpu_percent": 10, "manager_rss_mib": 250, "wave_seconds": 180,
		"node_status_writes_per_second": 15, "ramp_node_status_writes_per_second": 30,
	})
}

// scaleNodes is the number of nodes in the full form; "": the default.
var scaleNodes = os.Getenv("WATERLINE_SCALE_NODES")

// large is a large cluster.
type large struct {
	*managed
	count    int
	registry *registry
	statuses atomic.Int64 // written by kubelets
	renewals atomic.Int64 // of their Leases
}

func (l *large) names() []string {
	names := make([]string, l.count)
	for i := range names {
		names[i] = largeName(i)
	}
	return names
}

// build makes the objects, and removes them with the test.
func (l *large) build() {
	l.t.Helper()
	began := time.Now()
	l.registry = newRegistry(l.t)
	l.t.Cleanup(func() {
		for _, prefix := range []string{"pods/default/large-", "pods/waterline-system/large-", "minions/large-",
			"leases/kube-node-lease/large-", "waterline.io/nodereports/large-"} {
			l.registry.remove(prefix)
		}
	})
	var entries []entry
	for _, name := range l.names() {
		entries = append(entries, objects(name)...)
	}
	if err := l.registry.make(entries); err != nil {
		l.t.Fatal(err)
	}
	for _, kind := range []string{"/api/v1/nodes", "/api/v1/pods"} {
		l.listed(kind)
	}
	l.t.Logf("%d nodes with %d pods exist after %v", l.count, l.count*podsOnEach, time.Since(began).Round(time.Second))
}

// listed waits until the API server's own cache has as many objects as etcd.
func (l *large) listed(path string) {
	l.t.Helper()
	want := l.count
	if strings.HasSuffix(path, "pods") {
		want *= podsOnEach + 1
	}
	remaining := regexp.MustCompile(`"remainingItemCount":(\d+)`)
	l.wait(fmt.Sprintf("%s has %d", path, want), func() bool {
		answer, _ := l.admin.do(l.t, http.MethodGet, path+"?limit=1", "", "")
		found := remaining.FindStringSubmatch(answer)
		if found == nil {
			return false
		}
		n, err := strconv.Atoi(found[1])
		return err == nil && n+1 >= want
	})
}

// wait waits for a time that grows with the cluster.
func (l *large) wait(what string, holds func() bool) {
	l.t.Helper()
	if !poll.Until(10*time.Minute, 100*time.Millisecond, holds) {
		l.t.Fatalf("not within ten minutes: %s", what)
	}
}

// start runs a function until the returned function is called.
func (l *large) start(run func(context.Context)) func() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	return func() { cancel(); <-done }
}

// live starts the writes of kubelets, until the returned function is called.
func (l *large) live() func() {
	beat := func(name string) (path, body string) {
		return nodes + name + "/status",
			fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady",`+
				`"lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	}
	return l.start(func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { l.renew(ctx, 10*time.Second) })
		wg.Go(func() { l.write(ctx, 5*time.Minute, beat) })
		wg.Wait()
	})
}

// renew renews the Leases in steps of a hundred nodes, so that each has its turn in every period.
func (l *large) renew(ctx context.Context, period time.Duration) {
	names := l.names()
	began := time.Now()
	for n := int64(0); ctx.Err() == nil; {
		for some := range slices.Chunk(names, 100) {
			var entries []entry
			for _, name := range some {
				entries = append(entries, lease(name, time.Now()))
			}
			if err := l.registry.put(entries); err != nil {
				l.t.Error(err)
			}
			l.renewals.Add(int64(len(some)))
			n += int64(len(some))
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(began.Add(time.Duration(n) * period / time.Duration(l.count)))):
			}
		}
	}
}

// write writes the status of each node in turn, so that each has its turn in every period.
func (l *large) write(ctx context.Context, period time.Duration, what func(name string) (path, body string)) {
	jobs := make(chan int, 64)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for n := range jobs {
				path, body := what(largeName(n % l.count))
				if l.merge(ctx, path, body) {
					l.statuses.Add(1)
				}
			}
		})
	}
	began := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		if wait := time.Until(began.Add(time.Duration(n) * period / time.Duration(l.count))); wait > 0 {
			time.Sleep(wait)
		}
		select {
		case jobs <- n:
		case <-ctx.Done():
		}
	}
	close(jobs)
	wg.Wait()
}

// merge patches an object, and reports whether that succeeded.
func (l *large) merge(ctx context.Context, path, body string) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, l.admin.host+path, strings.NewReader(body))
	if err != nil {
		return false
	}
	r.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	response, err := l.admin.client.Do(r)
	if err != nil {
		return false // the end
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// settle waits until all nodes show their offers, and returns how long that took. Reports come a quarter of an hour
// later at the latest, and are waited for too.
func (l *large) settle(f *fleet) time.Duration {
	l.t.Helper()
	began := time.Now()
	l.wait("all nodes publish their offers", func() bool { return f.unsettled() == 0 })
	took := time.Since(began)
	time.Sleep(20 * time.Second)
	return took
}

// measure measures the cost of the manager and the rate of writes for a while.
func (l *large) measure(c *crowd, manager int, over time.Duration, prefix string, metrics map[string]float64) {
	l.t.Helper()
	began, before, kubelets, renewals := time.Now(), l.written(), l.statuses.Load(), l.renewals.Load()
	cost := map[string]float64{}
	c.cost(manager, over, "manager", cost)
	now, took := l.written(), time.Since(began).Seconds()
	rate := func(resource string) float64 { return (now[resource] - before[resource]) / took }
	metrics[prefix+"node_status_writes_per_second"] = rate("nodes") - float64(l.statuses.Load()-kubelets)/took
	metrics[prefix+"node_report_writes_per_second"] = rate("nodereports")
	metrics[prefix+"manager_cpu_percent"] = cost["cpu_millicores_manager"] / 10
	metrics[prefix+"manager_rss_mib"] = cost["rss_mib_manager"]
	metrics[prefix+"lease_writes_per_second"] = float64(l.renewals.Load()-renewals) / took
}

// written returns the number of patches to the status of objects of each kind so far, by the API server's own counter.
func (l *large) written() map[string]float64 {
	l.t.Helper()
	answer, ok := l.admin.do(l.t, http.MethodGet, "/metrics", "", "")
	if !ok {
		l.t.Fatalf("the API server's metrics: %.200s", answer)
	}
	all := map[string]float64{}
	for line := range strings.Lines(answer) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `verb="PATCH"`) ||
			!strings.Contains(line, `code="200"`) || !strings.Contains(line, `subresource="status"`) {
			continue
		}
		_, rest, _ := strings.Cut(line, `,resource="`)
		resource, _, _ := strings.Cut(rest, `"`)
		fields := strings.Fields(line)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			l.t.Fatal(err)
		}
		all[resource] += value
	}
	return all
}
