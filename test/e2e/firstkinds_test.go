package e2e_test

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// TestNodeFirstLimits checks that the limits of every kind of batch container are in force at its first instruction,
// also when it starts again, and that the agent limits at once what started without it. A JVM sizes itself by them.
func TestNodeFirstLimits(t *testing.T) {
	n := seller(t)
	n.policy(selling("Enforce", "Static"))
	n.sold(false, "the node has an offer", func(free int64) bool { return free >= 1000 })
	n.sub("Kinds", (*node).testKinds)
	if *on != "vm" { // whose root file system has no Java
		n.sub("Java", (*node).testJava)
	}
	n.sub("AgentAway", (*node).testAgentAway)
}

// logged waits until a container has run and logged something, and returns it. Previous is its last instance. The
// kubelet answers with an excuse while it replaces that one by the next.
func (n *node) logged(pod, container string, previous bool) string {
	n.t.Helper()
	args := []string{"logs", pod, "-c", container}
	if previous {
		args = append(args, "--previous")
	}
	out := ""
	eventually(n.t, container+" of "+pod+" logs something", func() (bool, string) {
		var err error
		out, err = tryKubectl(args...)
		excuse := strings.HasPrefix(out, "unable to retrieve")
		return err == nil && strings.TrimSpace(out) != "" && !excuse, fmt.Sprint(out, err)
	})
	return strings.TrimSpace(out)
}

// testKinds runs a pod with an init container, a sidecar, a container that ends and starts again, one without limits,
// and an ephemeral one.
func (n *node) testKinds() {
	files := strings.Join(n.limitFiles(), ", ")
	container := func(name, command, rest string) string {
		return fmt.Sprintf(`{name: %s, image: "%s", imagePullPolicy: Never, command: [%s]%s}`, name, cluster.BusyboxImage,
			command, rest)
	}
	limits := func(milli, mib int) string {
		return fmt.Sprintf(", resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: %dm, memory: %dMi}}", milli, mib)
	}
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: kinds, labels: {%s: BE}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  initContainers: [%s, %s]
  containers: [%s, %s]
`, v1alpha1.LabelQoS, n.name,
		container("setup", "cat, "+files, limits(300, 96)),
		container("side", `sh, -c, "cat `+strings.ReplaceAll(files, ",", "")+`; exec sleep 1000000"`,
			", restartPolicy: Always"+limits(150, 80)),
		container("again", "cat, "+files, limits(200, 64)),
		container("free", `sh, -c, "cat `+strings.ReplaceAll(files, ",", "")+`; exec sleep 1000000"`, "")))
	eventually(n.t, "a container has started again", func() (bool, string) {
		pod := object[corev1.Pod](n.t, "pod", "kinds")
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == "again" && s.RestartCount > 0 {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", pod.Status)
	})
	for _, c := range []struct {
		name     string
		previous bool
		want     string
	}{
		{"setup", false, n.ownLimits(96<<20, 300)},
		{"side", false, n.ownLimits(80<<20, 150)},
		{"again", true, n.ownLimits(64<<20, 200)},
		{"again", false, n.ownLimits(64<<20, 200)},
		{"free", false, n.ownLimits(0, 0)},
	} {
		if got := n.logged("kinds", c.name, c.previous); got != c.want {
			n.t.Errorf("container %s (previous: %v) began with the limits %q, want %q", c.name, c.previous, got, c.want)
		}
	}
	kubectl(n.t, append([]string{"debug", "kinds", "--image=" + cluster.BusyboxImage, "--image-pull-policy=Never",
		"--container=probe", "--profile=baseline", "--", "cat"}, n.limitFiles()...)...)
	if got, want := n.logged("kinds", "probe", false), n.ownLimits(0, 0); got != want {
		n.t.Errorf("an ephemeral container began with the limits %q, want %q", got, want)
	}
	n.reported("kinds")
	kubectl(n.t, "delete", "pod", "kinds", "--grace-period=0", "--force")
}

// reported checks that the limits are not in the pod's status, where quotas of namespaces and other controllers would
// count them.
func (n *node) reported(name string) {
	n.t.Helper()
	pod := object[corev1.Pod](n.t, "pod", name)
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if s.Resources == nil {
			continue
		}
		for _, list := range []corev1.ResourceList{s.Resources.Requests, s.Resources.Limits} {
			if list.Cpu().Sign() != 0 || list.Memory().Sign() != 0 {
				n.t.Errorf("the kubelet reports CPU and memory of container %s: %+v", s.Name, s.Resources)
			}
		}
	}
}

// testJava checks what a JVM takes for its heap and its threads, with one and with two CPUs: it reads the limits once,
// at its start. Each container starts twice.
func (n *node) testJava() {
	out, err := n.machine.run("sh", "-c", `readlink -f "$(command -v java)"`)
	if err != nil {
		n.t.Fatalf("this level needs Java: %v: %s", err, out)
	}
	java := strings.TrimSpace(out)
	config, err := n.machine.run("readlink", "-f", path.Join(path.Dir(java), "../lib/jvm.cfg"))
	if err != nil {
		n.t.Fatal(err)
	}
	makeNamespace(n.t, "java", "pod-security.kubernetes.io/enforce: privileged") // for directories of the node
	var mounts, volumes []string
	for i, dir := range []string{"/usr", "/lib", "/lib64", path.Dir(strings.TrimSpace(config))} {
		mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: %q, readOnly: true}", i, dir))
		volumes = append(volumes, fmt.Sprintf("{name: v%d, hostPath: {path: %q}}", i, dir))
	}
	for _, cpus := range []int{1, 2} {
		name := fmt.Sprint("java-", cpus)
		apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: java, labels: {%s: BE}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    command: [%s, -XX:+UseParallelGC, -XX:+PrintFlagsFinal, -version]
    resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: %d, memory: 512Mi}}
    volumeMounts: [%s]
  volumes: [%s]
`, name, v1alpha1.LabelQoS, n.name, cluster.BusyboxImage, java, cpus, strings.Join(mounts, ", "),
			strings.Join(volumes, ", ")))
		eventually(n.t, "the JVM has ended and started again", func() (bool, string) {
			s := object[corev1.Pod](n.t, "pod", name, "-n", "java").Status.ContainerStatuses
			return len(s) == 1 && s[0].RestartCount > 0, fmt.Sprintf("%+v", s)
		})
		for _, args := range [][]string{{"--previous"}, nil} {
			flags := ""
			eventually(n.t, "the JVM prints its flags", func() (bool, string) {
				flags, err = tryKubectl(append([]string{"logs", "-n", "java", name}, args...)...)
				return err == nil && strings.Contains(flags, "MaxHeapSize"), fmt.Sprint(flags, err)
			})
			// A quarter of the limit, and a thread for each CPU.
			for flag, want := range map[string]int{"MaxHeapSize": 512 << 20 / 4, "ParallelGCThreads": cpus} {
				found := regexp.MustCompile(`(?m)^.*\b` + flag + ` +:?= (\S+)`).FindStringSubmatch(flags)
				if len(found) != 2 || found[1] != fmt.Sprint(want) {
					n.t.Errorf("%s %v: the JVM has the flags %q, want %d", name, args, found, want)
				}
			}
		}
		kubectl(n.t, "delete", "pod", "-n", "java", name, "--grace-period=0", "--force")
	}
}

// testAgentAway checks a container that starts while the node has no agent. It begins without limits of its own, within
// the limit of its pod, which outlives containers. The agent limits it when it is back.
func (n *node) testAgentAway() {
	files := strings.ReplaceAll(strings.Join(n.limitFiles(), " "), ",", "")
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: away, labels: {%s: BE}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %s
    imagePullPolicy: Never
    command: [sh, -c, "cat %s; until rm /mark/end 2>/dev/null; do sleep 0.2; done"]
    resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m, memory: 64Mi}}
    volumeMounts: [{name: mark, mountPath: /mark}]
  volumes: [{name: mark, emptyDir: {}}]
`, v1alpha1.LabelQoS, n.name, cluster.BusyboxImage, files))
	if got, want := n.logged("away", "c", false), n.ownLimits(64<<20, 200); !strings.HasPrefix(got, want) {
		n.t.Errorf("it began with the limits %q, want %q", got, want)
	}
	pod := n.dir("away")
	n.expect(n.t, pod, model.MemoryMax, 64<<20)

	where := func(selector string) {
		kubectl(n.t, "patch", "daemonset", "waterline-agent", "-n", "waterline-system", "--type=merge", "-p",
			`{"spec": {"template": {"spec": {"nodeSelector": `+selector+`}}}}`)
	}
	where(`{"waterline.io/nowhere": "true"}`)
	defer where(`{"waterline.io/nowhere": null}`)
	eventually(n.t, "the agent is gone", func() (bool, string) {
		pods := object[corev1.PodList](n.t, "pods", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-agent")
		return len(pods.Items) == 0, fmt.Sprint(len(pods.Items))
	})
	kubectl(n.t, "exec", "away", "--", "touch", "/mark/end")
	eventually(n.t, "its container has started again", func() (bool, string) {
		s := object[corev1.Pod](n.t, "pod", "away").Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].State.Running != nil, fmt.Sprintf("%+v", s)
	})
	if got, want := n.logged("away", "c", false), n.ownLimits(0, 0); !strings.HasPrefix(got, want) {
		n.t.Errorf("without an agent, it began with the limits %q, want %q", got, want)
	}
	n.expect(n.t, pod, model.MemoryMax, 64<<20)
	dir, _ := n.container("away")
	where(`{"waterline.io/nowhere": null}`)
	n.expect(n.t, dir, model.MemoryMax, 64<<20)
	n.expect(n.t, dir, model.Quota, model.MilliCPUToQuota(200, model.DefaultQuotaPeriod))
	kubectl(n.t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", ready)
	kubectl(n.t, "delete", "pod", "away", "--grace-period=0", "--force")
}
