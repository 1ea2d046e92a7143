package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
)

const workerPod = `{metadata: {name: night-0, namespace: yarn, labels: {waterline.io/pool: night}, annotations: {
waterline.io/pool-allowance: '{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}',
waterline.io/pool-marks: '{"until":"2026-11-25T09:00:00Z","into":{"MemoryMiB":4096,"VCores":4}}'}},
spec: {nodeName: node-1, initContainers: [{name: guard}]}, status: {phase: Running}}`

// TestPrintWorker shows what explain worker says of a worker.
func TestPrintWorker(t *testing.T) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(workerPod), pod); err != nil {
		t.Fatal(err)
	}
	e := workerAnswer{Name: pod.Name, Namespace: pod.Namespace}
	if err := e.readPod(pod); err != nil || !e.guarded {
		t.Fatalf("guarded %v, %v", e.guarded, err)
	}
	e.readState(&v1alpha1.WorkerPool{
		ObjectMeta: metav1.ObjectMeta{Name: "night"}, Spec: v1alpha1.WorkerPoolSpec{YARN: &v1alpha1.YARNSpec{}},
		Status: v1alpha1.WorkerPoolStatus{Workers: []v1alpha1.WorkerStatus{{
			Name: "night-0", Phase: "Shrinking", Reason: "LessSlack",
			Since: metav1.Date(2026, 11, 25, 8, 59, 0, 0, time.UTC),
		}}},
	})
	log, err := os.ReadFile("testdata/guard.log")
	if err != nil {
		t.Fatal(err)
	}
	if e.Records, err = readRecords(bytes.NewReader(log)); err != nil || len(e.Records) != 8 {
		t.Fatalf("%d records, %v", len(e.Records), err)
	}
	var out strings.Builder
	if err := e.print(&out); err != nil {
		t.Fatal(err)
	}
	const want = `worker yarn/night-0 of pool night on node node-1: Running
Shrinking since 2026-11-25 08:59:00Z: LessSlack
its containers may use {"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}
it shrinks to 4096MiB,4vcores; the ResourceManager kills what does not fit at 2026-11-25 09:00:00Z

container_1_0001_01_000005 of application_1_0001, user alice
  2026-11-25 08:59:01Z  SIGPWR to 1 processes: ExecutorDecommissioned over=1.00GiB allowed=4.00GiB left=59s

container_1_0001_01_000004 of application_1_0001, user alice
  2026-11-25 09:00:10Z  SIGTERM to 2 processes: DeadlineMissed over=1.00GiB allowed=4.00GiB left=-10s
  2026-11-25 09:00:20Z  SIGKILL to 2 processes: TermIgnored after=10s
  2026-11-25 09:00:21Z  left

container_1_0002_01_000001 of application_1_0002, its master, user bob
  2026-11-25 09:00:24Z  SIGTERM failed: not permitted

container_1_0003_01_000002 of application_1_0003, user carol
  2026-11-25 09:00:02Z  left, ended by the ResourceManager, while containers might use 4096 MiB and 4 vcores from ` +
		`2026-11-25 09:00:00Z on: Container killed by the ResourceManager.

container_1_0004_01_000002 of application_1_0004, user dave
  2026-11-25 09:00:30Z  SIGTERM by way of the ResourceManager: DeadlineMissed over=1.00GiB allowed=4.00GiB left=-30s
  2026-11-25 09:00:31Z  the ResourceManager refused: status 403
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	pod.Labels = nil
	if err := e.readPod(pod); err == nil {
		t.Error("a pod of no pool was explained")
	}
}

// TestExplainGoneWorker checks what is said of a worker whose pod is gone and that no pool has any more, by what the
// manager kept. A ConfigMap that is not the pool's does not count, and one that may not be read is said.
func TestExplainGoneWorker(t *testing.T) {
	part := guardlog.GonePart("night", "night-0")
	content, err := guardlog.AddGone("", []guardlog.Gone{{
		Worker: "night-0", Pod: "u1", Node: "node-1", At: time.Date(2026, 11, 25, 9, 1, 0, 0, time.UTC), Phase: "Draining",
		Reason: "WindowClosed", Containers: guardlog.ReadMessage([]byte(strings.Join([]string{
			`{"at":"2026-11-25T09:00:40Z","container":"container_1_0002_01_000001","user":"bob","master":true,` +
				`"left":true,"withWorker":true}`,
			`{"at":"2026-11-25T09:00:25Z","container":"container_1_0001_01_000005","user":"alice",` +
				`"tried":[{"at":"2026-11-25T09:00:25Z","signal":"TERM","reason":"DeadlineMissed"}]}`,
			`{"at":"2026-11-25T09:00:21Z","container":"container_1_0001_01_000004","user":"alice","left":true,` +
				`"tried":[{"at":"2026-11-25T09:00:10Z","signal":"TERM","reason":"DeadlineMissed"},` +
				`{"at":"2026-11-25T09:00:20Z","signal":"KILL","reason":"TermIgnored"}]}`,
			`{"at":"2026-11-25T09:00:02Z","container":"container_1_0003_01_000002","user":"carol","left":true,` +
				`"exit":-106,"why":"Container killed by the ResourceManager."}`,
		}, "\n"))),
	}, {Worker: "night-7", Pod: "u7", Containers: nil}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]string{v1alpha1.PoolGoneKey: content})
	if err != nil {
		t.Fatal(err)
	}
	owner, forbidden := "p1", false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/waterline.io/v1alpha1/namespaces/yarn/workerpools":
			_, _ = io.WriteString(w, `{"kind":"WorkerPoolList","apiVersion":"waterline.io/v1alpha1","items":[
				{"metadata":{"name":"night","namespace":"yarn","uid":"p1"},"spec":{"yarn":{}}}]}`)
		case "/api/v1/namespaces/yarn/configmaps/" + part:
			if forbidden {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			fmt.Fprintf(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"yarn","ownerReferences":[
				{"apiVersion":"waterline.io/v1alpha1","kind":"WorkerPool","name":"night","uid":%q,"controller":true}]},"data":%s}`,
				part, owner, data)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	a, err := connectTo(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	found, err := explainWorker(t.Context(), a, "yarn", "night-0")
	if err != nil {
		t.Fatal(err)
	}
	goldenText(t, "gone-worker.txt", found)
	owner = "another"
	if _, err := explainWorker(t.Context(), a, "yarn", "night-0"); err == nil {
		t.Errorf("by a ConfigMap of another pool: %v", err)
	}
	forbidden = true
	const words = "takes the verb get on configmaps"
	if _, err := explainWorker(t.Context(), a, "yarn", "night-0"); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("without the right: %v", err)
	}
}
