package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/test/bed/cluster"
	"github.com/waterline-io/waterline/test/bed/vmnode"
)

// node is a real node of the cluster, with the chart installed.
type node struct {
	groups
	t          *testing.T
	name       string
	layout     cgroup.Layout
	staticPods string // directory
	// What parts of tests measured, the largest value of each. Tests only log them: benches judge them.
	measured map[string]float64
}

// figure notes a figure.
func (n *node) figure(name string, value float64) {
	n.t.Logf("%s: %.2f", name, value)
	n.measured[name] = max(n.measured[name], value)
}

// allowAll are the fields of a policy that allow every pod what it requests.
const allowAll = `"weight": {"max": 262144}, "privileges": [{"namespaceSelector": {}, "allow": ["UnlimitedQuota", ` +
	`"ShareCPUs", "ExclusiveCPUs", "LSE", "LSR", "SYSTEM", "NeverEvict", "StaticPod"]}]`

// enforceAll is a policy of the chart that enforces, and allows every pod what it requests. Values that follow it may
// limit that again.
const enforceAll = `policy={"mode": "Enforce", "priority": -1000, ` + allowAll + `}`

// sellAll is the same for clusters whose manager admits batch pods, which it does only where something is sold.
const sellAll = `policy={"mode": "Enforce", "priority": -1000, "cpu": {}, "memory": {}, ` + allowAll + `}`

// install installs the chart, with further values, and waits until the agents are ready. The chart stays until the test
// ends. The node is the one selected for this run. The manager is disabled unless the values enable it: it would make
// batch-labelled pods request resources that few of these tests sell.
func install(t *testing.T, values ...string) *node {
	t.Helper()
	installChart(t, append([]string{"--set-json", enforceAll,
		"--set", "image.repository=waterline/agent,image.tag=dev,image.pullPolicy=Never",
		"--set", "manager.enabled=false,agent.metrics=full,agent.kubeletProxy=" + fmt.Sprint(oldKubelet(t))},
		values...)...)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := tryKubectl("logs", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-agent", "--prefix",
				"--tail=50")
			t.Logf("the agents' log:\n%s", out)
		}
		helm(t, "uninstall", "waterline", "--no-hooks", "--namespace", "waterline-system", "--ignore-not-found", "--wait")
		if *on != "vm" {
			keepJournal(t, here{}, here{}.runDir())
		}
	})
	kubectl(t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", ready)
	return bedNode(t)
}

// oldKubelet reports whether Kubernetes is the oldest supported one, 1.32. Its kubelets show their settings to
// nodes/proxy only, resize no pod in place, and know no resources of a pod as a whole.
func oldKubelet(t *testing.T) bool {
	t.Helper()
	version := kubectl(t, "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.kubeletVersion}")
	return strings.HasPrefix(version, "v1.32.")
}

// bedNode returns the node selected for this run.
func bedNode(t *testing.T) *node {
	t.Helper()
	if *on != "vm" {
		return hereNode(t)
	}
	client, err := bed.VM()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := guest{client}.run("journalctl", "-n", "100", "--no-pager")
			t.Logf("the virtual machine's journal:\n%s", out)
		}
	})
	mount := host.Mount{Version: cgroup.V2, Path: host.DefaultRoot, Cpusets: host.DefaultRoot, Cpuacct: host.DefaultRoot,
		Memory: host.DefaultRoot}
	return &node{groups{guest{client}, mount}, t, vmnode.Name,
		cgroup.Layout{Driver: cgroup.Systemd, Root: "kubepods.slice"}, vmnode.StaticPods, map[string]float64{}}
}

// hereNode returns this machine's node.
func hereNode(t *testing.T) *node {
	t.Helper()
	root := strings.TrimPrefix(cluster.CgroupRoot, "/") + "/kubepods"
	return &node{newGroups(t), t, cluster.NodeName, cgroup.Layout{Driver: cgroup.Cgroupfs, Root: root}, bed.StaticPods(),
		map[string]float64{}}
}

// sub runs a subtest on the node.
func (n *node) sub(name string, f func(n *node)) {
	n.t.Run(name, func(t *testing.T) {
		of := *n
		of.t = t
		f(&of)
	})
}

// agent returns the agent's pod on the node.
func (n *node) agent() corev1.Pod {
	n.t.Helper()
	var pods corev1.PodList
	eventually(n.t, "one agent", func() (bool, string) {
		pods = object[corev1.PodList](n.t, "pods", "-n", "waterline-system", "-l", "app.kubernetes.io/name=waterline-agent",
			"--field-selector", "status.phase=Running,spec.nodeName="+n.name)
		return len(pods.Items) == 1, fmt.Sprint(len(pods.Items))
	})
	return pods.Items[0]
}

// burning uses CPU in four processes, spread evenly over the CPUs. Their placement would otherwise matter as much as
// weights.
const burning = "n=$(nproc); for i in 1 2 3 4; do taskset $(printf %x $((1 << i % n))) sh -c 'while :; do :; done' & " +
	"done; wait"

// manifest returns the manifest of a pod that the scheduler can only place on the node. If burn is set, the pod uses
// all the CPU that it can get.
func (n *node) manifest(name, annotations, resources string, burn bool) string {
	script := "sleep 1000000"
	if burn {
		script = burning
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sh, -c, "%s"], resources: {%s}}]
`, name, annotations, n.name, cluster.BusyboxImage, script, resources)
}

// run makes a pod that runs, see [node.manifest], and returns its cgroup.
func (n *node) run(name, annotations, resources string, burn bool) string {
	n.t.Helper()
	apply(n.t, n.manifest(name, annotations, resources, burn))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	return n.dir(name)
}

func (n *node) dir(name string) string {
	n.t.Helper()
	pod := object[corev1.Pod](n.t, "pod", name)
	return n.dirOf(&pod)
}

// container returns the cgroup and the ID of a pod's only container.
func (n *node) container(name string) (dir, id string) {
	n.t.Helper()
	eventually(n.t, name+" runs", func() (bool, string) {
		pod := object[corev1.Pod](n.t, "pod", name)
		s := pod.Status.ContainerStatuses
		if len(s) != 1 || s[0].State.Running == nil {
			return false, fmt.Sprint(pod.Status)
		}
		_, id, _ = strings.Cut(s[0].ContainerID, "://")
		return true, ""
	})
	return n.containerDir(n.dir(name), id), id
}

// containerDir returns the cgroup of a container of a pod.
func (n *node) containerDir(pod, id string) string {
	if n.layout.Driver == cgroup.Systemd {
		return pod + "/cri-containerd-" + id + ".scope"
	}
	return pod + "/" + id
}

// classShares returns the shares of kubepods/burstable when its pods request more than the node has: those of all CPU
// that no Guaranteed pod has.
func (n *node) classShares() int64 {
	n.t.Helper()
	of := object[corev1.Node](n.t, "node", n.name)
	return of.Status.Allocatable.Cpu().MilliValue() * model.SharesPerCPU / 1000
}

func (n *node) mustRestart(component string) {
	n.t.Helper()
	if err := n.restart(component); err != nil {
		n.t.Fatal(err)
	}
}

// wanted is the expected value of a knob, in the knob's unit.
type wanted struct {
	dir   string
	knob  model.Knob
	value int64
}

// foreignAfterRestart is for how many seconds a file has foreign values while the kubelet or containerd restarts.
const foreignAfterRestart = "foreign_after_restart_seconds"

// foreign counts how often and for how long a file had another value than expected.
type foreign struct {
	times   int
	total   time.Duration
	longest time.Duration
}

// watchWhile watches files for a time while an action runs, and returns the result for each file. It reads every
// millisecond for runs of seconds, and less often for runs of minutes, so as not to disturb the measurement that
// follows.
func (n *node) watchWhile(limit time.Duration, do func(), want ...wanted) []foreign {
	n.t.Helper()
	w := vmnode.Watch{For: limit, Every: max(time.Millisecond, (limit-time.Minute)/3000)}
	for _, f := range want {
		w.Files = append(w.Files, n.path(f.dir, f.knob))
	}
	var changes []vmnode.Change
	var err error
	done := make(chan struct{})
	go func() {
		changes, err = n.watch(w)
		close(done)
	}()
	time.Sleep(500 * time.Millisecond)
	do()
	<-done
	if err != nil {
		n.t.Fatal(err)
	}
	result := make([]foreign, len(want))
	wrongSince := make([]time.Duration, len(want))
	over := func(i int, at time.Duration) {
		if wrongSince[i] == 0 {
			return
		}
		took := at - wrongSince[i]
		result[i].times++
		result[i].total += took
		result[i].longest = max(result[i].longest, took)
		wrongSince[i] = 0
	}
	for _, c := range changes {
		over(c.File, c.At)
		w := want[c.File]
		is, err := cgroup.Parse(n.Version, w.knob, []byte(c.Value), cgroup.Raw{})
		if err != nil || is.Number != cgroup.ToRaw(n.Version, w.knob, model.Number(w.value)).Number {
			wrongSince[c.File] = max(c.At, 1)
		}
	}
	for i := range want {
		over(i, limit)
	}
	return result
}

// TestNode walks pods through their lives on a real node, with the chart's default values. With -short it leaves out
// what waits for the kubelet's writes of each minute, restarts of components, and an agent that rests. The kubelet then
// rewrites a weight because its pod is resized, which takes seconds.
func TestNode(t *testing.T) {
	n := install(t)
	n.sub("First", (*node).testFirst)
	if !testing.Short() {
		n.sub("Weights", (*node).testWeights)
	}
	if bothNodes() { // these depend on neither cgroup v2 nor systemd
		n.sub("Static", (*node).testStatic)
	}
	switch {
	case bothNodes() && testing.Short():
		n.sub("Resize", (*node).testResize)
	case bothNodes():
		n.sub("Life", (*node).testLife)
		n.sub("Agent", (*node).testAgent)
	}
	n.sub("CPUs", (*node).testCPUs)
	if *on == "vm" {
		n.sub("Systemd", (*node).testSystemd)
		n.sub("Formulas", (*node).testFormulas)
		n.sub("Driver", (*node).testDriver)
	}
}

// testFirst checks that a pod's weight is set before its first process. At the moment when a process appears in any of
// its cgroups, the pod's cgroup has the weight already.
func (n *node) testFirst() {
	class := n.Path + "/" + n.layout.Class(model.Burstable)
	got := make(chan string, 1)
	go func() {
		shares, err := n.first(vmnode.First{Glob: class + "/*/*/cgroup.procs",
			File: "../" + cgroup.FileName(n.Version, model.Shares), For: mostWait})
		if err != nil {
			shares = err.Error()
		}
		got <- shares
	}()
	time.Sleep(500 * time.Millisecond) // the reader must know the directories that existed before
	n.run("early", `waterline.io/cpu-share: "5000"`, "requests: {cpu: 100m}", false)
	if shares := <-got; shares != n.text(model.Shares, 5000) {
		n.t.Errorf("at its first process, the pod's cgroup had %s, want %s", shares, n.text(model.Shares, 5000))
	}
}

// testWeights checks the main task on a real node. Two pods with equal requests, annotated 1:2, have weights of 1:2,
// and keep them when the kubelet rewrites its files.
func (n *node) testWeights() {
	want := n.weighted()
	if *on == "vm" { // testSystemd causes the kubelet's writes
		return
	}
	before := n.repairs(model.Shares)
	eventually(n.t, "the kubelet rewrites a weight, as it does once a minute", func() (bool, string) {
		repairs := n.repairs(model.Shares)
		return repairs > before, fmt.Sprint(repairs)
	})
	for _, w := range want {
		n.expect(n.t, w.dir, w.knob, w.value)
	}
}

// weighted makes two pods that use all the CPU they can get, annotated 1:2, and returns their files and that of their
// class.
func (n *node) weighted() []wanted {
	n.t.Helper()
	want := []wanted{
		{n.run("a", `iqiyi.com/cpu-share: "8192"`, "requests: {cpu: 100m}", true), model.Shares, 8192},
		{n.run("b", `iqiyi.com/cpu-share: "16384"`, "requests: {cpu: 100m}", true), model.Shares, 16384},
		{n.layout.Class(model.Burstable), model.Shares, n.classShares()},
	}
	for _, w := range want {
		n.expect(n.t, w.dir, w.knob, w.value)
	}
	return want
}

// limited are the resources of a pod that is resized.
const limited = "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 300m, memory: 64Mi}"

// resizeTo gives the container of a pod that runs other requests and limits of CPU.
func resizeTo(t *testing.T, pod, request, limit string) {
	t.Helper()
	kubectl(t, "patch", "pod", pod, "--subresource=resize", "-p", fmt.Sprintf(
		`{"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": %q}, "limits": {"cpu": %q}}}]}}`,
		request, limit))
}

// resize resizes a pod in place. The kubelet writes the files of its cgroups, and the pod keeps its weight.
func (n *node) resize(name, dir string, shares int64) {
	n.t.Helper()
	container, _ := n.container(name)
	before := n.repairs(model.Shares)
	resizeTo(n.t, name, "200m", "500m")
	eventually(n.t, "the kubelet's new quota", func() (bool, string) {
		got := n.get(container, model.Quota)
		return got == 50_000, fmt.Sprint(got)
	})
	eventually(n.t, "the agent has repaired the weight that the kubelet wrote", func() (bool, string) {
		repairs := n.repairs(model.Shares)
		return repairs > before, fmt.Sprint(repairs)
	})
	n.expect(n.t, dir, model.Shares, shares)
}

// testResize lets the kubelet rewrite the weight of a pod.
func (n *node) testResize() {
	dir := n.run("resized", `waterline.io/cpu-share: "2048"`, limited, false)
	n.expect(n.t, dir, model.Shares, 2048)
	n.resize("resized", dir, 2048)
	kubectl(n.t, "delete", "pod", "resized", "--grace-period=1")
}

// testLife walks pods through their possible changes on a real node.
func (n *node) testLife() {
	a := n.run("a", `waterline.io/cpu-share: "2048"`, limited, false)
	n.expect(n.t, a, model.Shares, 2048)

	n.t.Log("a quota is lifted, and restored to the kubelet's value")
	container, id := n.container("a")
	before := [2]int64{n.get(a, model.Quota), n.get(container, model.Quota)}
	if before != [2]int64{30_000, 30_000} {
		n.t.Fatalf("the kubelet's quotas are %v", before)
	}
	kubectl(n.t, "annotate", "pod", "a", "waterline.io/cpu-quota=unlimited")
	n.expect(n.t, a, model.Quota, model.Unlimited)
	n.expect(n.t, container, model.Quota, model.Unlimited)

	n.t.Log("the container restarts: its new cgroup has no quota either, and the pod's keeps its weight")
	if out, err := n.ctr("task", "kill", "-s", "SIGKILL", id); err != nil {
		n.t.Fatalf("%v: %s", err, out)
	}
	eventually(n.t, "a new container", func() (bool, string) {
		_, now := n.container("a")
		return now != id, now
	})
	container, _ = n.container("a")
	n.expect(n.t, container, model.Quota, model.Unlimited)
	n.expect(n.t, a, model.Shares, 2048)
	kubectl(n.t, "annotate", "pod", "a", "waterline.io/cpu-quota-")
	n.expect(n.t, a, model.Quota, 30_000)
	n.expect(n.t, container, model.Quota, 30_000)

	requested := int64(102) // shares for 100m
	if !oldKubelet(n.t) {
		n.t.Log("a weighted pod is resized in place: the kubelet writes its files, and the weight stays")
		n.resize("a", a, 2048)
		requested = 204
	}

	n.t.Log("the annotation changes and goes: the weight becomes the kubelet's for the request")
	kubectl(n.t, "annotate", "pod", "a", "--overwrite", "waterline.io/cpu-share=4096")
	n.expect(n.t, a, model.Shares, 4096)
	kubectl(n.t, "annotate", "pod", "a", "waterline.io/cpu-share-")
	n.expect(n.t, a, model.Shares, requested)
	eventually(n.t, "the class weighs less", func() (bool, string) {
		class := n.get(n.layout.Class(model.Burstable), model.Shares)
		return class < cgroup.ToRaw(n.Version, model.Shares, model.Number(4096)).Number, fmt.Sprint(class)
	})
	kubectl(n.t, "annotate", "pod", "a", "waterline.io/cpu-share=4096")
	n.expect(n.t, a, model.Shares, 4096)

	for _, component := range []string{"kubelet", "containerd"} {
		n.t.Log(component + " restarts")
		want := []wanted{{a, model.Shares, 4096}, {n.layout.Class(model.Burstable), model.Shares, n.classShares()}}
		wrong := n.watchWhile(20*time.Second, func() { n.mustRestart(component) }, want...)
		n.t.Logf("foreign values in pod and class: %v", wrong)
		for i, f := range wrong {
			n.expect(n.t, want[i].dir, want[i].knob, want[i].value)
			n.figure(foreignAfterRestart, f.total.Seconds())
		}
	}

	n.t.Log("the agent is killed, and its pod goes and comes back; meanwhile another writer writes")
	old := n.agent()
	kubectl(n.t, "delete", "pod", "-n", "waterline-system", old.Name, "--grace-period=0", "--force")
	n.set(n.t, a, model.Shares, 99)
	n.expect(n.t, a, model.Shares, 4096)
	if n.agent().UID == old.UID {
		n.t.Error("the old agent still runs")
	}

	n.t.Log("the pod is made again under the same name")
	kubectl(n.t, "delete", "pod", "a", "--grace-period=1")
	n.expect(n.t, n.run("a", `waterline.io/cpu-share: "1000"`, limited, false), model.Shares, 1000)

	n.t.Log("explain shows the reason, through the API server")
	explains(n.t, []string{"pod", "a", "--kubeconfig", bed.Kubeconfig()}, []string{"Weighted requested=1000shares"})
}

// testStatic gives a static pod a weight. Its cgroup is named after a hash that differs from its UID in the API.
func (n *node) testStatic() {
	manifest := n.staticPods + "/static.yaml"
	if err := n.writeFile(manifest, fmt.Appendf(nil, `
apiVersion: v1
kind: Pod
metadata: {name: static, annotations: {waterline.io/cpu-share: "3000"}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sleep, "1000000"], resources: {requests: {cpu: 100m}}}]
`, cluster.BusyboxImage)); err != nil {
		n.t.Fatal(err)
	}
	name := "static-" + n.name
	defer func() {
		if err := n.remove(manifest); err != nil {
			n.t.Error(err)
		}
		eventually(n.t, "the static pod is gone", func() (bool, string) {
			out, err := tryKubectl("get", "pod", name)
			return err != nil, out
		})
	}()
	eventually(n.t, "the static pod runs", func() (bool, string) {
		out, err := tryKubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=1s")
		return err == nil, out
	})
	pod := object[corev1.Pod](n.t, "pod", name)
	n.expect(n.t, n.layout.Pod(model.Burstable, pod.Annotations["kubernetes.io/config.hash"]), model.Shares, 3000)
}

// testAgent checks the agent's own pod on a node: its weight is the highest, it has no privileges, and it logs little.
func (n *node) testAgent() {
	pod := n.agent()
	n.expect(n.t, n.layout.Pod(model.Burstable, string(pod.UID)), model.Shares, 102400)
	spec := object[appsv1.DaemonSet](n.t, "daemonset", "waterline-agent", "-n", "waterline-system").Spec.Template.Spec
	s := spec.Containers[0].SecurityContext
	if spec.HostPID || spec.HostNetwork || spec.HostIPC || *s.Privileged || *s.AllowPrivilegeEscalation ||
		!*s.ReadOnlyRootFilesystem ||
		len(s.Capabilities.Add) > 0 || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
		n.t.Errorf("the agent has more rights than it needs: %+v", s)
	}
	n.settled()
	const quiet = 20 * time.Second // two audits
	time.Sleep(quiet)
	logged := kubectl(n.t, "logs", "-n", "waterline-system", pod.Name, "--since="+(quiet-5*time.Second).String())
	if logged != "" {
		n.t.Errorf("in steady state, the agent logs: %s", logged)
	}
	for _, verb := range []string{"get secrets", "list configmaps", "create pods", "patch nodes", "get nodes/proxy",
		"delete events"} {
		words := strings.Fields(verb)
		out, _ := tryKubectl("auth", "can-i", words[0], words[1],
			"--as=system:serviceaccount:waterline-system:waterline-agent", "-A")
		if !strings.Contains("\n"+out, "\nno") { // a reason may follow
			n.t.Errorf("the agent may %s: %s", verb, out)
		}
	}
}

// settled waits until pods that are deleted are gone, and the agent writes nothing for ten looks, a second apart.
func (n *node) settled() {
	n.t.Helper()
	eventually(n.t, "no pod is being deleted", func() (bool, string) {
		leaving := kubectl(n.t, "get", "pods", "-A", "-o",
			`jsonpath={range .items[?(@.metadata.deletionTimestamp)]}{.metadata.name} {end}`)
		return leaving == "", leaving
	})
	last, same := "", 0
	eventually(n.t, "the agent writes nothing", func() (bool, string) {
		time.Sleep(time.Second)
		agent := n.agent()
		now := ""
		for line := range strings.Lines(string(n.metrics(&agent))) {
			if strings.HasPrefix(line, v1alpha1.MetricWrites+"{") {
				now += line
			}
		}
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 10, now
	})
}

// TestNodeObserve checks that a policy in mode Observe changes no file, and that mode Disabled restores all.
func TestNodeObserve(t *testing.T) {
	oneNode(t, "an agent that only observes writes to neither")
	n := install(t, "--set", "policy.mode=Observe")
	a := n.run("a", `waterline.io/cpu-share: "2048"`, "requests: {cpu: 100m}", false)
	explains(t, []string{"pod", "a", "--kubeconfig", bed.Kubeconfig()}, []string{"ObserveOnly"})
	if !n.is(a, model.Shares, 102) {
		t.Errorf("the weight is %d", n.get(a, model.Shares))
	}
}
