package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// cpuMetrics serves the metrics API: every pod of a namespace used 300 milli-cores. It ends with the test.
func cpuMetrics(t *testing.T, namespace string) {
	t.Helper()
	const group = "/apis/metrics.k8s.io/v1beta1"
	answer := func(w http.ResponseWriter, content any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(content)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+group, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
			"resources": []any{}})
	})
	mux.HandleFunc("GET "+group+"/namespaces/"+namespace+"/pods", func(w http.ResponseWriter, _ *http.Request) {
		var items []any
		for _, p := range object[corev1.PodList](t, "pods", "-n", namespace).Items {
			items = append(items, map[string]any{
				"metadata":  map[string]any{"name": p.Name, "namespace": namespace, "labels": p.Labels},
				"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "30s",
				"containers": []any{map[string]any{"name": "c", "usage": map[string]any{"cpu": "300m", "memory": "64Mi"}}},
			})
		}
		answer(w, map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items})
	})
	listener, err := net.Listen("tcp", bed.HostAddress()+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	server.StartTLS()
	t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: metrics, namespace: %[1]s}
spec: {ports: [{port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-beside, namespace: %[1]s, labels: {kubernetes.io/service-name: metrics}}
addressType: IPv4
ports: [{name: "", port: %[3]s, protocol: TCP}]
endpoints: [{addresses: [%[2]s]}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics, namespace: %[1]s}
`, namespace, host, port))
}

// TestFrameworksHPA scales a Deployment of batch pods with the controller manager's autoscaler. A target of
// utilization does nothing, because the pods request no CPU. That of docs/frameworks.md, without a request, scales.
func TestFrameworksHPA(t *testing.T) {
	m := newManaged(t)
	m.manager()
	m.answering()
	const namespace = "research" // that of the page
	makeNamespace(t, namespace, "")
	apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: crawl, namespace: research}
spec:
  replicas: 2
  selector: {matchLabels: {app: crawl}}
  template:
    metadata: {labels: {app: crawl, waterline.io/qos: BE}}
    spec: {schedulerName: none, containers: [{name: c, image: none, resources: {requests: {cpu: 500m, memory: 64Mi}}}]}
`)
	cpuMetrics(t, namespace)
	pods := func() []corev1.Pod { return object[corev1.PodList](t, "pods", "-n", namespace).Items }
	eventually(t, "two pods", func() (bool, string) { return len(pods()) == 2, fmt.Sprint(len(pods())) })
	hourAgo := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, p := range pods() { // there is no kubelet that runs them
		if is := requestsOf(&p); !strings.HasPrefix(is, "c(batch-cpu=500 ") {
			t.Errorf("a pod requests %s", is)
		}
		m.patch("/api/v1/namespaces/"+namespace+"/pods/"+p.Name+"/status", fmt.Sprintf(`{"status":{"phase":"Running",`+
			`"startTime":%[1]q,"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%[1]q}]}}`, hourAgo))
	}
	scales := docBlock(t, "yaml", "averageValue: 100m")
	apply(t, strings.Replace(scales, "{type: AverageValue, averageValue: 100m}",
		"{type: Utilization, averageUtilization: 50}", 1))
	eventually(t, "a target of utilization fails", func() (bool, string) {
		status := object[autoscalingv2.HorizontalPodAutoscaler](t, "hpa", "crawl", "-n", namespace).Status
		for _, c := range status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Reason == "FailedGetResourceMetric" {
				return c.Status == "False" && strings.Contains(c.Message, "missing request for cpu in container c"), c.Message
			}
		}
		return false, fmt.Sprintf("%+v", status)
	})
	replicas := func() int32 {
		return *object[appsv1.Deployment](t, "deployment", "crawl", "-n", namespace).Spec.Replicas
	}
	if n := replicas(); n != 2 {
		t.Errorf("there are %d replicas, want 2", n)
	}
	doctor := func(line string) {
		t.Helper()
		said, _ := program("waterline", "doctor", "cluster", "--kubeconfig", bed.Kubeconfig())
		if !strings.Contains(said, line) {
			t.Errorf("the doctor does not say %q but:\n%s", line, said)
		}
	}
	doctor("BAD   HorizontalPodAutoscaler research/crawl scales Deployment crawl, ")
	apply(t, scales)
	doctor("note  HorizontalPodAutoscaler research/crawl scales Deployment crawl, ")
	eventually(t, "a target without a request scales", func() (bool, string) {
		n := replicas()
		return n == 4, fmt.Sprintf("%d replicas", n)
	})
}
