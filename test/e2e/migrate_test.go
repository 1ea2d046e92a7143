package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
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
	everywhere, _ := migrated(t, "docs/migrate-koordinator.md")

	m := newManaged(t, "--reuse-values") // with the page's koordinatorLabels
	m.manager()
	m.answering()
	if got := convertedPolicies(t, "koordinator"); got != "koordinator=70%,true;koordinator-big=80%,true;" {
		t.Errorf("the canary's policies are %q", got)
	}
	m.namespace("jobs", "", "")
	const theirs, ours = "koordinator.sh/qosClass: BE", "waterline.io/qos: BE"
	if got := m.requests("jobs", theirs); got != "c(cpu=1)" {
		t.Errorf("beside Koordinator, its pod requests %s", got)
	}
	if got := m.requests("jobs", ours); got != "c(batch-cpu=1000)" {
		t.Errorf("beside Koordinator, our pod requests %s", got)
	}

	// All nodes: the policies replace those of the canary, and pods are batch by either label.
	apply(t, everywhere)
	if got := convertedPolicies(t, "koordinator"); got != "koordinator=70%,;koordinator-big=80%,;" {
		t.Errorf("the policies are %q", got)
	}
	m.upgrade("manager.webhook.koordinatorLabels=true")
	m.asks("jobs", theirs, "c(batch-cpu=1000)")

	// The way back.
	m.upgrade("manager.webhook.koordinatorLabels=false")
	m.asks("jobs", theirs, "c(cpu=1)")
}

// craneKinds are definitions of Crane's kinds that accept any object.
const craneKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: KINDs.ensurance.crane.io}
spec:
  group: ensurance.crane.io
  scope: Cluster
  names: {kind: NAME, plural: KINDs}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestAPIMigrateFromCrane follows docs/migrate-crane.md as far as an API server shows it. The policies are made of the
// objects in the cluster. Beside Crane, pods that its PodQOS selects stay as they are; later they become batch where
// their namespace is labelled, and on the way back none does.
func TestAPIMigrateFromCrane(t *testing.T) {
	for _, name := range []string{"NodeQOS", "PodQOS", "AvoidanceAction"} {
		apply(t, strings.NewReplacer("KIND", strings.ToLower(name), "NAME", name).Replace(craneKinds))
	}
	makeNamespace(t, "crane-system", "")
	const objects = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: web}
spec:
  selector: {matchLabels: {pool: web}}
  rules:
    - {name: cpu, actionName: slow, metricRule: {name: cpu_total_utilization, value: 75}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: slow}
spec: {throttle: {cpuThrottle: {minCPURatio: 20, stepCPURatio: 15}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: offline}
spec: {labelSelector: {matchLabels: {offline: "true"}}, allowedActions: [eviction, throttle]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: crane-agent, namespace: crane-system}
spec:
  selector: {matchLabels: {app: crane-agent}}
  template:
    metadata: {labels: {app: crane-agent}}
    spec: {nodeSelector: {nowhere: "true"}, containers: [{name: c, image: none, command: [/crane-agent, --node-resource-reserved=cpu=30%]}]}
`
	eventually(t, "the API server serves Crane's kinds", func() (bool, string) {
		out, err := tryApply(objects)
		return err == nil, out
	})
	apply(t, objects) // and deletes them
	everywhere, _ := migrated(t, "docs/migrate-crane.md")

	m := newManaged(t)
	m.manager()
	m.answering()
	if got := convertedPolicies(t, "crane"); got != "crane=70%,true;crane-web=70%,true;" {
		t.Errorf("the canary's policies are %q", got)
	}
	m.namespace("jobs", "", "")
	const theirs, ours = `offline: "true"`, "waterline.io/qos: BE"
	if got := m.requests("jobs", theirs); got != "c(cpu=1)" {
		t.Errorf("beside Crane, its pod requests %s", got)
	}
	if got := m.requests("jobs", ours); got != "c(batch-cpu=1000)" {
		t.Errorf("beside Crane, our pod requests %s", got)
	}

	// All nodes: the policies replace those of the canary, and their rules count in labelled namespaces.
	apply(t, strings.ReplaceAll(everywhere, "mode: Observe", "mode: Enforce"))
	if got := convertedPolicies(t, "crane"); got != "crane=70%,;crane-web=70%,;" {
		t.Errorf("the policies are %q", got)
	}
	if got := m.requests("jobs", theirs); got != "c(cpu=1)" {
		t.Errorf("in a namespace without the label, a pod of the PodQOS requests %s", got)
	}
	kubectl(t, "label", "namespace", "jobs", "waterline.io/colocation=enabled")
	m.asks("jobs", theirs, "c(batch-cpu=1000)")

	// The way back.
	apply(t, strings.ReplaceAll(everywhere, "mode: Observe", "mode: Disabled"))
	m.asks("jobs", theirs, "c(cpu=1)")
}

// TestAPIMigrateFromCPUShareSyncer follows docs/migrate-cpu-share-syncer.md as far as an API server shows it. The
// policy is made of the daemon in the cluster, and selects its nodes: at first those of the canary, then all.
func TestAPIMigrateFromCPUShareSyncer(t *testing.T) {
	apply(t, `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cpu-share-syncer, namespace: kube-system}
spec:
  selector: {matchLabels: {app: cpu-share-syncer}}
  template:
    metadata: {labels: {app: cpu-share-syncer}}
    spec: {nodeSelector: {pool: video}, containers: [{name: c, image: none, args: [--interval=10s]}]}
`)
	makeNamespace(t, "video", "")
	apply(t, `{apiVersion: v1, kind: Pod, metadata: {name: encode, namespace: video, annotations: {iqiyi.com/cpu-share: "10240"}}, `+
		`spec: {schedulerName: none, containers: [{name: c, image: none}]}}`)
	everywhere, canary := migrated(t, "docs/migrate-cpu-share-syncer.md")
	if !strings.Contains(everywhere, "is 10240.") {
		t.Errorf("the highest weight is not named:\n%s", everywhere)
	}

	m := newManaged(t)
	m.node("m0", "", `pool: video, waterline-canary: "true"`)
	m.node("m1", "", "pool: video")
	m.node("m2", "", "pool: web")
	m.manager()
	selects := func(mode string, want int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("the policy selects %d nodes", want), func() (bool, string) {
			p := object[v1alpha1.ColocationPolicy](t, "colocationpolicy", "cpu-share-syncer")
			return string(p.Spec.Mode) == mode && p.Status.Nodes.Selected == want,
				fmt.Sprintf("%s %+v", p.Spec.Mode, p.Status.Nodes)
		})
	}
	selects("Observe", 1)
	apply(t, strings.ReplaceAll(everywhere, "mode: Observe", "mode: Enforce"))
	selects("Enforce", 2)

	// The way back.
	apply(t, strings.ReplaceAll(canary, "mode: Observe", "mode: Disabled"))
	selects("Disabled", 1)
}

// migrated runs the commands of a page that convert the configuration in the cluster, choose the nodes of the canary
// and install Waterline there. It returns the policies for all nodes, and those for the canary, which are applied.
func migrated(t *testing.T, file string) (everywhere, canary string) {
	t.Helper()
	removeRelease(t)
	t.Cleanup(func() {
		kubectl(t, "delete", "colocationpolicies", "--all")
		removeRelease(t)
	})
	for _, name := range []string{"worker-1", "worker-2"} {
		apply(t, `{apiVersion: v1, kind: Node, metadata: {name: `+name+`}}`)
	}
	p := &page{t: t}
	p.add(file, "cat policies.yaml", "cat canary.yaml")
	out := p.run()
	if len(out) < 7 { // of two blocks and the files after each, and an empty end
		t.Fatalf("%s has other commands than the test expects: %q", file, out)
	}
	installed := kubectl(t, "get", "daemonsets", "-n", "waterline-system", "-o",
		"jsonpath={range .items[*]}{.metadata.name} {.spec.template.spec.nodeSelector.waterline-canary}{end}")
	if installed != "waterline-agent true" {
		t.Errorf("%s installs the agents %q", file, installed)
	}
	if policy := kubectl(t, "get", "colocationpolicy", "default", "--ignore-not-found"); policy != "" {
		t.Errorf("%s installs a policy for all nodes: %s", file, policy)
	}
	return out[1], out[2]
}

// convertedPolicies returns the policies that were converted, with their waterlines and the canary's label.
func convertedPolicies(t *testing.T, prefix string) string {
	t.Helper()
	all := kubectl(t, "get", "colocationpolicies", "-o",
		"jsonpath={range .items[*]}{.metadata.name}={.spec.cpu.waterline},"+
			"{.spec.nodeSelector.matchLabels.waterline-canary};{end}")
	var kept strings.Builder
	for policy := range strings.SplitSeq(all, ";") {
		if strings.HasPrefix(policy, prefix) {
			kept.WriteString(policy + ";")
		}
	}
	return kept.String()
}

// requests returns what a pod with a label requests when it is created.
func (m *managed) requests(namespace, label string) string {
	m.t.Helper()
	pod, out := m.try(namespace, `metadata: {generateName: p-, labels: {`+label+`}}, spec: {containers: [{name: c, `+
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
