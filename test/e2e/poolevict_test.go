package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// testEvict lets nodes ask for the eviction of their workers' pods. The workers drain, but have the grace of a shrink
// and not the time of a drain: then online services need the node's memory. A request that is taken back before does no
// harm.
func (y *yard) testEvict(t *testing.T) {
	const grace = 8 * time.Second
	p := y.rm(t, "evict", "elastic", quick, grace, grace) // nothing may end before
	for i := range 3 {
		y.offer(t, fmt.Sprintf("evict-%d", i), "evict", cpuMemory(9, 17))
	}
	y.create(t, specOf("evict", p.address, `, drain: {grace: 8s, timeout: 10m}, identity: {coolDown: 1s}`))
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
	ask := func(node, pod, uid string) {
		t.Helper()
		request := fmt.Sprintf(`{"namespace":%q,"name":%q,"uid":%q,"reason":"MemoryExhausted","renewed":%q}`, poolNamespace,
			pod, uid, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
		if uid == "" {
			request = "null"
		}
		if status := y.request(http.MethodPatch, reports+node+"/status", `{"status":{"eviction":`+request+`}}`); status != http.StatusOK {
			t.Fatalf("the request of %s: status %d", node, status)
		}
	}
	began := time.Now()
	ask("evict-0", first.Name, string(first.UID))
	ask("evict-1", second.Name, string(second.UID))
	ask("evict-2", first.Name, string(first.UID)) // a pod that it does not have
	y.becomes(t, "evict", "two workers drain", func(p *v1alpha1.WorkerPool) bool { return p.Status.Leaving == 2 })
	ask("evict-1", "", "")
	eventually(t, "the manager waits for the worker, and does not evict its pod", func() (bool, string) {
		r := object[v1alpha1.NodeReport](t, "nodereport", "evict-0")
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionEvicted)
		return c != nil && c.Reason == "DisruptionBudget", fmt.Sprintf("%+v", r.Status.Conditions)
	})
	eventually(t, "the pod of evict-0 is gone", func() (bool, string) {
		now := y.podOf(first.Name)
		return now.UID != first.UID, fmt.Sprintf("%+v", now.Annotations)
	})
	if took := time.Since(began); took < grace || took > grace+6*time.Second {
		t.Errorf("the pod was gone after %v, want %v and a little", took, grace)
	}
	y.active(t, "evict", 3)
	if now := y.podOf(second.Name); now.UID != second.UID || containers("evict-1") != 1 || containers("evict-2") != 1 {
		t.Errorf("the others: %v, %d and %d containers", now.UID == second.UID, containers("evict-1"), containers("evict-2"))
	}
	y.mu.Lock()
	if p.ended != 1 {
		t.Errorf("%d containers ended with their pods, want that of evict-0", p.ended)
	}
	y.mu.Unlock()
	y.check(t, p)
}
