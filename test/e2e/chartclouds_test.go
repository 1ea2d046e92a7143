package e2e_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// rendered returns the chart's documents of a kind, with values.
func rendered(t *testing.T, kind string, values ...string) []string {
	t.Helper()
	all := helm(t, append([]string{
		"template", "waterline", "../../deploy/chart", "--namespace", "clouds", "--kube-version", "v1.36.3",
	}, values...)...)
	var found []string
	for document := range strings.SplitSeq(all, "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") {
			found = append(found, document)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the chart has no %s with %v", kind, values)
	}
	return found
}

// podSpec reads the pods of a workload.
func podSpec(t *testing.T, document string) corev1.PodSpec {
	t.Helper()
	var workload struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
		t.Fatal(err)
	}
	return workload.Spec.Template.Spec
}

// TestAPIChartCanary checks that the policy of the canaries lacks what counts for the whole cluster.
func TestAPIChartCanary(t *testing.T) {
	policies := map[string]v1alpha1.ColocationPolicySpec{}
	for _, document := range rendered(t, "ColocationPolicy", "--set", "profile=sell,policy.rollout.nodes=10%",
		"--set-json", `policy.batchPods=[{"selector":{}}]`,
		"--set-json", `policy.podDefaults=[{"selector":{},"cpuShare":2048}]`) {
		var p v1alpha1.ColocationPolicy
		if err := yaml.UnmarshalStrict([]byte(document), &p); err != nil {
			t.Fatal(err)
		}
		policies[p.Name] = p.Spec
	}
	canary, all := policies["canary"], policies["default"]
	if all.Mode != "Observe" || all.Rollout == nil || len(all.BatchPods) != 1 {
		t.Errorf("the default policy is %+v", all)
	}
	if canary.Mode != "Enforce" || canary.Rollout != nil || len(canary.BatchPods) != 0 || len(canary.PodDefaults) != 1 {
		t.Errorf("the policy of canaries is %+v", canary)
	}
}

// constraints are SecurityContextConstraints of OpenShift.
type constraints struct {
	metav1.ObjectMeta                                                                                `json:"metadata"`
	AllowPrivilegedContainer, AllowHostPID, AllowHostNetwork, AllowHostIPC, AllowPrivilegeEscalation bool
	AllowHostDirVolumePlugin, AllowHostPorts, ReadOnlyRootFilesystem                                 bool
	RequiredDropCapabilities                                                                         []corev1.Capability
	SeccompProfiles, Volumes, Users                                                                  []string
	RunAsUser                                                                                        struct{ Type string }
}

// openShift returns the chart's SecurityContextConstraints by name.
func openShift(t *testing.T, values ...string) map[string]constraints {
	t.Helper()
	all := map[string]constraints{}
	for _, document := range rendered(t, "SecurityContextConstraints", append(values, "--set", "openshift=true")...) {
		var scc constraints
		if err := yaml.Unmarshal([]byte(document), &scc); err != nil {
			t.Fatal(err)
		}
		all[scc.Name] = scc
	}
	return all
}

// covers reports whether constraints allow the settings of a pod's first container, and nothing that the pod lacks.
// They may allow more kinds of volumes.
func (s *constraints) covers(pod corev1.PodSpec) bool {
	c := pod.Containers[0].SecurityContext
	profile := c.SeccompProfile
	if profile == nil {
		profile = pod.SecurityContext.SeccompProfile
	}
	return s.AllowPrivilegedContainer == *c.Privileged && s.AllowPrivilegeEscalation == *c.AllowPrivilegeEscalation &&
		s.ReadOnlyRootFilesystem == *c.ReadOnlyRootFilesystem && s.AllowHostPID == pod.HostPID &&
		s.AllowHostNetwork == pod.HostNetwork && s.AllowHostPorts == pod.HostNetwork && s.AllowHostIPC == pod.HostIPC &&
		slices.Equal(s.RequiredDropCapabilities, c.Capabilities.Drop) &&
		slices.Equal(s.SeccompProfiles, []string{"runtime/default"}) &&
		profile.Type == corev1.SeccompProfileTypeRuntimeDefault &&
		slices.Equal(s.Users, []string{"system:serviceaccount:clouds:" + pod.ServiceAccountName})
}

// TestAPIChartOpenShift checks that the SecurityContextConstraints allow what the agent's pod has, and nothing that it
// lacks. The test bed has no OpenShift.
func TestAPIChartOpenShift(t *testing.T) {
	all := openShift(t)
	scc := all["waterline-agent"]
	if len(all) != 1 {
		t.Errorf("the chart has the constraints %v", all)
	}
	pod := podSpec(t, rendered(t, "DaemonSet")[0])
	volumes := []string{"projected"} // the token, which the API server adds
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			t.Errorf("the volume %s is of another kind", v.Name)
			continue
		}
		volumes = append(volumes, "hostPath")
	}
	slices.Sort(volumes)
	slices.Sort(scc.Volumes)
	if !slices.Equal(slices.Compact(volumes), scc.Volumes) || !scc.AllowHostDirVolumePlugin {
		t.Errorf("the agent has the volumes %v, and %v are allowed", volumes, scc.Volumes)
	}
	if !scc.covers(pod) {
		t.Errorf("the agent's pod is\n%+v\nand the constraints are\n%+v", pod, scc)
	}
}

// TestAPIChartOpenShiftHostNetwork checks that a manager in the host's network has constraints that admit its user,
// and that the other pods keep nonroot-v2. OpenShift's hostnetwork-v2 admits only users of the namespace's range.
func TestAPIChartOpenShiftHostNetwork(t *testing.T) {
	values := []string{"--set", "manager.hostNetwork=true"}
	scc, has := openShift(t, values...)["waterline-manager"]
	pod := podSpec(t, rendered(t, "Deployment", values...)[0])
	if !has || !scc.covers(pod) || scc.AllowHostDirVolumePlugin || slices.Contains(scc.Volumes, "hostPath") {
		t.Errorf("the manager's pod is\n%+v\nand the constraints are\n%+v", pod, scc)
	}
	if user := pod.SecurityContext.RunAsUser; user == nil || *user == 0 || scc.RunAsUser.Type != "MustRunAsNonRoot" {
		t.Errorf("the manager's user is %v, and the constraints say %q", user, scc.RunAsUser.Type)
	}
	for _, document := range rendered(t, "Role", append(values, "--set", "openshift=true")...) {
		var role rbacv1.Role
		if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Name == "waterline-scc" && !slices.Equal(role.Rules[0].ResourceNames, []string{"nonroot-v2"}) {
			t.Errorf("the role allows %v", role.Rules[0].ResourceNames)
		}
	}
}

// TestAPIChartPlaces checks where the chart's pods run: agents on no virtual node, and the manager in the network of
// the host, or beside what a value says.
func TestAPIChartPlaces(t *testing.T) {
	agent := podSpec(t, rendered(t, "DaemonSet")[0])
	for label, want := range map[string]bool{"": true, "type=virtual-kubelet": false,
		"eks.amazonaws.com/compute-type=fargate": false, "node.kubernetes.io/instance-type=eklet": false,
		"node.kubernetes.io/instance-type=S5.LARGE8": true, "type=web": true} {
		node := corev1.Node{}
		node.Labels = map[string]string{"kubernetes.io/os": "linux"}
		if name, value, ok := strings.Cut(label, "="); ok {
			node.Labels[name] = value
		}
		pod := corev1.Pod{Spec: agent}
		fits, err := nodeaffinity.GetRequiredNodeAffinity(&pod).Match(&node)
		if err != nil || fits != want {
			t.Errorf("an agent on a node labelled %q: %v, %v", label, fits, err)
		}
	}
	manager := func(values ...string) corev1.PodSpec { return podSpec(t, rendered(t, "Deployment", values...)[0]) }
	if p := manager(); p.HostNetwork || p.Affinity.PodAntiAffinity == nil {
		t.Errorf("by default the manager has host network %v and the affinity %v", p.HostNetwork, p.Affinity)
	}
	for affinity, want := range map[string]bool{`{}`: true, `{"nodeAffinity":{}}`: false} {
		for _, document := range rendered(t, "Deployment", "--set", "scheduler.enabled=true", "--set-json",
			"scheduler.affinity="+affinity) {
			p := podSpec(t, document)
			if p.Containers[0].Name == "scheduler" && (p.Affinity.PodAntiAffinity != nil) != want {
				t.Errorf("with the value %s, the scheduler has the affinity %v", affinity, p.Affinity)
			}
		}
	}
	p := manager("--set", "manager.hostNetwork=true", "--set-json", `manager.affinity={"nodeAffinity":{}}`,
		"--set", "manager.evictions.all=7,manager.evictions.perOwner=2,manager.evictions.period=30m")
	if !p.HostNetwork || p.DNSPolicy != corev1.DNSClusterFirstWithHostNet || p.Affinity.PodAntiAffinity != nil {
		t.Errorf("the manager has host network %v, DNS policy %s and the affinity %v", p.HostNetwork, p.DNSPolicy, p.Affinity)
	}
	for _, arg := range []string{"--evictions=7", "--evictions-per-owner=2", "--eviction-period=30m"} {
		if !slices.Contains(p.Containers[0].Args, arg) {
			t.Errorf("the manager lacks %s: %v", arg, p.Containers[0].Args)
		}
	}
	// Of two managers in the network of one host, the second finds its ports taken. So an upgrade ends one first.
	var d appsv1.Deployment
	document := rendered(t, "Deployment", "--set", "manager.hostNetwork=true")[0]
	if err := yaml.UnmarshalStrict([]byte(document), &d); err != nil {
		t.Fatal(err)
	}
	if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxSurge.IntValue() != 0 || r.MaxUnavailable.IntValue() != 1 {
		t.Errorf("in the network of the host, the manager is replaced by %+v", r)
	}
}

// TestAPIChartPodMonitor checks that the PodMonitor selects the pods of agents and manager, by a port that they have.
func TestAPIChartPodMonitor(t *testing.T) {
	var monitor struct {
		Spec struct {
			Selector            metav1.LabelSelector
			PodMetricsEndpoints []struct{ Port, Interval string }
		}
	}
	document := rendered(t, "PodMonitor", "--set", "monitoring.podMonitor=true,monitoring.interval=1m")[0]
	if err := yaml.Unmarshal([]byte(document), &monitor); err != nil {
		t.Fatal(err)
	}
	if ends := monitor.Spec.PodMetricsEndpoints; len(ends) != 1 || ends[0].Interval != "1m" {
		t.Fatalf("the endpoints are %+v", ends)
	}
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	selected := 0
	for _, kind := range []string{"DaemonSet", "Deployment"} {
		for _, document := range rendered(t, kind, "--set", "scheduler.enabled=true") {
			var workload struct {
				Spec struct{ Template corev1.PodTemplateSpec }
			}
			if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
				t.Fatal(err)
			}
			pod := &workload.Spec.Template
			if !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			selected++
			if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == monitor.Spec.PodMetricsEndpoints[0].Port
			}) {
				t.Errorf("a %s has no port %s: %v", kind, monitor.Spec.PodMetricsEndpoints[0].Port, pod.Spec.Containers[0].Ports)
			}
		}
	}
	if selected != 2 {
		t.Errorf("%d workloads are selected, want the agents and the manager", selected)
	}
}

// TestAPIChartVariants checks that each node gets the agent of one DaemonSet, whatever its labels are, and that a
// variant changes the values that it names, and no others.
func TestAPIChartVariants(t *testing.T) {
	const variants = `agent.variants=[
		{"name": "v1", "nodeSelector": {"cgroup": "v1"}, "paths": {"kubepods": "kubepods", "cgroupVersion": 1, "proc": ""},
			"nri": {"enabled": false}, "extraArgs": ["--one"], "kubeletInsecureTLS": true},
		{"name": "crio", "nodeSelector": {"runtime": "crio", "pool": "a"}, "nri": {"socket": "/run/crio/nri.sock"},
			"resources": {"limits": {"memory": "200Mi"}}, "seLinuxType": ""}]`
	values := []string{"--set-json", variants, "--set", "agent.extraArgs={--all},agent.metrics=full"}
	pods := map[string]corev1.PodSpec{}
	selectors := map[string]bool{}
	for _, document := range rendered(t, "DaemonSet", values...) {
		var set struct {
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				Selector metav1.LabelSelector
				Template corev1.PodTemplateSpec
			}
		}
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(set.Spec.Template.Labels)) {
			t.Errorf("%s selects no pod of its own: %v", set.Name, err)
		}
		selectors[selector.String()] = true
		pods[set.Name] = set.Spec.Template.Spec
	}
	if len(pods) != 3 || len(selectors) != 3 {
		t.Fatalf("the DaemonSets are %v, and select %v", pods, selectors)
	}
	for _, c := range []struct{ labels, want string }{
		{"", "waterline-agent"}, {"cgroup=v2", "waterline-agent"}, {"runtime=crio", "waterline-agent"},
		{"pool=a", "waterline-agent"}, {"runtime=crio,pool=b", "waterline-agent"}, {"cgroup=v1", "waterline-agent-v1"},
		{"runtime=crio,pool=a", "waterline-agent-crio"}, {"runtime=crio,pool=a,cgroup=v1", "waterline-agent-v1"},
		{"cgroup=v1,type=virtual-kubelet", ""}, {"type=virtual-kubelet", ""},
	} {
		node := corev1.Node{}
		node.Labels = map[string]string{"kubernetes.io/os": "linux"}
		for label := range strings.SplitSeq(c.labels, ",") {
			if name, value, ok := strings.Cut(label, "="); ok {
				node.Labels[name] = value
			}
		}
		var got []string
		for name, spec := range pods {
			if fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}).Match(&node); err != nil {
				t.Fatal(err)
			} else if fits {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("a node labelled %q has agents of %q, want %q", c.labels, got, c.want)
		}
	}
	has := func(name string) (args string, mounts []string) {
		c := pods[name].Containers[0]
		for _, m := range c.VolumeMounts {
			mounts = append(mounts, m.MountPath)
		}
		return strings.Join(c.Args, " "), mounts
	}
	all, mounts := has("waterline-agent")
	for _, arg := range []string{"--nri-socket=/var/run/nri/nri.sock", "--proc-root=/host/proc", "--all", "--metrics=full"} {
		if !strings.Contains(all, arg) {
			t.Errorf("the agents lack %s: %s", arg, all)
		}
	}
	if strings.Contains(all, "--kubepods") || strings.Contains(all, "tls") || !slices.Contains(mounts, "/host/cgroup") {
		t.Errorf("the agents have the arguments %s and the mounts %v", all, mounts)
	}
	v1, mounts := has("waterline-agent-v1")
	if !strings.Contains(v1, "--kubepods=kubepods") || strings.Contains(v1, "nri") || strings.Contains(v1, "proc-root") ||
		strings.Contains(v1, "--all") || !strings.Contains(v1, "--one") || !strings.Contains(v1, "--kubelet-insecure-tls") ||
		!strings.Contains(v1, "--metrics=full") || !slices.Contains(mounts, "/host/cgroup/cpuset/kubepods") {
		t.Errorf("the agents of v1 have the arguments %s and the mounts %v", v1, mounts)
	}
	crio, mounts := has("waterline-agent-crio")
	container := pods["waterline-agent-crio"].Containers[0]
	if !strings.Contains(crio, "--nri-socket=/run/crio/nri.sock") || !strings.Contains(crio, "--all") ||
		!slices.Contains(mounts, "/run/crio") || container.Resources.Limits.Memory().String() != "200Mi" ||
		container.SecurityContext.SELinuxOptions != nil {
		t.Errorf("the agents of crio have the arguments %s, the mounts %v and %+v", crio, mounts, container)
	}
}
