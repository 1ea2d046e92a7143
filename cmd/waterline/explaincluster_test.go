package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/test/golden"
)

// fleet is a cluster with a node in each state: its objects as the API server would list them.
type fleet struct {
	Nodes      []corev1.Node
	Policies   []v1alpha1.ColocationPolicy
	Reports    []v1alpha1.NodeReport
	Pools      []v1alpha1.WorkerPool
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
}

func readFleet(t *testing.T, file string) *fleet {
	t.Helper()
	document, err := os.ReadFile("testdata/cluster/" + file)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{}
	if err := yaml.UnmarshalStrict(document, f); err != nil {
		t.Fatal(err)
	}
	return f
}

// noon is when the commands look at the fleet.
var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// TestExplainPolicy checks what is explained of each policy of the fleet.
func TestExplainPolicy(t *testing.T) {
	f := readFleet(t, "objects.yaml")
	for _, name := range []string{"web", "night", "broken"} {
		p, err := describePolicy(name, f.Policies, f.Nodes, f.Reports, noon)
		if err != nil {
			t.Fatal(err)
		}
		goldenText(t, "policy-"+name+".txt", p)
	}
	_, err := describePolicy("wbe", f.Policies, f.Nodes, f.Reports, noon)
	if want := `there is no policy "wbe"; there are: web, night, broken`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestExplainPool checks what is explained of a pool.
func TestExplainPool(t *testing.T) {
	p := &readFleet(t, "objects.yaml").Pools[0]
	goldenText(t, "pool.txt", &poolAnswer{
		Name: p.Name, Namespace: p.Namespace, Engine: engineOf(p), Status: p.Status, words: poolMeanings(p),
	})
}

// TestExplainNodeFacts checks what the cluster says of a node whose agent does not answer.
func TestExplainNodeFacts(t *testing.T) {
	f := readFleet(t, "objects.yaml")
	n := &nodeAnswer{Name: "n3", Cluster: &nodeFacts{}, unasked: true}
	n.Cluster.judge(&f.Nodes[2], f.Policies, noon)
	goldenText(t, "node.txt", n)
}

// TestExplainBatch checks what is said of a pod that is batch, and of pods that are not.
func TestExplainBatch(t *testing.T) {
	f := readFleet(t, "objects.yaml")
	namespaces := map[string]*corev1.Namespace{}
	for i := range f.Pods {
		f.Pods[i].UID = types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
	}
	for i := range f.Namespaces {
		namespaces[f.Namespaces[i].Name] = &f.Namespaces[i]
	}
	for name, want := range map[string]string{
		"labelled":  "batch, tier batch, by its label waterline.io/qos",
		"slipped":   "batch, tier batch, by its label waterline.io/qos, but it was admitted without batch requests: ",
		"requests":  "batch, tier mid, because it requests batch resources",
		"online":    "not batch: its label says class LS.",
		"earlier":   "not batch: policy web selects it, but the pod is older than that",
		"plain":     "not batch: it has no label waterline.io/qos: BE, and no batchPods rule of a policy in mode Enforce",
		"elsewhere": "not batch: it has no label waterline.io/qos: BE, and rules of policies do not count in its namespace",
		"nowhere":   "not batch: it has no label waterline.io/qos: BE. Whether a rule of a policy selects it is not known",
		"daemon":    "not batch: it belongs to the node or to the cluster itself",
		"important": "not batch: its priority is 8000 or more",
		"static":    "not batch: it is a static pod",
	} {
		found := false
		for i := range f.Pods {
			pod := &f.Pods[i]
			if found = found || pod.Name == name; pod.Name != name {
				continue
			}
			got := judgeBatch(pod, namespaces[pod.Namespace], f.Policies)
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s", name, got)
			}
			const idle = "Not counted: night (mode Observe), broken (its current version is invalid)"
			if name == "plain" && !strings.HasSuffix(got, idle) {
				t.Errorf("%s: %s", name, got)
			}
		}
		if !found {
			t.Errorf("there is no pod %s", name)
		}
	}
}

// goldenText compares an answer, with its meanings, with a file.
func goldenText(t *testing.T, file string, a answer) {
	t.Helper()
	var out strings.Builder
	if err := a.print(&out); err != nil {
		t.Fatal(err)
	}
	a.meanings().explain(&out, out.String())
	golden.Compare(t, "testdata/cluster/"+file, out.String())
}

// TestExplainGonePod checks what is said of a pod that was evicted, from its events and the report of its node, where
// no agent can be asked any more; and of a pod that nobody knows.
func TestExplainGonePod(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := map[string]string{
			"/api/v1/namespaces/shop/events involvedObject.kind=Pod,involvedObject.name=job-1": `{"kind":"EventList","apiVersion":"v1","items":[
				{"metadata":{"name":"b"},"reason":"Evicted","lastTimestamp":"2026-11-25T11:59:59Z",
				"source":{"component":"waterline-manager"},
				"message":"Node n4 requested the eviction of this batch pod: MemoryExhausted need=1.00GiB"},
				{"metadata":{"name":"a"},"reason":"Started","lastTimestamp":"2026-11-25T11:00:00Z","source":{"component":"kubelet","host":"n4"}, "message":"Started container"}]}`,
			"/api/v1/namespaces/shop/events involvedObject.kind=Pod,involvedObject.name=job-2": `{"kind":"EventList","apiVersion":"v1","items":[]}`,
			"/apis/waterline.io/v1alpha1/nodereports ": `{"kind":"NodeReportList","apiVersion":"waterline.io/v1alpha1","items":[{"metadata":{"name":"n4"},
				"status":{"conditions":[{"type":"Evicted","status":"True","reason":"Evicted","lastTransitionTime":"2026-11-25T11:59:59Z","message":"Pod shop/job-1 (MemoryExhausted) was evicted."}]}}]}`,
			"/api/v1/namespaces/waterline-system/pods status.phase=Running,spec.nodeName=n4": `{"kind":"PodList","apiVersion":"v1","items":[]}`,
		}[r.URL.Path+" "+r.FormValue("fieldSelector")]
		if !found {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	a, err := connectTo(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	e := explainer{cluster: reach{namespace: "shop"}}
	found, err := e.pod(t.Context(), a, "job-1")
	const want = "what the node decided is not known: no agent runs on node n4, in namespace waterline-system"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v", err)
	}
	goldenText(t, "gone-pod.txt", found)
	if found, err := e.pod(t.Context(), a, "job-2"); err == nil || found != nil ||
		!strings.HasPrefix(err.Error(), "there is no pod job-2 in namespace shop, and no event or NodeReport knows one") {
		t.Errorf("%v, %v", found, err)
	}
}
