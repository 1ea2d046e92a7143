package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestAPIScaleFigures measures what the manager costs in a large cluster of which everything is real but the nodes: their
// Leases are renewed every ten seconds, their kubelets write a status every five minutes, and their agents as often as the
// budget of docs/results.md allows them. In its short form it asserts only that nothing is grossly wrong.
func TestAPIScaleFigures(t *testing.T) {
	count, over := 300, 10*time.Second
	if benchFile != "" {
		count, over = 5000, 2*time.Minute
	}
	m := newManaged(t)
	l := &large{managed: m, count: count}
	l.build()
	p := m.manager("--lost-after", "1m", "--fresh-within", "25s", "--back-after", "30s", "--sweep-period", "30s")
	m.shows(fmt.Sprintf(`waterline_nodes{state="agent"} %d`, count))
	stop := l.live()
	defer stop()
	time.Sleep(10 * time.Second) // what was read at the start is dropped
	c := &crowd{fake: &fake{t: t, groups: newGroups(t)}}
	metrics := map[string]float64{"nodes": float64(count)}
	c.cost(p.cmd.Process.Pid, over, "manager", metrics)
	metrics["manager_cpu_percent"] = metrics["cpu_millicores_manager"] / 10
	metrics["manager_rss_mib"] = metrics["rss_mib_manager"]
	delete(metrics, "cpu_millicores_manager")
	delete(metrics, "rss_mib_manager")
	metrics["lease_writes_per_second"], metrics["node_report_writes_per_second"], metrics["node_status_writes_per_second"] = l.rates()
	if all := m.metrics(); !strings.Contains(all, `waterline_nodes{state="withdrawn"} 0`) {
		t.Errorf("nodes were withdrawn: %s", all)
	}
	c.judge("scale", metrics, map[string]float64{"manager_cpu_percent": 10, "manager_rss_mib": 250})
}

// large is a large cluster.
type large struct {
	*managed
	count int

	mu     sync.Mutex
	began  time.Time
	writes [3]int // Leases, reports, statuses
}

const labelled = `"labels":{"kubernetes.io/arch":"amd64","kubernetes.io/os":"linux","topology.kubernetes.io/zone":"a","node.kubernetes.io/instance-type":"large","pool":"web"}`

// build makes the objects, and takes them away with the test.
func (l *large) build() {
	l.t.Helper()
	l.parallel(func(i int) {
		name := fmt.Sprintf("large-%04d", i)
		for path, body := range map[string]string{
			strings.TrimSuffix(nodes, "/"):   fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,%s}}`, name, labelled),
			strings.TrimSuffix(leases, "/"):  fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":%q},"spec":{"holderIdentity":%q}}`, name, name),
			strings.TrimSuffix(reports, "/"): fmt.Sprintf(`{"kind":"NodeReport","apiVersion":"waterline.io/v1alpha1","metadata":{"name":%q}}`, name),
			"/api/v1/namespaces/waterline-system/pods": fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"labels":{"app.kubernetes.io/name":"waterline-agent"}},
				"spec":{"nodeName":%q,"tolerations":[{"operator":"Exists"}],"containers":[{"name":"agent","image":"none"}]}}`, name, name),
		} {
			if answer, ok := l.admin.do(l.t, http.MethodPost, path, "application/json", body); !ok {
				l.t.Errorf("%s: %s", path, answer)
			}
		}
		for path, body := range map[string]string{
			nodes + name + "/status": sells,
			"/api/v1/namespaces/waterline-system/pods/" + name + "/status": `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`,
		} {
			if answer, ok := l.admin.patch(l.t, path, body); !ok {
				l.t.Errorf("%s: %s", path, answer)
			}
		}
	})
	l.t.Cleanup(func() {
		for _, path := range []string{"/api/v1/namespaces/waterline-system/pods", nodes, leases, reports} {
			query := "?gracePeriodSeconds=0"
			if strings.HasSuffix(path, "pods") {
				query += "&labelSelector=app.kubernetes.io/name%3Dwaterline-agent"
			}
			r, err := http.NewRequest(http.MethodDelete, l.admin.host+strings.TrimSuffix(path, "/")+query, nil)
			if err != nil {
				l.t.Fatal(err)
			}
			response, err := l.admin.client.Do(r)
			if err != nil {
				l.t.Fatal(err)
			}
			_ = response.Body.Close()
		}
	})
}

// parallel calls f for each node, eight at a time.
func (l *large) parallel(f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range l.count {
		next <- i
	}
	close(next)
	wg.Wait()
}

// live lets the nodes write what they write, until the returned function is called.
func (l *large) live() func() {
	ctx, cancel := context.WithCancel(context.Background())
	l.began = time.Now()
	var wg sync.WaitGroup
	share := func(rate float64) time.Duration { return time.Duration(float64(time.Second) / rate) }
	for kind, interval := range []time.Duration{
		share(float64(l.count) / 10),                          // each Lease every ten seconds
		share(15 * float64(l.count) / 5000),                   // reports
		share(5*float64(l.count)/5000 + float64(l.count)/300), // what agents sell, and kubelets every five minutes
	} {
		jobs := make(chan int, 64)
		for range 4 {
			wg.Go(func() {
				for n := range jobs {
					l.write(ctx, kind, n)
				}
			})
		}
		wg.Go(func() {
			defer close(jobs)
			for n := 0; ctx.Err() == nil; n++ {
				if wait := time.Until(l.began.Add(time.Duration(n) * interval)); wait > 0 {
					time.Sleep(wait)
				}
				jobs <- n
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func (l *large) write(ctx context.Context, kind, n int) {
	name := fmt.Sprintf("large-%04d", n%l.count)
	path, body := leases+name, fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
	switch kind {
	case 1:
		path = reports + name + "/status"
		body = fmt.Sprintf(`{"status":{"policy":"default","policyGeneration":1,"mode":"Enforce","selling":"Open","cpu":{"offer":{"batch":"%dm","mid":"0"},"allowance":"2","capacity":"8","ceiling":"5","system":"0","online":"1","peaks":{"hour":"1","day":"1"},"bound":{"batch":"0","mid":"0"}}}}`, 1000+n)
	case 2:
		path, body = nodes+name+"/status", strings.ReplaceAll(sells, "4000", fmt.Sprint(4000+n))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, l.admin.host+path, strings.NewReader(body))
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := l.admin.client.Do(r)
	if err != nil {
		return // the end
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusOK {
		l.mu.Lock()
		l.writes[kind]++
		l.mu.Unlock()
	}
}

// rates returns how many writes there were in a second.
func (l *large) rates() (leases, reports, statuses float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(l.began).Seconds()
	return float64(l.writes[0]) / took, float64(l.writes[1]) / took, float64(l.writes[2]) / took
}
