package pools

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
)

// largeStatus returns the status of a pool with so many active workers.
func largeStatus(n int) *v1alpha1.WorkerPoolStatus {
	s := &v1alpha1.WorkerPoolStatus{}
	for i := range n {
		s.Workers = append(s.Workers, v1alpha1.WorkerStatus{
			Name: fmt.Sprintf("night-node-%04d", i), Node: fmt.Sprintf("node-%04d", i), Phase: v1alpha1.WorkerPhase(pool.Active),
			Pod: "0a1b2c3d-0000-0000-0000-000000000000", Reason: string(pool.UpToDate), Since: metav1.Unix(int64(i), 0),
			Total: amountOf(pool.Size{MemoryMiB: 4096, VCores: 2}), Containers: 2,
		})
	}
	return s
}

// TestShown checks which workers the status of a pool shows: all of few, and of many those that need attention most.
func TestShown(t *testing.T) {
	if s := shownOf(largeStatus(shownWorkers)); len(s.Workers) != shownWorkers || s.Reports != 0 {
		t.Errorf("%d workers, %d reports", len(s.Workers), s.Reports)
	}
	all := largeStatus(2000)
	if s := shownOf(all); len(s.Workers) != 0 || s.Reports != 11 {
		t.Errorf("%d of 2,000 active workers need attention; %d reports, want 11", len(s.Workers), s.Reports)
	}
	for i := range 100 {
		w := &all.Workers[i]
		w.Phase, w.Message = v1alpha1.WorkerPhase(pool.Draining), strings.Repeat("long ", 200)
	}
	all.Workers[500].Phase = v1alpha1.WorkerPhase(pool.Terminated) // it is not to run
	all.Workers[501].Phase, all.Workers[501].Attempts = v1alpha1.WorkerPhase(pool.Terminated), 1
	all.Workers[1000].Phase = v1alpha1.WorkerPhase(pool.Lost)
	all.Workers[1999].Phase = v1alpha1.WorkerPhase(pool.Quarantined)
	s := shownOf(all)
	names := map[string]bool{}
	for i, w := range s.Workers {
		names[w.Name] = true
		if i > 0 && w.Name <= s.Workers[i-1].Name {
			t.Errorf("%s stands after %s", w.Name, s.Workers[i-1].Name)
		}
	}
	// The longest in their phase come first.
	for _, want := range []int{0, 16, 501, 1000, 1999} {
		if !names[all.Workers[want].Name] {
			t.Errorf("%s is not shown", all.Workers[want].Name)
		}
	}
	if len(s.Workers) != shownWorkers || names[all.Workers[17].Name] || names[all.Workers[500].Name] {
		t.Errorf("shown: %v", names)
	}
	if text, err := json.Marshal(s); err != nil || len(text) > 32<<10 {
		t.Errorf("the status has %d bytes: %v", len(text), err)
	}
	if len(all.Workers) != 2000 {
		t.Error("the status with all workers was changed")
	}
}

// TestReports writes the workers of a large pool as a manager does, and reads them as the next one: all are there. The
// change of one worker writes one report.
func TestReports(t *testing.T) {
	r, f := apiRound(t, map[string]any{})
	status := largeStatus(2000)
	n := int(shownOf(status).Reports)
	if err := r.k.writeReports(t.Context(), r.p, status, n); err != nil || len(f.changes) != n {
		t.Fatalf("%d reports were written, want %d: %v", len(f.changes), n, err)
	}
	keep := func() {
		t.Helper()
		for change, body := range f.changes {
			var c corev1.ConfigMap
			if err := json.Unmarshal([]byte(body), &c); err != nil {
				t.Fatal(err)
			}
			if len(body) > 256<<10 || !controls(r.p, &c.ObjectMeta) || c.Labels[v1alpha1.LabelPoolReport] != r.p.Name ||
				c.Labels[v1alpha1.LabelPool] != "" {
				t.Errorf("%s: %d bytes, %+v", change, len(body), c.ObjectMeta)
			}
			f.objects["/namespaces/"+c.Namespace+"/configmaps/"+c.Name] = c
		}
		clear(f.changes)
	}
	keep()
	read := func() *v1alpha1.WorkerPoolStatus {
		t.Helper()
		next := newKeeper(r.k.c, r.p.Namespace, r.p.Name)
		r.p.Status = *shownOf(status)
		s, err := next.readReports(t.Context(), r.p)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got := read(); !equality.Semantic.DeepEqual(got.Workers, status.Workers) {
		t.Errorf("%d workers were read, want %d", len(got.Workers), len(status.Workers))
	}

	status.Workers[7].Phase, status.Workers[7].Since = v1alpha1.WorkerPhase(pool.Draining), metav1.Unix(1e6, 0)
	if err := r.k.writeReports(t.Context(), r.p, status, n); err != nil || len(f.changes) != 1 {
		t.Errorf("%d reports were written for one worker: %v", len(f.changes), err)
	}
	keep()

	// A pool that becomes smaller leaves nothing behind.
	status.Workers = status.Workers[:300]
	if err := r.k.writeReports(t.Context(), r.p, status, 2); err != nil {
		t.Error(err)
	}
	keep()
	if got := read(); !equality.Semantic.DeepEqual(got.Workers, status.Workers) {
		t.Errorf("%d workers were read, want %d", len(got.Workers), len(status.Workers))
	}
}

// TestForeignReport checks that a ConfigMap of somebody else is neither written nor believed.
func TestForeignReport(t *testing.T) {
	foreign := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "yarn", Name: "night-report-0"},
		Data:       map[string]string{v1alpha1.PoolReportKey: `[{"name": "night-0", "attempts": 9}]`},
	}
	r, f := apiRound(t, map[string]any{"/namespaces/yarn/configmaps/night-report-0": foreign})
	r.p.Status.Reports = 1
	if s, err := r.k.readReports(t.Context(), r.p); err != nil || len(s.Workers) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	err := r.k.writeReports(t.Context(), r.p, largeStatus(30), 1)
	const words = "night-report-0 exists, and is not of the pool"
	if err == nil || !strings.Contains(err.Error(), words) || len(f.changes) != 0 {
		t.Errorf("%v; %v", err, f.changes)
	}
}

// TestPhases checks that the schema has the phases of both decisions, and no other.
func TestPhases(t *testing.T) {
	want := map[string]bool{}
	for _, rule := range []string{"pool", "pool/crew"} {
		code, err := os.ReadFile("../../decide/cluster/" + rule + "/step.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\bPhase += "(\w+)"`).FindAllStringSubmatch(string(code), -1) {
			want[m[1]] = true
		}
	}
	code, err := os.ReadFile("../../../api/v1alpha1/workerpoolstatus.go")
	if err != nil {
		t.Fatal(err)
	}
	enum := regexp.MustCompile(`Enum=(\S+)\ntype WorkerPhase`).FindSubmatch(code)
	if len(enum) != 2 || len(want) < 10 {
		t.Fatalf("%d phases; the enumeration: %q", len(want), enum)
	}
	has := strings.Split(string(enum[1]), ";")
	if slices.Sort(has); !slices.Equal(has, sortedKeys(want)) {
		t.Errorf("the schema has %q, the decisions %q", has, sortedKeys(want))
	}
}
