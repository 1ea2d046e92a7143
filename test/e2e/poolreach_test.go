package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// TestAPIPoolReach takes from a pool that runs what it may reach, by another manager: nothing is asked any more, and
// its worker and what runs there stay. A pool of another namespace gets no Secret of this one.
func TestAPIPoolReach(t *testing.T) {
	const other = "other-pools"
	makeNamespace(t, other, "")
	y := newYard(t, "--set-json", `manager.pools.namespaces=["`+poolNamespace+`","`+other+`"]`)
	p := y.rm(t, "reach", "elastic", quick, 10*time.Second, 30*time.Minute)
	y.offer(t, "reach-0", "reach", cpuMemory(8, 16))
	manager := y.manager("--pools=" + poolNamespace)
	y.create(t, specOf("reach", p.address, ""))
	worker := y.active(t, "reach", 1).Status.Workers[0]
	size := fakerm.Size{MemoryMiB: 1024, VCores: 1}
	p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: size, For: time.Hour, PerNode: 1})
	busy := func() {
		t.Helper()
		eventually(t, "a container runs", func() (bool, string) {
			n := p.Node(poolHost("reach", "reach-0"))
			return n.Containers == 1, fmt.Sprintf("%+v", n)
		})
	}
	busy()
	p.Ask("jobs", fakerm.Demand{})

	const both = "--pools=" + poolNamespace + "," + other
	for _, c := range []struct {
		what string
		args []string
		word string
	}{
		{"another namespace may have pools too", []string{both}, "several namespaces"},
		{"only that one has a list", []string{both, `--pools-allow={"` + other + `":{"addresses":["127.0.0.1"]}}`},
			"several namespaces"},
		{"nobody has written that pools may reach this machine", []string{"--pools=" + poolNamespace}, "127.0.0.1"},
	} {
		t.Log(c.what)
		manager.stop(syscall.SIGTERM)
		if status := y.request(http.MethodPatch, poolPath+"reach/status",
			`{"status":{"conditions":null}}`); status != http.StatusOK { // the one before may have said the same
			t.Fatalf("removing the conditions: status %d", status)
		}
		asked := p.Counted().Requests
		manager = y.managed.manager(c.args...)
		y.complains(t, "reach", v1alpha1.ConditionRMUnreachable, "NotAllowed", c.word,
			"manager.pools.allow."+poolNamespace+".addresses")
		y.becomes(t, "reach", "its worker stays", func(p *v1alpha1.WorkerPool) bool {
			w := p.Status.Workers
			return len(w) == 1 && w[0].Pod == worker.Pod && w[0].Phase == v1alpha1.WorkerPhase(pool.Frozen)
		})
		if n := p.Counted().Requests; n != asked {
			t.Errorf("%s: %d requests", c.what, n-asked)
		}
	}
	manager.stop(syscall.SIGTERM)
	y.managed.manager(both, fmt.Sprintf(`--pools-allow={%q:{"addresses":["127.0.0.1"]},%q:{"addresses":["127.0.0.1"]}}`,
		poolNamespace, other))
	if now := y.active(t, "reach", 1); now.Status.Workers[0].Pod != worker.Pod {
		t.Errorf("the worker is another: %+v", now.Status.Workers)
	}
	busy()
	y.check(t, p)

	const path = "/apis/waterline.io/v1alpha1/namespaces/" + other + "/workerpools/"
	if status := y.request(http.MethodPost, "/api/v1/namespaces/"+poolNamespace+"/secrets",
		`{"metadata":{"name":"hadoop"},"stringData":{"ca.crt":"x"}}`); status != http.StatusCreated {
		t.Fatalf("making the Secret: status %d", status)
	}
	manifest := strings.Replace(specOf("reach", p.address, ""), "namespace: "+poolNamespace, "namespace: "+other, 1)
	y.create(t, strings.Replace(manifest, "label:", "authSecret: {name: hadoop}, label:", 1))
	defer func() {
		y.request(http.MethodDelete, path+"reach", "")
		y.request(http.MethodPatch, path+"reach", `{"metadata":{"finalizers":[]}}`)
	}()
	eventually(t, "the pool of the other namespace has no Secret", func() (bool, string) {
		var theirs v1alpha1.WorkerPool
		err := y.custom.Get().Namespace(other).Resource("workerpools").Name("reach").Do(t.Context()).Into(&theirs)
		if err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(theirs.Status.Conditions, v1alpha1.ConditionRMUnreachable)
		return c != nil && c.Reason == "NoSecret", fmt.Sprintf("%+v", theirs.Status)
	})
}
