package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestAPIObstacles checks which limits and quotas keep batch pods out of a namespace, that the command finds them, and
// that its advice helps.
func TestAPIObstacles(t *testing.T) {
	m := newManaged(t)
	m.manager()
	m.answering()
	const limits = "{apiVersion: v1, kind: LimitRange, metadata: {name: l, namespace: "
	const quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: "
	const enabled = "waterline.io/colocation: enabled"
	const others = `scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, ` +
		`values: [waterline-batch, waterline-mid, waterline-worker]}]}`
	const batch = `metadata: {generateName: p-, labels: {waterline.io/qos: BE}}, spec: {containers: [{name: c, ` +
		`image: none, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]}`
	cases := []struct {
		namespace, labels, contents string
		refused                     string // error of the API server
		found                       string // output of the command
	}{
		{"o-max", enabled, limits + "o-max}, spec: {limits: [{type: Container, max: {cpu: 4}}]}}",
			"maximum cpu usage per Container is 4", "LimitRange l has max of cpu for each Container"},
		{"o-pod", enabled, limits + "o-pod}, spec: {limits: [{type: Pod, min: {memory: 1Mi}}]}}",
			"minimum memory usage per Pod is 1Mi", "LimitRange l has min of memory for each Pod"},
		{"o-ratio", enabled, limits + "o-ratio}, spec: {limits: [{type: Container, maxLimitRequestRatio: {cpu: 2}}]}}",
			"cpu max limit to request ratio per Container is 2", "has maxLimitRequestRatio of cpu for each Container"},
		{"o-limits", enabled, quota + "o-limits}, spec: {hard: {limits.cpu: 4, requests.memory: 8Gi}}}",
			"must specify limits.cpu", "ResourceQuota q counts limits.cpu, requests.memory"},
		{"o-quiet", "", quota + "o-quiet}, spec: {hard: {requests.cpu: 4}}}", "must specify requests.cpu", ""},
		{"o-scoped", enabled, quota + "o-scoped}, spec: {hard: {requests.cpu: 1}, " + others + "}}", "", ""},
		{"o-none", enabled, quota + "o-none}, spec: {hard: {cpu: 1, memory: 1Gi}, scopes: [NotBestEffort]}}", "", ""},
		{"o-default", enabled, limits + "o-default}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}", "", ""},
	}
	var namespaces, contents string
	for _, c := range cases {
		namespaces += fmt.Sprintf("\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", c.namespace,
			c.labels)
		contents += "\n---\n" + c.contents
	}
	apply(t, namespaces)
	apply(t, contents)
	eventually(t, "accounts for pods", func() (bool, string) {
		n := strings.Count(kubectl(t, "get", "serviceaccounts", "-A", "-o", "name", "--field-selector",
			"metadata.name=default"), "\n")
		return n >= strings.Count(kubectl(t, "get", "namespaces", "-o", "name"), "\n"), fmt.Sprint(n)
	})
	m.counted("o-scoped", "q")
	found, err := program("waterline", "doctor", "cluster", "--kubeconfig", bed.Kubeconfig())
	if err == nil {
		t.Errorf("the command finds nothing: %s", found)
	}
	for _, c := range cases {
		t.Run(c.namespace, func(t *testing.T) {
			pod, message := m.try(c.namespace, batch, "--dry-run=server")
			if (pod == nil) != (c.refused != "") || !strings.Contains(message, c.refused) {
				t.Errorf("the API server's error is %q, want %q", message, c.refused)
			}
			line := ""
			for l := range strings.Lines(found) {
				if strings.HasPrefix(l, "BAD   namespace "+c.namespace+", which opted in: ") {
					line = l
				}
			}
			if (line != "") != (c.found != "") || !strings.Contains(line, c.found) {
				t.Errorf("the command's output is %q, want %q", found, c.found)
			}
		})
	}
	t.Log("a quota that excludes batch pods still counts the others")
	if pod, message := m.try("o-scoped", strings.Replace(batch, "BE", "LS", 1)); pod == nil {
		t.Error(message)
	}
	if pod, message := m.try("o-scoped", strings.Replace(batch, "BE", "LS", 1)); pod != nil ||
		!strings.Contains(message, "exceeded quota: q") {
		t.Errorf("a second online pod: %s", message)
	}
}
