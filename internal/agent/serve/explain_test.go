package serve

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent/loopview"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// TestHint checks what is explained of a pod's hint: nothing without a hint or without CPUs of its own, and otherwise
// whether the pod has the hinted CPUs, in all its containers together.
func TestHint(t *testing.T) {
	pod := fixture.Pod("web", model.Guaranteed)
	plan := &model.CPUPlan{Own: []model.OwnCPUs{
		{UID: "db", CPUs: model.CPUs(7)}, {UID: "web", Container: "a", CPUs: model.CPUs(2)},
		{UID: "web", Container: "b", CPUs: model.CPUs(4)},
	}}
	if got := hint(plan, pod); got != "" {
		t.Errorf("without a hint: %q", got)
	}
	pod.Annotations.Hint = model.CPUs(2, 4)
	if got := hint(nil, pod) + hint(&model.CPUPlan{Own: plan.Own[:1]}, pod); got != "" {
		t.Errorf("without CPUs of its own: %q", got)
	}
	if got := hint(plan, pod); got != "it has the CPUs that it was hinted, 2,4" {
		t.Errorf("with the hinted CPUs: %q", got)
	}
	pod.Annotations.Hint = model.CPUs(2, 3)
	if got := hint(plan, pod); !strings.HasPrefix(got, "it was hinted CPUs 2-3 and has 2,4: ") {
		t.Errorf("with other CPUs: %q", got)
	}
}

// TestPods checks what is told of the pods of a node: of each its own usage, request, weight and limit.
func TestPods(t *testing.T) {
	web, job := fixture.Pod("web", model.Guaranteed), fixture.Pod("job", model.BestEffort)
	web.Namespace, web.Name, web.RequestMilli = "shop", "web-0", 2000
	job.Namespace, job.Name, job.Class, job.Tier, job.Batch.CPU = "shop", "job-0", model.ClassBE, model.TierBatch, 4000
	usage := func(milli int64) model.Usage {
		return model.Usage{
			CPU:    model.CPUUsage{At: 9 * time.Second, Milli: milli, Periods: 10, Throttled: 2},
			Memory: model.MemoryUsage{WorkingSet: 1 << 20}, Pressure: model.Pressure{CPU: model.Stall{Some: 7}},
		}
	}
	v := view{&loopview.View{
		Pods: []*model.Pod{job, web},
		Load: &model.Load{Clock: 10 * time.Second, Pods: []model.PodUsage{
			{UID: "gone", Usage: usage(1)}, {UID: "job", Usage: usage(3000)}, {UID: "web", Usage: usage(1500)},
		}},
		Tree: model.Tree{Pods: map[string]model.PodGroup{"web": {Dir: "kubepods/podweb"}}},
		Plan: &model.Plan{
			Settings: []model.Setting{{File: model.File{Dir: "kubepods/podweb", Knob: model.Shares}, Value: model.Number(4096)}},
			Suppress: &model.Suppression{Parts: []model.BatchPart{{UID: "job", Milli: 3500}}},
		},
	}}
	want := []PodUsage{
		{
			Namespace: "shop", Name: "job-0", Class: model.ClassBE, Tier: model.TierBatch, CPU: 3000, Memory: 1 << 20,
			Request: 4000, Allowance: 3500, Wait: 7, Throttled: 200, Age: time.Second,
		},
		{
			Namespace: "shop", Name: "web-0", Class: web.Class, CPU: 1500, Memory: 1 << 20, Request: 2000, Weight: 4096,
			Wait: 7, Throttled: 200, Age: time.Second,
		},
	}
	if d := fixture.Diff(want, v.pods()); d != "" {
		t.Error(d)
	}
}

// TestHandler checks with which status each request is answered.
func TestHandler(t *testing.T) {
	pod := fixture.Pod("web", model.Guaranteed)
	pod.Namespace, pod.Name = "shop", "web-0"
	v := loopview.View{
		Found: true, Pods: []*model.Pod{pod}, Plan: &model.Plan{},
		Files:    func(func(dir string) bool) []model.FileStatus { return nil },
		Topology: func() (*model.Topology, error) { return nil, errors.New("no topology") },
	}
	var stands error
	handler := Handler(func(_ context.Context, f func(*loopview.View)) error {
		f(&v)
		return stands
	}, t.TempDir())
	expect := func(path string, status int, text string) {
		t.Helper()
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != status || !strings.Contains(answer.Body.String(), text) {
			t.Errorf("%s: %d, %s", path, answer.Code, answer.Body)
		}
	}
	expect("/explain?namespace=shop&pod=web-0", http.StatusOK, `"Name":"web-0"`)
	expect("/explain?namespace=shop&pod=web-1", http.StatusNotFound, "this node has no pod web-1 in namespace shop")
	expect("/node", http.StatusOK, "{")
	expect("/pods", http.StatusOK, "null")
	expect("/cpus", http.StatusBadRequest, "no topology")
	expect("/cpus?plan=shop/web-0=none", http.StatusBadRequest, "no topology")
	expect("/cpus?plan=shop/web-1=none", http.StatusNotFound, "this node has no pod web-1 in namespace shop")
	expect("/cpus?plan=shop", http.StatusBadRequest, "write NAMESPACE/POD=MODE")
	expect("/journal", http.StatusServiceUnavailable, "reading the journal")
	stands = errors.New("the loop stands still")
	for _, path := range []string{"/explain", "/node", "/pods", "/cpus"} {
		expect(path, http.StatusServiceUnavailable, "the loop stands still")
	}
}
