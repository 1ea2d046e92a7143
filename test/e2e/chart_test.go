package e2e_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
)

// TestAPIChart checks that the chart follows its values, and that the API server accepts all of it.
func TestAPIChart(t *testing.T) {
	helm(t, "lint", "--strict", "../../deploy/chart")
	for _, values := range [][]string{
		nil,
		{"--set", "profile=cpu-share-syncer"},
		{"--set", "profile=weights"},
		{"--set", "profile=cpusets,policy.priority=7"},
		{"--set", "profile=sell,policy.cpu.waterline=50%,policy.rollout.nodes=10%"},
		{"--set", "profile=yarn,manager.pools.namespaces={default}"},
		{"--set-json", `manager.pools={"namespaces":["default"],"allow":{"default":{"addresses":["rm1.example","[::1]:8088"],` +
			`"excludeFiles":["a.xml"]}}}`},
		{"--set-json", `policy={"mode":"Disabled","weight":{"max":16384,` +
			`"namespaces":[{"selector":{"matchLabels":{"team":"video"}},"max":262144}]},` +
			`"podDefaults":[{"selector":{"matchLabels":{"app":"x"}},"cpuShare":10240}]}`,
			"--set", "agent.kubeletInsecureTLS=true,image.tag=v1," +
				"paths.podResources=,paths.state=,paths.proc=,monitoring.dashboard=true"},
		{"--set", "manager.replicas=1,manager.webhook.url=https://192.0.2.1:9443,manager.webhook.timeoutSeconds=5"},
		{"--set-json", `manager.webhook={"clientCA":"-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n",` +
			`"clientNames":["a b","c"]}`, "--set", "manager.pools.excludeVolume.nfs.server=s,manager.pools.excludeVolume.nfs.path=/a"},
		{"--set", "paths.kubepods=kubepods.slice,agent.seLinuxType="},
		{"--set", "paths.kubepods=kubelet/kubepods,paths.cgroupVersion=1,priorityQuota=false"},
		{"--set-json", `agent.variants=[{"name":"a","nodeSelector":{"b":"c"},"paths":{"kubepods":"kubepods.slice"}}]`,
			"--set", "uninstall.ignoreNodes={a.example,b}"},
		{"--set", "manager.webhook.enabled=false"},
		{"--set", "manager.webhook.koordinatorLabels=false"},
		{"--set", "resourceNames=Koordinator"},
		{"--set", "dashboard.enabled=true"},
		{"--set", "dashboard.enabled=true,manager.webhook.enabled=false"},
		{"--set", "manager.enabled=false,priorityClasses=false"},
		{"--set", "manager.hostNetwork=true,agent.kubeletProxy=true,agent.metrics=full,manager.evictions.all=10",
			"--set-json", `agent.affinity={}`, "--set-json", `manager.affinity={"nodeAffinity":{}}`,
			"--set", "agent.priorityClassName=,manager.priorityClassName="},
		{"--set", "scheduler.enabled=true"},
		{"--set", "scheduler.enabled=true,scheduler.replicas=1,scheduler.name=default-scheduler," +
			"scheduler.plugins.BatchFit=0,scheduler.args.WeightSpread.refuse=true"},
	} {
		rendered := helm(t, append([]string{"template", "waterline", "../../deploy/chart", "--namespace", "default",
			"--kube-version", "v1.36.3"}, values...)...)
		c := bed.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		c.Stdin = strings.NewReader(rendered)
		if out, err := c.CombinedOutput(); err != nil || bytes.Contains(out, []byte("Warning")) {
			t.Errorf("%v: %v: %s", values, err, out)
		}
	}
	for _, bad := range [][]string{{"--set", "profile=other"}, {"--set", "policy.mode=on"}, {"--set", "nosuch=1"},
		{"--set", "agent.metrics=some"}, {"--set", "manager.evictions.all=0"},
		{"--set", "agent.syncPeriod=ten"}, {"--set", "paths.podResources=var"},
		{"--set", "paths.kubepods=/kubepods"}, {"--set", "paths.kubepods=pods"}, {"--set", "paths.cgroupVersion=3"},
		{"--set-json", `manager.pools.allow={"yarn":["rm1.example"]}`},
		{"--set-json", `manager.pools.allow={"yarn":{"address":["rm1.example"]}}`},
		{"--set-json", `manager.pools.allow={"yarn":{"addresses":["http://rm1.example"],"excludeFiles":["a/b"]}}`},
		{"--set", "manager.replicas=0"}, {"--set", "manager.webhook.url=http://192.0.2.1"},
		{"--set", "manager.webhook.timeoutSeconds=60"}, {"--set", "manager.webhook.clientCA=/etc/ca.crt"},
		{"--set-json", `manager.webhook.clientNames=["a,b"]`}, {"--set", "scheduler.plugins.Other=1"},
		{"--set", "scheduler.args.Other.refuse=true"}, {"--set", "scheduler.replicas=0"},
		{"--set-json", `agent.variants=[{"name":"a"}]`}, {"--set-json", `agent.variants=[{"name":"a","nodeSelector":{}}]`},
		{"--set-json", `agent.variants=[{"name":"a","nodeSelector":{"b":"c"},"priorityClassName":"d"}]`},
		{"--set-json", `agent.variants=[{"name":"a","nodeSelector":{"b":"c"}},{"name":"a","nodeSelector":{"b":"d"}}]`},
		{"--set", "uninstall.ignoreNodes={a_b}"}, {"--set", "image.registry=https://r.example"}, {"--set", "image.registry=r.example/a:1"}} {
		c := exec.Command(filepath.Join(built, "bin/helm"),
			append([]string{"template", "../../deploy/chart", "--kube-version", "v1.36.3"}, bad...)...)
		if out, err := c.CombinedOutput(); err == nil {
			t.Errorf("%v was accepted: %.200s", bad, out)
		}
	}
}

// TestAPIChartImages checks that the chart takes all images from one registry, with one tag.
func TestAPIChartImages(t *testing.T) {
	images := func(values string) []string {
		rendered := helm(t, "template", "waterline", "../../deploy/chart", "--kube-version", "v1.36.3", "--set",
			"scheduler.enabled=true,manager.pools.namespaces={yarn}"+values)
		var all []string
		named := regexp.MustCompile(`(?m)(?:image: |--guard-image=)"?([^"\s]+)"?$`)
		for _, m := range named.FindAllStringSubmatch(rendered, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	for values, want := range map[string][]string{
		",image.tag=v2": {"waterline/agent:v2", "waterline/guard:v2", "waterline/manager:v2", "waterline/scheduler:v2"},
		",image.tag=v2,image.registry=r.example:5000/mirror/": {"r.example:5000/mirror/waterline/agent:v2",
			"r.example:5000/mirror/waterline/guard:v2", "r.example:5000/mirror/waterline/manager:v2",
			"r.example:5000/mirror/waterline/scheduler:v2"},
		",image.tag=v2,image.registry=r.example,image.repository=a,manager.image.repository=b/m," +
			"scheduler.image.repository=s,manager.pools.guard.image.repository=g": {
			"r.example/a:v2", "r.example/b/m:v2", "r.example/g:v2", "r.example/s:v2",
		},
		",image.tag=v2,image.registry=r.example,image.repository=a@sha256:1," +
			"manager.pools.guard.image.repository=g@sha256:2": {
			"r.example/a@sha256:1", "r.example/g@sha256:2", "r.example/waterline/manager:v2",
			"r.example/waterline/scheduler:v2",
		},
	} {
		if d := cmp.Diff(want, images(values)); d != "" {
			t.Errorf("images with %s (-want +got):\n%s", values, d)
		}
	}
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal([]byte(helm(t, "show", "chart", "../../deploy/chart")), &chart); err != nil {
		t.Fatal(err)
	}
	for _, image := range images("") {
		if !strings.HasSuffix(image, ":"+chart.AppVersion) {
			t.Errorf("the tag of image %s is not the chart's appVersion, %q", image, chart.AppVersion)
		}
	}
}

// TestAPIChartAllow checks that the manager reads what the chart's values let pools reach.
func TestAPIChartAllow(t *testing.T) {
	rendered := helm(t, "template", "waterline", "../../deploy/chart", "--kube-version", "v1.36.3", "--show-only",
		"templates/manager.yaml", "--set-json", `manager.pools={"namespaces":["yarn","other"],"allow":{"yarn":{"addresses":`+
			`["rm1.example:8088","2001:db8::/64"],"excludeFiles":["it's \"mine\".xml"]}}}`)
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			text, found := strings.CutPrefix(arg, "--pools-allow=")
			var entries map[string]reach.Entry
			if err := json.Unmarshal([]byte(text), &entries); !found || err != nil {
				continue
			}
			want := map[string]reach.Entry{"yarn": {
				Addresses: []string{"rm1.example:8088", "2001:db8::/64"}, ExcludeFiles: []string{`it's "mine".xml`},
			}}
			if d := cmp.Diff(want, entries); d != "" {
				t.Errorf("the manager is told (-want +got):\n%s", d)
			}
			return
		}
	}
	t.Errorf("the manager has no such argument:\n%s", rendered)
}

// TestAPIChartMonitoring checks the chart's objects for Prometheus and Grafana: the rules and the dashboard are those
// in their files. The API server has no PrometheusRule with which to check the rules.
func TestAPIChartMonitoring(t *testing.T) {
	rendered := helm(t, "template", "waterline", "../../deploy/chart", "--namespace", "monitored", "--kube-version",
		"v1.36.3", "--show-only", "templates/monitoring.yaml",
		"--set", "monitoring.rules=true,monitoring.dashboard=true,monitoring.labels.release=prometheus")
	var rule struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Spec              any
	}
	var dashboard corev1.ConfigMap
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var err error
		switch {
		case strings.Contains(document, "kind: PrometheusRule"):
			err = yaml.UnmarshalStrict([]byte(document), &rule)
		case strings.Contains(document, "kind: ConfigMap"):
			err = yaml.UnmarshalStrict([]byte(document), &dashboard)
		}
		if err != nil {
			t.Fatalf("%v in:\n%.400s", err, document)
		}
	}
	read := func(path string) []byte {
		content, err := os.ReadFile("../../deploy/chart/" + path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	var rules any
	if err := yaml.UnmarshalStrict(read("rules/waterline.yaml"), &rules); err != nil {
		t.Fatal(err)
	}
	if rule.APIVersion != "monitoring.coreos.com/v1" || rule.Spec == nil {
		t.Errorf("the PrometheusRule is of %q and has the spec %v", rule.APIVersion, rule.Spec)
	}
	if d := cmp.Diff(rules, rule.Spec); d != "" {
		t.Errorf("the PrometheusRule differs from its file (-file +rule):\n%s", d)
	}
	if dashboard.Data["waterline.json"] != string(read("dashboards/waterline.json")) {
		t.Error("the ConfigMap's dashboard differs from the file")
	}
	for kind, labels := range map[string]map[string]string{"rules": rule.Labels, "dashboard": dashboard.Labels} {
		if labels["release"] != "prometheus" || labels["app.kubernetes.io/instance"] != "waterline" || kind == "dashboard" &&
			labels["grafana_dashboard"] != "1" {
			t.Errorf("the %s have the labels %v", kind, labels)
		}
	}
}

// TestAPIPriorityQuota installs the chart where pods of the system's priority classes need a quota in their namespace,
// as on GKE.
func TestAPIPriorityQuota(t *testing.T) {
	makeNamespace(t, "critical", "")
	create := func(class string) (string, error) {
		return withManifest(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: critical}, spec: `+
			`{priorityClassName: `+class+`, containers: [{name: c, image: none}]}}`, "create", "--dry-run=server")
	}
	rendered := func(values ...string) string {
		return helm(t, append([]string{"template", "waterline", "../../deploy/chart", "--namespace", "critical",
			"--kube-version", "v1.36.3"}, values...)...)
	}
	quota := func(values ...string) string {
		for document := range strings.SplitSeq(rendered(values...), "\n---\n") {
			if strings.Contains(document, "kind: ResourceQuota") {
				return document
			}
		}
		return ""
	}
	for _, none := range []string{"priorityQuota=false", "agent.priorityClassName=,manager.priorityClassName=",
		"agent.priorityClassName=,manager.enabled=false"} {
		if q := quota("--set", none); q != "" {
			t.Errorf("with %s there is a quota:\n%s", none, q)
		}
	}
	classes := []string{"system-node-critical", "system-cluster-critical"}
	for _, class := range classes {
		if out, err := create(class); err == nil || !strings.Contains(out, "insufficient quota") {
			t.Errorf("without a quota, a pod of class %s: %v: %s", class, err, out)
		}
	}
	apply(t, quota())
	for _, class := range classes {
		eventually(t, "the quota covers "+class, func() (bool, string) {
			out, err := create(class)
			return err == nil, out
		})
	}
	// The whole chart: the manager's pods exist. No node takes them.
	installChart(t, "--set-json", `manager.nodeSelector={"nowhere":"true"}`)
	t.Cleanup(func() { helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait") })
	eventually(t, "the manager's pods", func() (bool, string) {
		out := kubectl(t, "get", "pods", "-n", "waterline-system", "-o", "name")
		return strings.Count(out, "pod/waterline-manager") == 2, out
	})
}

// TestAPIForeignClass checks that an upgrade leaves a priority class alone that is not of the release.
func TestAPIForeignClass(t *testing.T) {
	installChart(t, "--set", "priorityClasses=false", "--set-json", `manager.nodeSelector={"nowhere":"true"}`)
	t.Cleanup(func() { helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--wait") })
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: waterline-batch}, value: 5000}`)
	c := exec.Command(filepath.Join(built, "bin/helm"), "upgrade", "waterline", "../../deploy/chart", "--namespace",
		"waterline-system", "--reuse-values", "--set", "priorityClasses=true", "--kubeconfig", bed.Kubeconfig())
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "invalid ownership metadata") {
		t.Errorf("the upgrade: %v: %s", err, out)
	}
	if value := kubectl(t, "get", "priorityclass", "waterline-batch", "-o", "jsonpath={.value}"); value != "5000" {
		t.Errorf("the class has the value %s", value)
	}
}

// TestAPIPodSecurity checks which levels of Pod Security admit the chart's pods, and what an installation says in a
// namespace that refuses the agents' pods. By default, the test bed's API server enforces baseline.
func TestAPIPodSecurity(t *testing.T) {
	for _, c := range []struct {
		namespace, level string
		agents           bool
		says             string // by the installation
	}{
		{"unlabelled", "", false, "kubectl label namespace unlabelled pod-security.kubernetes.io/enforce=privileged"},
		{"restricted", "restricted", false, "kubectl label --overwrite namespace restricted pod-security"},
		{"privileged", "privileged", true, ""},
	} {
		t.Run(c.namespace, func(t *testing.T) {
			labels := ""
			if c.level != "" {
				labels = "pod-security.kubernetes.io/enforce: " + c.level
			}
			makeNamespace(t, c.namespace, labels)
			seen := map[string]bool{}
			for kind, pod := range chartPods(t, c.namespace) {
				out, err := withManifest(pod, "create", "--dry-run=server")
				admitted := kind != "DaemonSet" || c.agents
				if (err == nil) != admitted || !admitted && !strings.Contains(out, "violates PodSecurity") {
					t.Errorf("the pod of the %s: %v: %s", kind, err, out)
				}
				seen[kind] = true
			}
			if len(seen) != 3 {
				t.Errorf("the chart has pods of %v, want a DaemonSet, a Deployment and a Job", seen)
			}
			install := exec.Command(filepath.Join(built, "bin/helm"), "install", "waterline", "../../deploy/chart",
				"--namespace", c.namespace, "--dry-run=server", "--kubeconfig", bed.Kubeconfig())
			out, err := install.CombinedOutput()
			if fails := c.level == "restricted"; (err != nil) != fails || !strings.Contains(string(out), c.says) ||
				c.says == "" && strings.Contains(string(out), "kubectl label") {
				t.Errorf("the installation: %v, without %q: %s", err, c.says, out)
			}
		})
	}
}

// chartPods returns a manifest of a pod for each workload of the chart, by the workload's kind. Its ServiceAccount and
// priority class are the default ones, because the chart's do not exist in the namespace.
func chartPods(t *testing.T, namespace string) map[string]string {
	t.Helper()
	pods := map[string]string{}
	for document := range strings.SplitSeq(helm(t, "template", "waterline", "../../deploy/chart", "--namespace", namespace,
		"--kube-version", "v1.36.3"), "\n---\n") {
		var workload struct {
			Kind string
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		err := yaml.Unmarshal([]byte(document), &workload)
		spec := workload.Spec.Template.Spec
		if err != nil || len(spec.Containers) == 0 {
			continue // objects of other kinds need not fit
		}
		pod := corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}, Spec: spec,
		}
		pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName = "", ""
		manifest, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		pods[workload.Kind] = string(manifest)
	}
	return pods
}
