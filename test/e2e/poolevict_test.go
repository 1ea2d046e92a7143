package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// asks lets the agent of a node request the eviction of a pod, or of none.
func (y *yard) asks(t testing.TB, node string, pod corev1.Pod) {
	t.Helper()
	request := "null"
	if pod.Name != "" {
		request = fmt.Sprintf(`{"namespace":%q,"name":%q,"uid":%q,"reason":"MemoryExhausted","renewed":%q}`, pod.Namespace,
			pod.Name, pod.UID, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	status := y.request(http.MethodPatch, reports+node+"/status", `{"status":{"eviction":`+request+`}}`)
	if status != http.StatusOK {
		t.Fatalf("the request of %s: status %d", node, status)
	}
}

// allowEvictions makes a policy that lets the nodes of a pool request evictions, and returns what deletes it.
func allowEvictions(t testing.TB, pool string) func() {
	t.Helper()
	apply(t, fmt.Sprintf("{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: %[1]s}, spec: "+
		"{mode: Enforce, nodeSelector: {matchLabels: {pool: %[1]s}}, protect: {eviction: {perNodePerHour: 2}}}}", pool))
	return func() { kubectl(t, "delete", "colocationpolicy", pool) }
}

// What containers get when a node asks for the eviction of their worker.
const (
	evictGrace = 40 * time.Second
	hangGrace  = 6 * time.Second
)

// testEvict lets nodes ask for the eviction of their workers' pods. The workers drain, but have the grace of a shrink
// and not the time of a drain, which tests do not wait for: then online services need the node's memory. A request that
// is taken back before does no harm. testEvict returns how long it took until the pod was gone.
func (y *yard) testEvict(t *testing.T) (took time.Duration) {
	// A request is taken back before the grace is over, also on a machine that stands still for a quarter of a minute.
	const grace = evictGrace
	defer allowEvictions(t, "evict")()
	p := y.rm(t, "evict", "elastic", quick, grace, grace) // nothing may end before
	for i := range 3 {
		y.offer(t, fmt.Sprintf("evict-%d", i), "evict", cpuMemory(9, 17))
	}
	y.create(t, specOf("evict", p.address, `, drain: {grace: 40s, timeout: 30m}, identity: {coolDown: 1s}`))
	y.active(t, "evict", 3)
	job := fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 1024, VCores: 1}, For: time.Hour, PerNode: 1}
	p.Ask("long", job)
	containers := func(node string) int { return p.Node(poolHost("evict", node)).Containers }
	eventually(t, "all are busy", func() (bool, string) {
		all := fmt.Sprint(containers("evict-0"), containers("evict-1"), containers("evict-2"))
		return all == "1 1 1", all
	})
	p.Ask("long", fakerm.Demand{})

	first, second := y.podOf("evict-evict-0"), y.podOf("evict-evict-1")
	began := time.Now()
	y.asks(t, "evict-0", first)
	y.asks(t, "evict-1", second)
	y.asks(t, "evict-2", first) // which it does not have
	y.becomes(t, "evict", "two workers drain", func(p *v1alpha1.WorkerPool) bool { return p.Status.Leaving == 2 })
	y.asks(t, "evict-1", corev1.Pod{})
	y.asks(t, "evict-0", first) // the manager evicts no pod whose request was not renewed since it leads
	eventually(t, "the manager leaves the worker to its pool", func() (bool, string) {
		r := object[v1alpha1.NodeReport](t, "nodereport", "evict-0")
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionEvicted)
		return c != nil && c.Reason == string(evictbudget.Drains), fmt.Sprintf("%+v", r.Status.Conditions)
	})
	eventually(t, "the pod of evict-0 is gone", func() (bool, string) {
		now := y.podOf(first.Name)
		return now.UID != first.UID, fmt.Sprintf("%+v", now.Annotations)
	})
	took = time.Since(began)
	y.active(t, "evict", 3)
	if now := y.podOf(second.Name); now.UID != second.UID || containers("evict-1") != 1 || containers("evict-2") != 1 {
		t.Errorf("the others: %v, %d and %d containers", now.UID == second.UID, containers("evict-1"), containers("evict-2"))
	}
	y.endedAfter(t, p, grace)
	y.check(t, p)
	return took
}

// endedAfter checks that one container was ended, and had a time from the mark on that its worker is to stop. Either
// the ResourceManager ended it, and y.judge has compared its times with that mark, or it ended with its pod.
func (y *yard) endedAfter(t testing.TB, p *yarnPool, grace time.Duration) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if killed := p.Counted().Killed; p.ended+killed != 1 {
		t.Errorf("%d containers ended with their pods, and the ResourceManager killed %d, want one in all", p.ended, killed)
	}
	for _, e := range p.ends { // y.check checks that no container ended before its marks allow it
		if e.leaving.IsZero() || e.by.Sub(e.leaving) < grace {
			t.Errorf("by its marks, the worker stops from %s on, and its container may end at %s, want %s later", e.leaving,
				e.by, grace)
		}
	}
}

// testHang has a ResourceManager whose administration port accepts connections and never answers. An eviction that a
// node requests has the grace of a shrink all the same. testHang returns how long it took until the pod was gone.
func (y *yard) testHang(t *testing.T) (took time.Duration) {
	const grace = hangGrace
	defer allowEvictions(t, "hang")()
	p := y.rm(t, "hang", "elastic", quick, grace, grace)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // connections wait for an Accept
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	y.offer(t, "hang-0", "hang", cpuMemory(9, 17))
	manifest := specOf("hang", p.address, `, drain: {grace: 6s, timeout: 30m}, identity: {coolDown: 1s}`)
	admin := `excludeFile: hang.xml, admins: ["` + listener.Addr().String() + `"], `
	y.create(t, strings.Replace(manifest, "label:", admin+"label:", 1))
	y.complains(t, "hang", v1alpha1.ConditionExcludeFailed, "NotRead", "deadline exceeded", "spec.yarn.admins")
	host := poolHost("hang", "hang-0")
	p.Ask("long", fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 1024, VCores: 1}, For: time.Hour,
		PerNode: 1})
	eventually(t, "it is busy", func() (bool, string) {
		n := p.Node(host)
		return n.Containers == 1, fmt.Sprintf("%+v", n)
	})
	p.Ask("long", fakerm.Demand{})
	pod, began := y.podOf("hang-hang-0"), time.Now()
	y.asks(t, "hang-0", pod)
	eventually(t, "its pod is gone", func() (bool, string) {
		now := y.podOf(pod.Name)
		return now.UID != pod.UID, fmt.Sprintf("%+v", now.Annotations)
	})
	took = time.Since(began)
	y.endedAfter(t, p, grace)
	y.check(t, p)
	return took
}

// testZeros has a ResourceManager that goes on to show zeros after a resize, as a real one does for a moment. Its
// workers stop all the same when they have to. testZeros returns how long it took until the pod was gone.
func (y *yard) testZeros(t *testing.T) (took time.Duration) {
	o := quick
	o.Unsettled = time.Hour
	defer allowEvictions(t, "zeros")()
	p := y.rm(t, "zeros", "elastic", o, 6*time.Second, 6*time.Second)
	y.offer(t, "zeros-0", "zeros", cpuMemory(9, 17))
	y.create(t, specOf("zeros", p.address, `, drain: {grace: 6s, timeout: 30m}, identity: {coolDown: 1s}, `+
		`size: {ceiling: {cpu: 2, memory: 4Gi}, follow: {window: 0s}}`))
	p.offers(t, poolHost("zeros", "zeros-0"), fakerm.Size{MemoryMiB: 4096, VCores: 2})
	pod, began := y.podOf("zeros-zeros-0"), time.Now()
	y.asks(t, "zeros-0", pod)
	eventually(t, "its pod is gone", func() (bool, string) {
		now := y.podOf(pod.Name)
		return now.UID != pod.UID, fmt.Sprintf("%+v", now.Annotations)
	})
	took = time.Since(began)
	y.check(t, p)
	return took
}
