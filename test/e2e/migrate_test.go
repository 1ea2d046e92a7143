package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestAPIMigrateFromKoordinator follows docs/migrate-koordinator.md as far as an API server shows it. The policies are
// made of the configuration in the cluster, while pods that are labelled for Koordinator stay Koordinator's. Later all
// of them become batch, and on the way back none.
func TestAPIMigrateFromKoordinator(t *testing.T) {
	makeNamespace(t, "koordinator-system", "")
	apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: |
    {"enable": true, "cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 75,
     "nodeConfigs": [
       {"name": "big", "nodeSelector": {"matchLabels": {"size": "big"}}, "cpuReclaimThresholdPercent": 80}]}
  resource-threshold-config: |
    {"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cpuset"}}
`)
	everywhere := converted(t, "koordinator")
	canary := converted(t, "koordinator", "--node-label", "waterline-canary=true")

	m := newManaged(t, "--set", "manager.webhook.koordinatorLabels=false")
	m.manager()
	m.answering()
	apply(t, canary)
	if got := convertedPolicies(t); got != "koordinator=70%,true;koordinator-big=80%,true;" {
		t.Errorf("the canary's policies are %q", got)
	}
	m.namespace("jobs", "", "")
	const theirs, ours = "koordinator.sh/qosClass", "waterline.io/qos"
	if got := m.requests("jobs", theirs); got != "c(cpu=1)" {
		t.Errorf("beside Koordinator, its pod requests %s", got)
	}
	if got := m.requests("jobs", ours); got != "c(batch-cpu=1000)" {
		t.Errorf("beside Koordinator, our pod requests %s", got)
	}

	// All nodes: the policies replace those of the canary, and pods are batch by either label.
	apply(t, everywhere)
	if got := convertedPolicies(t); got != "koordinator=70%,;koordinator-big=80%,;" {
		t.Errorf("the policies are %q", got)
	}
	m.upgrade("manager.webhook.koordinatorLabels=true")
	m.asks("jobs", theirs, "c(batch-cpu=1000)")

	// The way back.
	m.upgrade("manager.webhook.koordinatorLabels=false")
	m.asks("jobs", theirs, "c(cpu=1)")
}

// converted runs waterline convert on the cluster.
func converted(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command(filepath.Join(built, "bin/waterline"), append([]string{"convert"}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG="+bed.Kubeconfig())
	out, err := c.Output()
	if err != nil {
		t.Fatalf("waterline convert: %v: %s", err, out)
	}
	return string(out)
}

// convertedPolicies returns the policies that were converted, with their waterlines and the canary's label.
func convertedPolicies(t *testing.T) string {
	t.Helper()
	all := kubectl(t, "get", "colocationpolicies", "-o",
		"jsonpath={range .items[*]}{.metadata.name}={.spec.cpu.waterline},"+
			"{.spec.nodeSelector.matchLabels.waterline-canary};{end}")
	var kept strings.Builder
	for policy := range strings.SplitSeq(all, ";") {
		if strings.HasPrefix(policy, "koordinator") {
			kept.WriteString(policy + ";")
		}
	}
	return kept.String()
}

// requests returns what a pod with a label of batch requests when it is created.
func (m *managed) requests(namespace, label string) string {
	m.t.Helper()
	pod, out := m.try(namespace, `metadata: {generateName: p-, labels: {`+label+`: BE}}, spec: {containers: [{name: c, `+
		`image: none, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]}`)
	if pod == nil {
		m.t.Fatal(out)
	}
	for _, c := range pod.Spec.Containers {
		delete(c.Resources.Requests, corev1.ResourceMemory)
	}
	return requestsOf(pod)
}

// asks waits until pods with a label are created with some requests: the API server follows webhook configurations.
func (m *managed) asks(namespace, label, want string) {
	m.t.Helper()
	eventually(m.t, "pods labelled "+label+" request "+want, func() (bool, string) {
		time.Sleep(200 * time.Millisecond)
		got := m.requests(namespace, label)
		return got == want, got
	})
}

// upgrade sets a value of the installed chart.
func (m *managed) upgrade(value string) {
	m.t.Helper()
	helm(m.t, "upgrade", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--reuse-values", "--set",
		value)
}
