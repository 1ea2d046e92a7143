//go:build bench

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/fakerm"
	"github.com/waterline-io/waterline/test/poll"
)

// TestAPIPoolFigures measures a pool of 500 NodeManagers on as many nodes, and one of 2,000: the requests to the
// ResourceManager, the usage of the manager, and its writes to the API. The ResourceManager is a fake, which is
// compared with recordings of the real one, and its answers are as large. API server, etcd and manager are real. Each
// node has another offer once a minute on average, at any time, and containers fill what there is, so that many shrinks
// have to wait.
//
// A heartbeat is the second in which a NodeManager reports to the ResourceManager. The time of a resize runs from the
// API server's answer to the write of a NodeReport, which is when the manager can see it, to the moment at which the
// ResourceManager has another total; the figure is its 99th percentile. Each measured change is one step, of an
// idle worker that has settled. At last all workers are to leave at once, as at the end of a window: told_seconds is
// the time until the ResourceManager has another total of each.
//
// The short form has 50 NodeManagers, and checks only that no figure is grossly wrong.
func TestAPIPoolFigures(t *testing.T) {
	metrics := map[string]float64{}
	counts, over, probes := []int{50}, 10*time.Second, 10
	if benchFile != "" {
		counts, over, probes = []int{500, 2000}, 2*time.Minute, 100
	}
	most := map[string]float64{}
	for _, count := range counts {
		t.Run(strconv.Itoa(count), func(t *testing.T) {
			suffix, goals := "", map[string]float64{
				"manager_rss_mib": 200, "resize_heartbeats_p50": 2, "pool_status_writes_per_second": 1,
			}
			if count == 2000 {
				suffix, goals = "_2000", map[string]float64{
					"manager_cpu_percent_2000": 10, "manager_rss_mib_2000": 150, "told_seconds_2000": 30,
				}
			}
			requests := "rm_requests_per_second_" + strconv.Itoa(count)
			goals[requests] = 25
			for key, value := range manyWorkers(t, count, probes, over) {
				if key != requests {
					key += suffix
				}
				metrics[key] = value
			}
			maps.Copy(most, goals)
		})
	}
	if !t.Failed() {
		noCrowd(t).judge("yarn-pools", metrics, most)
	}
}

// manyWorkers measures a pool of so many workers.
func manyWorkers(t *testing.T, count, probes int, over time.Duration) map[string]float64 {
	y := newYard(t)
	l := &large{managed: y.managed, count: count, registry: y.registry}
	defer l.start(func(ctx context.Context) { l.renew(ctx, 10*time.Second) })()
	o := fakerm.Options{
		Boot: 2 * time.Second, Expiry: time.Minute, Return: 5 * time.Second, Heartbeat: time.Second,
		Unsettled: 100 * time.Millisecond, Labelled: 10 * time.Second,
	}
	p := y.rm(t, "many", "elastic", o, 10*time.Second, 30*time.Minute)
	for _, name := range l.names() {
		y.offer(t, name, "many", cpuMemory(9, 19))
	}
	y.kubelet(false, l.names()...) // their Leases are renewed in etcd
	manager := y.manager("--pools="+poolNamespace, "--lost-after", "1m", "--fresh-within", "25s", "--sweep-period", "3m")
	l.wait("the manager knows all agents", func() bool {
		return strings.Contains(y.metrics(), fmt.Sprintf("waterline_nodes{state=\"agent\"} %d\n", count))
	})
	metrics := map[string]float64{"node_managers": float64(count), "seconds": over.Seconds()}
	began := time.Now()
	y.create(t, strings.Replace(specOf("many", p.address,
		`, size: {ceiling: {cpu: 16, memory: 32Gi}, step: {cpu: 2, memory: 4Gi}, pause: 1s, `+
			`follow: {window: 0s}}, drain: {grace: 10s}`), "label:", fmt.Sprintf("admins: [%q], label:", p.admin), 1))
	l.wait("all are active", func() bool { return y.poolOf(t, "many").Status.Active == int32(count) })
	metrics["active_seconds"] = time.Since(began).Seconds()
	vcores := func() (all int) {
		for _, name := range l.names() {
			all += int(p.Node(poolHost("many", name)).Total.VCores)
		}
		return all
	}
	l.wait("all have grown", func() bool { return vcores() == 7*count })
	metrics["grown_seconds"] = time.Since(began).Seconds()

	p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 2048, VCores: 1}, For: 20 * time.Second,
		PerNode: 100})
	time.Sleep(5 * time.Second)
	stop := l.start(func(ctx context.Context) { y.vary(ctx, t, l.names(), time.Minute) })
	before, writes := p.Counted(), y.writes()
	c := noCrowd(t)
	cost, since := map[string]float64{}, time.Now()
	c.cost(manager.cmd.Process.Pid, over, "manager", cost)
	took := time.Since(since).Seconds()
	after, counted := y.writes(), p.Counted()
	stop()
	metrics["rm_requests_per_second_"+strconv.Itoa(count)] = float64(counted.Requests-before.Requests) / took
	metrics["rm_calls_per_second"] = float64(counted.Calls-before.Calls) / took
	metrics["resizes_per_second"] = float64(counted.Resizes-before.Resizes) / took
	metrics["manager_cpu_percent"], metrics["manager_rss_mib"] = cost["cpu_millicores_manager"]/10, cost["rss_mib_manager"]
	metrics["pod_writes_per_second"] = (after["pods"] - writes["pods"]) / took
	metrics["pool_status_writes_per_second"] = (after["workerpools/status"] - writes["workerpools/status"]) / took

	p.Ask("jobs", fakerm.Demand{})
	time.Sleep(30 * time.Second) // containers have ended, and workers have grown
	var times []float64
	for i := range probes {
		times = append(times, y.resizeTime(t, p, l.names()[i%count]).Seconds())
	}
	slices.Sort(times)
	metrics["resize_heartbeats_p50"], metrics["resize_heartbeats"] = times[len(times)/2], times[len(times)*99/100]

	totals := map[string]fakerm.Size{}
	for _, name := range l.names() {
		host := poolHost("many", name)
		totals[host] = p.Node(host).Total
	}
	if status := y.request(http.MethodDelete, poolPath+"many", ""); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	ended := time.Now()
	l.wait("the ResourceManager knows another total of each", func() bool {
		maps.DeleteFunc(totals, func(host string, total fakerm.Size) bool { return p.Node(host).Total != total })
		return len(totals) == 0
	})
	metrics["told_seconds"] = time.Since(ended).Seconds()
	y.check(t, p)
	return metrics
}

// withOthers returns figures with those that another test wrote into the bench file for the same build.
func withOthers(t testing.TB, name string, metrics map[string]float64) map[string]float64 {
	t.Helper()
	content, err := os.ReadFile(benchFile)
	if benchFile == "" || errors.Is(err, fs.ErrNotExist) {
		return metrics
	}
	var before struct {
		Name, Commit string
		Metrics      map[string]float64
	}
	if err := errors.Join(err, json.Unmarshal(content, &before)); err != nil {
		t.Fatal(err)
	}
	commit, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if before.Name != name || before.Commit != strings.TrimSpace(string(commit)) {
		return metrics
	}
	maps.Copy(before.Metrics, metrics)
	return before.Metrics
}

// vary gives each node another offer within a period on average, at random times.
func (y *yard) vary(ctx context.Context, t testing.TB, names []string, period time.Duration) {
	r := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.ExpFloat64() * float64(period) / float64(len(names)))):
		}
		n := 4 + r.Int64N(9)
		y.offer(t, names[r.IntN(len(names))], "", cpuMemory(n, 2*n+1))
	}
}

// resizeTime changes the offer of a node by one step, and returns the time from the API server's answer until the
// ResourceManager has another total.
func (y *yard) resizeTime(t testing.TB, p *yarnPool, name string) time.Duration {
	t.Helper()
	host := poolHost("many", name)
	y.mu.Lock()
	n := y.nodes[name]
	offer := n.offer
	y.mu.Unlock()
	before := p.Node(host).Total
	if step := cpuMemory(2, 4); offer.CPU > 6000 {
		offer = model.Amount{CPU: offer.CPU - step.CPU, Memory: offer.Memory - step.Memory}
	} else {
		offer = offer.Plus(step)
	}
	y.offer(t, name, "", offer)
	if !poll.Until(mostWait, 2*time.Millisecond, func() bool { return p.Node(host).Total != before }) {
		t.Fatalf("%s keeps %v", name, before)
	}
	resized := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if n.sent != offer {
		return 0 // before this kubelet read the API server's answer
	}
	return resized.Sub(n.written)
}

// writes returns the number of successful PATCH requests so far, by resource and subresource, by the API server's own
// counter. The kubelets here patch no pods but their status.
func (y *yard) writes() map[string]float64 {
	y.t.Helper()
	answer, ok := y.admin.do(y.t, http.MethodGet, "/metrics", "", "")
	if !ok {
		y.t.Fatalf("the API server's metrics: %.200s", answer)
	}
	all := map[string]float64{}
	for line := range strings.Lines(answer) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `verb="PATCH"`) ||
			!strings.Contains(line, `code="200"`) {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(line, `,`+name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		key := label("resource")
		if sub := label("subresource"); sub != "" {
			key += "/" + sub
		}
		fields := strings.Fields(line)
		if value, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
			all[key] += value
		}
	}
	return all
}

// figures writes figures into the bench file.
func (l *livePool) figures(metrics map[string]float64) {
	l.t.Helper()
	if benchFile == "" {
		return
	}
	c := noCrowd(l.t)
	c.write("yarn", withOthers(l.t, "yarn", metrics))
}
