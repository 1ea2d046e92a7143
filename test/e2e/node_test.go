package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// real is the cluster's node with the chart installed on it.
type real struct {
	groups
	t      *testing.T
	layout cgroup.Layout
}

// install installs the chart, with further values, and waits until the agent is ready. It stays until the test ends.
func install(t *testing.T, values ...string) *real {
	t.Helper()
	r := &real{groups: newGroups(t), t: t, layout: cgroup.Layout{Driver: cgroup.Cgroupfs, Root: strings.TrimPrefix(cluster.CgroupRoot, "/") + "/kubepods"}}
	helm(t, append([]string{"upgrade", "--install", "waterline", "../../deploy/chart", "--namespace", "waterline-system", "--create-namespace",
		"--set", "image.repository=waterline/agent,image.tag=dev,image.pullPolicy=Never"}, values...)...)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := tryKubectl("logs", "-n", "waterline-system", "daemonset/waterline-agent", "--tail=50")
			t.Logf("the agent said:\n%s", out)
		}
		helm(t, "uninstall", "waterline", "--namespace", "waterline-system", "--ignore-not-found", "--wait")
	})
	kubectl(t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", "--timeout=90s")
	return r
}

// agent returns the agent's pod.
func (r *real) agent() corev1.Pod {
	r.t.Helper()
	var pods corev1.PodList
	eventually(r.t, "one agent", func() (bool, string) {
		pods = object[corev1.PodList](r.t, "pods", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-agent", "--field-selector", "status.phase=Running")
		return len(pods.Items) == 1, fmt.Sprint(len(pods.Items))
	})
	return pods.Items[0]
}

// run makes a pod that runs, and returns its cgroup. It burns CPU on two threads if burn is set.
func (r *real) run(name, annotations, resources string, burn bool) string {
	r.t.Helper()
	script := "sleep 1000000"
	if burn {
		script = "while :; do :; done & while :; do :; done"
	}
	apply(r.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sh, -c, "%s"], resources: {%s}}]
`, name, annotations, cluster.BusyboxImage, script, resources))
	kubectl(r.t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	return r.dir(name)
}

func (r *real) dir(name string) string {
	r.t.Helper()
	pod := object[corev1.Pod](r.t, "pod", name)
	class := map[corev1.PodQOSClass]model.QoSClass{corev1.PodQOSGuaranteed: model.Guaranteed, corev1.PodQOSBurstable: model.Burstable, corev1.PodQOSBestEffort: model.BestEffort}
	return r.layout.Pod(class[pod.Status.QOSClass], string(pod.UID))
}

// container returns the cgroup of a pod's only container.
func (r *real) container(name string) string {
	r.t.Helper()
	var id string
	eventually(r.t, name+" runs", func() (bool, string) {
		pod := object[corev1.Pod](r.t, "pod", name)
		s := pod.Status.ContainerStatuses
		if len(s) != 1 || s[0].State.Running == nil {
			return false, fmt.Sprint(pod.Status)
		}
		_, id, _ = strings.Cut(s[0].ContainerID, "://")
		return true, ""
	})
	return r.dir(name) + "/" + id
}

// usage returns the CPU time that a group has used.
func (r *real) usage(dir string) time.Duration {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(filepath.Dir(r.Path), "cpuacct", dir, "cpuacct.usage"))
	if err != nil {
		r.t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(ns)
}

func (r *real) control(verb, component string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := bed.Control(ctx, verb, component); err != nil {
		r.t.Fatal(err)
	}
}

// TestNodeFirst checks that a pod's weight is in place before its first process: the moment that one appears in any of its
// cgroups, the pod's cgroup has the weight already.
func TestNodeFirst(t *testing.T) {
	r := install(t)
	class := filepath.Join(r.Path, r.layout.Class(model.Burstable))
	before, err := os.ReadDir(class)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, e := range before {
		known[e.Name()] = true
	}
	first := make(chan cgroup.Raw, 1)
	go func() {
		for t.Context().Err() == nil {
			entries, _ := os.ReadDir(class)
			for _, e := range entries {
				if known[e.Name()] || !e.IsDir() {
					continue
				}
				containers, _ := filepath.Glob(filepath.Join(class, e.Name(), "*", "cgroup.procs"))
				for _, procs := range containers {
					if pids, _ := os.ReadFile(procs); len(pids) > 0 {
						first <- r.get(r.layout.Class(model.Burstable)+"/"+e.Name(), model.Shares)
						return
					}
				}
			}
			time.Sleep(200 * time.Microsecond)
		}
	}()
	r.run("early", `waterline.io/cpu-share: "5000"`, "requests: {cpu: 100m}", false)
	if shares := <-first; shares != 5000 {
		t.Errorf("when its first process was there, the pod's cgroup had %d shares, want 5000", shares)
	}
}

// TestNodeWeights is the main job on a real node: two real pods with equal requests, annotated 1:2, share the CPU 1:2, and
// stay that way while the kubelet rewrites what it owns.
func TestNodeWeights(t *testing.T) {
	r := install(t)
	a := r.run("a", `iqiyi.com/cpu-share: "8192"`, "requests: {cpu: 100m}", true)
	b := r.run("b", `iqiyi.com/cpu-share: "16384"`, "requests: {cpu: 100m}", true)
	r.expect(t, a, model.Shares, 8192)
	r.expect(t, b, model.Shares, 16384)
	class := r.layout.Class(model.Burstable)
	node := object[corev1.Node](t, "node", cluster.NodeName)
	want := node.Status.Allocatable.Cpu().MilliValue() * model.SharesPerCPU / 1000 // all that no Guaranteed pod has
	r.expect(t, class, model.Shares, want)

	periods := 130 * time.Second // two of the kubelet's
	if soak {
		periods = 10 * time.Minute
	}
	usedA, usedB := r.usage(a), r.usage(b)
	samples, wrong := 0, 0
	for end := time.Now().Add(periods); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		samples++
		if r.get(class, model.Shares) != cgroup.Raw(want) || r.get(a, model.Shares) != 8192 || r.get(b, model.Shares) != 16384 {
			wrong++
		}
	}
	ratio := float64(r.usage(b)-usedB) / float64(r.usage(a)-usedA)
	t.Logf("CPU ratio %.3f over %s; %d of %d samples saw a foreign value", ratio, periods, wrong, samples)
	if ratio < 1.8 || ratio > 2.2 {
		t.Errorf("the CPU ratio is %.3f, want 2", ratio)
	}
	if wrong*200 > samples {
		t.Errorf("%d of %d samples saw a foreign value", wrong, samples)
	}
}

// TestNodeLife walks pods through what happens to them on a real node.
func TestNodeLife(t *testing.T) {
	r := install(t)
	const limited = "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 300m, memory: 64Mi}"
	a := r.run("a", `waterline.io/cpu-share: "2048"`, limited, false)
	r.expect(t, a, model.Shares, 2048)

	t.Log("a quota is lifted, and put back as the kubelet had it")
	container := r.container("a")
	before := [2]cgroup.Raw{r.get(a, model.Quota), r.get(container, model.Quota)}
	if before != [2]cgroup.Raw{30_000, 30_000} {
		t.Fatalf("the kubelet's quotas are %v", before)
	}
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-quota=unlimited")
	r.expect(t, a, model.Quota, model.Unlimited)
	r.expect(t, container, model.Quota, model.Unlimited)

	t.Log("the container restarts: its new cgroup is lifted too, the pod's keeps its weight")
	kill, err := bed.Inside(t.Context(), filepath.Join(built, "bed/bin/ctr"), "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", filepath.Base(container))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := kill.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	eventually(t, "a new container", func() (bool, string) {
		now := r.container("a")
		return now != container, now
	})
	container = r.container("a")
	r.expect(t, container, model.Quota, model.Unlimited)
	r.expect(t, a, model.Shares, 2048)
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-quota-")
	r.expect(t, a, model.Quota, 30_000)
	r.expect(t, container, model.Quota, 30_000)

	t.Log("a weighted pod is resized in place: the kubelet writes, the weight stays")
	kubectl(t, "patch", "pod", "a", "--subresource=resize", "-p", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"200m"},"limits":{"cpu":"500m"}}}]}}`)
	eventually(t, "the kubelet's new quota", func() (bool, string) {
		got := r.get(container, model.Quota)
		return got == 50_000, fmt.Sprint(got)
	})
	r.expect(t, a, model.Shares, 2048)

	t.Log("the annotation changes and goes: what stays is what the kubelet has for the new request")
	kubectl(t, "annotate", "pod", "a", "--overwrite", "waterline.io/cpu-share=4096")
	r.expect(t, a, model.Shares, 4096)
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share-")
	r.expect(t, a, model.Shares, 204)
	if system := r.get(r.layout.Class(model.Burstable), model.Shares); system >= 4096 {
		t.Errorf("the class still weighs %d", system)
	}
	kubectl(t, "annotate", "pod", "a", "waterline.io/cpu-share=4096")
	r.expect(t, a, model.Shares, 4096)

	t.Log("the kubelet restarts")
	r.control("restart", "kubelet")
	time.Sleep(5 * time.Second)
	r.expect(t, a, model.Shares, 4096)

	t.Log("the agent is killed, its pod goes, and comes back; meanwhile somebody writes")
	old := r.agent()
	kubectl(t, "delete", "pod", "-n", "waterline-system", old.Name, "--grace-period=0", "--force")
	r.set(t, a, model.Shares, 99)
	r.expect(t, a, model.Shares, 4096)
	if r.agent().UID == old.UID {
		t.Error("the old agent still runs")
	}

	t.Log("the pod is made again under the same name")
	kubectl(t, "delete", "pod", "a", "--grace-period=1")
	r.expect(t, r.run("a", `waterline.io/cpu-share: "1000"`, limited, false), model.Shares, 1000)

	t.Log("explain says why, through the API server")
	out, err := program("waterline", "explain", "pod", "a", "--kubeconfig", bed.Kubeconfig())
	if err != nil || !strings.Contains(out, "Weighted asked=1000shares") {
		t.Errorf("explain: %v: %s", err, out)
	}
}

// TestNodeStatic gives a static pod a weight. Its cgroup is named after a hash that the API server does not know it by.
func TestNodeStatic(t *testing.T) {
	r := install(t)
	manifest := filepath.Join(bed.StaticPods(), "static.yaml")
	if err := os.WriteFile(manifest, fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: static, annotations: {waterline.io/cpu-share: "3000"}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sleep, "1000000"], resources: {requests: {cpu: 100m}}}]
`, cluster.BusyboxImage), 0o644); err != nil {
		t.Fatal(err)
	}
	name := "static-" + cluster.NodeName
	defer func() {
		if err := os.Remove(manifest); err != nil {
			t.Error(err)
		}
		eventually(t, "the static pod is gone", func() (bool, string) {
			out, err := tryKubectl("get", "pod", name)
			return err != nil, out
		})
	}()
	eventually(t, "the static pod runs", func() (bool, string) {
		out, err := tryKubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=1s")
		return err == nil, out
	})
	pod := object[corev1.Pod](t, "pod", name)
	r.expect(t, r.layout.Pod(model.Burstable, pod.Annotations["kubernetes.io/config.hash"]), model.Shares, 3000)
}

// TestNodeAgent checks what the agent itself is on a node: first in line, without privileges, and silent.
func TestNodeAgent(t *testing.T) {
	r := install(t)
	pod := r.agent()
	r.expect(t, r.layout.Pod(model.Burstable, string(pod.UID)), model.Shares, 102400)
	spec := object[appsv1.DaemonSet](t, "daemonset", "waterline-agent", "-n", "waterline-system").Spec.Template.Spec
	s := spec.Containers[0].SecurityContext
	if spec.HostPID || spec.HostNetwork || spec.HostIPC || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
		len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("the agent has more rights than it needs: %+v", s)
	}
	quiet := 20 * time.Second // two audits
	time.Sleep(quiet)
	if out := kubectl(t, "logs", "-n", "waterline-system", pod.Name, "--since="+(quiet-5*time.Second).String()); out != "" {
		t.Errorf("in steady state it says: %s", out)
	}
	for _, verb := range []string{"get secrets", "list configmaps", "create pods", "patch nodes", "get nodes/proxy", "delete events"} {
		words := strings.Fields(verb)
		out, _ := tryKubectl("auth", "can-i", words[0], words[1], "--as=system:serviceaccount:waterline-system:waterline-agent", "-A")
		if !strings.HasSuffix(out, "no") {
			t.Errorf("it may %s: %s", verb, out)
		}
	}
}

// TestNodeRestore removes Waterline: the values stay until waterline restore gives them back, from the specs.
func TestNodeRestore(t *testing.T) {
	r := install(t, "--set", "profile=cpu-share-syncer")
	a := r.run("a", `iqiyi.com/cpu-share: "2048"`, "requests: {cpu: 100m}, limits: {cpu: 200m}", false)
	r.expect(t, a, model.Shares, 2048)
	r.expect(t, a, model.Quota, model.Unlimited) // by the profile
	container := r.container("a")
	r.expect(t, container, model.Quota, model.Unlimited)
	helm(t, "uninstall", "waterline", "--namespace", "waterline-system", "--wait")
	eventually(t, "the agent is gone", func() (bool, string) {
		out := kubectl(t, "get", "pods", "-n", "waterline-system", "-o", "name")
		return out == "", out
	})
	if got := r.get(a, model.Shares); got != 2048 {
		t.Errorf("without the agent the weight is %d, want the last one", got)
	}
	out, err := program("waterline", "restore", "--run-dir", bed.RunWaterline())
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []struct {
		dir   string
		knob  model.Knob
		value cgroup.Raw
	}{{a, model.Shares, 102}, {a, model.Quota, 20_000}, {container, model.Quota, 20_000}} {
		if got := r.get(want.dir, want.knob); got != want.value {
			t.Errorf("restored, %s %s is %d, want %d:\n%s", want.dir, want.knob, got, want.value, out)
		}
	}
}

// TestNodeObserve checks that a policy that observes changes nothing, and one that is Off gives back.
func TestNodeObserve(t *testing.T) {
	r := install(t, "--set", "policy.mode=Observe")
	a := r.run("a", `waterline.io/cpu-share: "2048"`, "requests: {cpu: 100m}", false)
	eventually(t, "explain knows", func() (bool, string) {
		out, err := program("waterline", "explain", "pod", "a", "--kubeconfig", bed.Kubeconfig())
		return err == nil && strings.Contains(out, "ObserveOnly"), out
	})
	if got := r.get(a, model.Shares); got != 102 {
		t.Errorf("the weight is %d", got)
	}
}
