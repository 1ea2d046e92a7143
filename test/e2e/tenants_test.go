package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// unprivileged is a policy of the chart that enforces and sells, and grants no privilege. Weights alone are allowed.
const unprivileged = `policy={"mode": "Enforce", "priority": -1000, "weight": {"max": 262144},
	"cpu": {"method": "Static", "ratio": "100%", "suppression": "Arithmetic"}}`

// TestNodeTenants checks what a tenant can reach by what it may write into its own namespace.
func TestNodeTenants(t *testing.T) {
	oneNode(t, "permissions are the same there")
	n := install(t, "--set-json", unprivileged)
	kubectl(t, "create", "namespace", "hostile")
	t.Cleanup(func() { kubectl(t, "delete", "namespace", "hostile", "--ignore-not-found", "--wait=false") })
	eventually(t, "an account in the namespace", func() (bool, string) {
		out, err := tryKubectl("get", "serviceaccount", "default", "-n", "hostile")
		return err == nil, out
	})
	n.sub("PodLevel", (*node).testPodLevel)
	n.sub("Mirror", (*node).testMirror)
	n.sub("Bought", (*node).testBought)
	n.sub("Privileges", (*node).testPrivileges)
	n.sub("Claims", (*node).testClaims)
	if soak {
		n.sub("StatusWrites", (*node).testStatusWrites)
	}
}

// hostile makes a pod in the tenant's namespace that sleeps, from the rest of its metadata and of its spec.
func (n *node) hostile(name, metadata, spec string) corev1.Pod {
	n.t.Helper()
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: hostile, name: %s, %s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  %s
`, name, metadata, n.name, spec))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, "-n", "hostile", ready)
	return object[corev1.Pod](n.t, "pod", name, "-n", "hostile")
}

// sleeps is a container with these resources.
func sleeps(resources string) string {
	return fmt.Sprintf(`containers: [{name: c, image: "%s", imagePullPolicy: Never, command: [sleep, "1000000"], `+
		`resources: {%s}}]`, cluster.BusyboxImage, resources)
}

// warned waits for an event with a reason about a pod of the tenant.
func (n *node) warned(pod, reason string) {
	n.t.Helper()
	eventually(n.t, "an event "+reason, func() (bool, string) {
		all := object[corev1.EventList](n.t, "events", "-n", "hostile", "--field-selector",
			"reason="+reason+",involvedObject.name="+pod)
		return len(all.Items) > 0, fmt.Sprint(len(all.Items))
	})
}

// testPodLevel gives a pod with CPU requests in spec.resources the highest weight. From Kubernetes 1.36 on the kubelet
// publishes the weight of its cgroup as its request, which the scheduler counts.
func (n *node) testPodLevel() {
	pod := n.hostile("podlevel", `annotations: {waterline.io/cpu-share: "262144"}`,
		"resources: {requests: {cpu: 200m}}\n  "+sleeps(""))
	n.warned("podlevel", "WeightPodLevel")
	dir := n.dirOf(&pod)
	base := model.MilliCPUToShares(200)
	n.expect(n.t, dir, model.Shares, base)
	// Touched, so that the kubelet looks at the pod now.
	kubectl(n.t, "annotate", "pod", "podlevel", "-n", "hostile", "touched=yes")
	for range 10 {
		now := object[corev1.Pod](n.t, "pod", "podlevel", "-n", "hostile")
		if r := now.Status.Resources; r != nil && r.Requests.Cpu().MilliValue() > 210 {
			n.t.Fatalf("the scheduler counts a request of %s", r.Requests.Cpu())
		}
		time.Sleep(time.Second)
	}
	if f := n.watchWhile(2*time.Second, func() {}, wanted{dir, model.Shares, base}); f[0].times > 0 {
		n.t.Errorf("the weight of a pod with spec.resources changed: %+v", f[0])
	}
}

// testStatusWrites changes the quota of a pod's cgroup each second, more often than the agent does, and counts how
// often the kubelet writes the pod's status because of that: not for each change, but when it next looks at the pod,
// about once a minute.
func (n *node) testStatusWrites() {
	const looks = 240
	var written [2]int
	for i, changes := range []bool{false, true} {
		name := fmt.Sprintf("shown-%d", i)
		pod := n.hostile(name, "labels: {app: x}",
			"resources: {requests: {cpu: 200m}, limits: {cpu: 1}}\n  "+sleeps(""))
		dir, last := n.dirOf(&pod), ""
		for look := range int64(looks) {
			if changes {
				n.set(n.t, dir, model.Quota, 100_000+1000*(look%7))
			}
			time.Sleep(time.Second)
			now := kubectl(n.t, "get", "pod", name, "-n", "hostile", "-o", "jsonpath={.status}")
			if last != "" && now != last {
				written[i]++
			}
			last = now
		}
	}
	n.t.Logf("the kubelet wrote a pod's status %d times, and %d times while its quota changed %d times", written[0],
		written[1], looks)
	if written[1] > looks/10 {
		n.t.Errorf("%d writes for %d changes", written[1], looks)
	}
}

// testMirror makes pods that claim to be the mirror of a static pod with the UID of another pod.
func (n *node) testMirror() {
	victim := n.run("victim", "", "requests: {cpu: 100m}", false)
	uid := object[corev1.Pod](n.t, "pod", "victim").UID
	defer kubectl(n.t, "delete", "pod", "victim", "--now")
	node := object[corev1.Node](n.t, "node", n.name)
	forge := func() {
		for i := range 5 {
			for _, owner := range []string{
				"", fmt.Sprintf(", ownerReferences: [{apiVersion: v1, kind: Node, name: %s, uid: %s, controller: true}]", n.name,
					node.UID),
			} {
				out, err := tryApply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  {namespace: hostile, name: forged-%d, annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.source: file,
  kubernetes.io/config.hash: %s, waterline.io/cpu-share: "2000", waterline.io/cpu-quota: unlimited}%s}
spec: {nodeName: %s, containers: [{name: c, image: none, resources: {requests: {cpu: 2}}}]}
`, i, uid, owner, n.name))
				if err != nil {
					n.t.Logf("a forged mirror pod was refused: %s", out)
				}
				time.Sleep(300 * time.Millisecond)
				_, _ = tryKubectl("delete", "pod", fmt.Sprintf("forged-%d", i), "-n", "hostile", "--now", "--ignore-not-found")
			}
		}
	}
	f := n.watchWhile(12*time.Second, forge, wanted{victim, model.Shares, model.MilliCPUToShares(100)})
	if f[0].times > 0 {
		n.t.Errorf("the victim's weight changed: %+v", f[0])
	}
}

// testBought requests batch CPU without the label. The pod is batch all the same, and its label cannot be changed.
func (n *node) testBought() {
	eventually(n.t, "the node sells", func() (bool, string) {
		sold := object[corev1.Node](n.t, "node", n.name).Status.Allocatable["waterline.io/batch-cpu"]
		return sold.Value() >= 200, sold.String()
	})
	const batch = `requests: {waterline.io/batch-cpu: "100"}, limits: {waterline.io/batch-cpu: "100"}`
	pod := n.hostile("bought", "labels: {app: x}", sleeps(batch))
	n.limited(n.dirOf(&pod))
	for _, label := range []string{"waterline.io/qos=LSE", "koordinator.sh/qosClass=LS", "waterline.io/qos=BE"} {
		if out, err := tryKubectl("label", "pod", "bought", "-n", "hostile", label); err == nil ||
			!strings.Contains(out, "cannot be changed") {
			n.t.Errorf("%s: %v: %s", label, err, out)
		}
	}
	labelled := n.hostile("labelled", "labels: {waterline.io/qos: LSE}", sleeps(batch))
	n.warned("labelled", "BadLabel")
	n.limited(n.dirOf(&labelled))
}

// limited waits until a pod without a CPU limit has a quota, as suppression gives it to batch.
func (n *node) limited(dir string) {
	n.t.Helper()
	eventually(n.t, "a quota, as batch has", func() (bool, string) {
		quota := n.get(dir, model.Quota)
		return quota > 0, fmt.Sprint(quota)
	})
}

// testPrivileges requests what the policy allows to nobody, and then allows it to the namespace.
func (n *node) testPrivileges() {
	pod := n.hostile("greedy",
		`annotations: {waterline.io/cpu-quota: unlimited, waterline.io/cpu-manager: share}, labels: {waterline.io/qos: LSR}`,
		sleeps("requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 1, memory: 16Mi}"))
	n.warned("greedy", "NotPrivileged")
	dir := n.dirOf(&pod)
	n.expect(n.t, dir, model.Quota, 100_000)
	eventually(n.t, "a condition that it has no CPUs", func() (bool, string) {
		for _, c := range object[corev1.Pod](n.t, "pod", "greedy", "-n", "hostile").Status.Conditions {
			if c.Type == "waterline.io/CPUSet" && c.Status == corev1.ConditionFalse && c.Reason == "NotPrivileged" {
				return true, ""
			}
		}
		return false, ""
	})
	kubectl(n.t, "patch", "colocationpolicy", "default", "--type=merge", "-p",
		`{"spec":{"privileges":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"hostile"}},`+
			`"allow":["UnlimitedQuota"]}]}}`)
	n.expect(n.t, dir, model.Quota, model.Unlimited)
	kubectl(n.t, "patch", "colocationpolicy", "default", "--type=merge", "-p", `{"spec":{"privileges":null}}`)
	n.expect(n.t, dir, model.Quota, 100_000)
}

// TestAPIHostile lets a tenant write random annotations and labels on its pods, and checks that nothing changes on the
// pods of others.
func TestAPIHostile(t *testing.T) {
	f := newFake(t)
	kubectl(t, "patch", "colocationpolicy", "default", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/privileges"},{"op":"remove","path":"/spec/weight"}]`)
	kubectl(t, "create", "namespace", "hostile")
	t.Cleanup(func() { kubectl(t, "delete", "namespace", "hostile", "--wait=false") })
	eventually(t, "an account in the namespace", func() (bool, string) {
		out, err := tryKubectl("get", "serviceaccount", "default", "-n", "hostile")
		return err == nil, out
	})
	victims := map[string]string{
		"plain":    f.pod("plain", ""),
		"weighted": f.pod("weighted", `waterline.io/cpu-share: "400"`),
	}
	uid := object[corev1.Pod](t, "pod", "plain").UID
	f.start()
	f.expect(t, victims["weighted"], model.Shares, 400)

	r, sets := random(t), 60
	switch {
	case soak:
		sets = 1000
	case testing.Short():
		sets = 40
	}
	for i := range sets {
		annotations, labels := claims(t, r, string(uid))
		name := fmt.Sprintf("h%d", i)
		out, err := tryApply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: hostile, name: %s, annotations: %s, labels: %s}
spec: {nodeName: %s, containers: [{name: c, image: none, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}
`, name, annotations, labels, f.node))
		if err != nil {
			if !strings.Contains(out, "nvalid") {
				t.Logf("%s: %s", name, out)
			}
			continue
		}
		pod := object[corev1.Pod](t, "pod", name, "-n", "hostile")
		dir := f.layout.Pod(model.Burstable, string(pod.UID))
		f.mkdir(dir)
		f.set(t, dir, model.Shares, model.MilliCPUToShares(100))
		if i%10 == 9 {
			f.unharmed(victims)
			kubectl(t, "delete", "pods", "--all", "-n", "hostile", "--now", "--wait=false")
		}
	}
	f.unharmed(victims)
}

// random returns a source whose seed is logged.
func random(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// claims returns random annotations and labels with which a tenant may try to take what nobody granted, as JSON. The
// UID is that of another pod.
func claims(t *testing.T, r *rand.Rand, victim string) (annotations, labels string) {
	t.Helper()
	values := []string{
		"262144", "2", "-1", "1e9", "unlimited", "kubelet", "exclusive", "share", "none", "never", "first",
		"LSE", "LSR", "LS", "BE", "SYSTEM", "", victim, "../../kubepods", strings.Repeat("x", 300), "{}",
		`{"pod":{"request":{"cpu":99999}}}`,
	}
	keys := []string{
		"waterline.io/cpu-share", "iqiyi.com/cpu-share", "waterline.io/cpu-quota", "waterline.io/cpu-manager",
		"qos.gocrane.io/cpu-manager", "waterline.io/cpu-placement", "waterline.io/cpu-memory", "waterline.io/evict",
		"waterline.io/batch-resources", "kubernetes.io/config.hash", "kubernetes.io/config.mirror", "waterline.io/pool",
	}
	written, carried := map[string]string{}, map[string]string{}
	for range 1 + r.IntN(5) {
		written[keys[r.IntN(len(keys))]] = values[r.IntN(len(values))]
	}
	for _, key := range []string{"waterline.io/qos", "koordinator.sh/qosClass", "waterline.io/pool"} {
		value := values[r.IntN(len(values))]
		if r.IntN(2) == 0 && len(value) < 60 && !strings.ContainsAny(value, "./{-") {
			carried[key] = value
		}
	}
	text := func(m map[string]string) string {
		encoded, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	return text(written), text(carried)
}

// testClaims has the tenant write random annotations on running pods of each class, and checks every file of the pods
// of others. The policy allows nothing, not even weights beyond those of the requests and limits.
func (n *node) testClaims() {
	const path = `[{"op": "%s", "path": "/spec/weight"%s}]`
	kubectl(n.t, "patch", "colocationpolicy", "default", "--type=json", "-p", fmt.Sprintf(path, "remove", ""))
	defer kubectl(n.t, "patch", "colocationpolicy", "default", "--type=json", "-p",
		fmt.Sprintf(path, "add", `, "value": {"max": 262144}`))
	const guaranteed = "requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 100m, memory: 16Mi}"
	n.run("plain", "", "requests: {cpu: 100m, memory: 16Mi}", false)
	n.run("whole", "", guaranteed, false)
	weighted := n.run("weighted", `waterline.io/cpu-share: "400"`, "requests: {cpu: 100m}, limits: {cpu: 1}", false)
	n.expect(n.t, weighted, model.Shares, 400)
	var dirs []string
	for _, name := range []string{"plain", "whole", "weighted"} {
		container, _ := n.container(name)
		dirs = append(dirs, n.dir(name), container)
	}
	n.hostile("h0", "labels: {app: x}", sleeps(""))
	n.hostile("h1", "labels: {app: x}", sleeps("requests: {cpu: 100m}, limits: {cpu: 1}"))
	n.hostile("h2", "labels: {app: x}", sleeps(guaranteed))
	before := n.files(dirs)
	victim := string(object[corev1.Pod](n.t, "pod", "plain").UID)
	r, sets := random(n.t), 30
	if soak {
		sets = 1000
	}
	written := 0
	for i := range sets {
		annotations, _ := claims(n.t, r, victim) // labels of a running pod cannot change (testBought)
		out, err := tryKubectl("patch", "pod", fmt.Sprintf("h%d", i%3), "-n", "hostile", "--type=json", "-p",
			`[{"op": "add", "path": "/metadata/annotations", "value": `+annotations+`}]`)
		switch {
		case err == nil:
			written++
		case !strings.Contains(out, "config.mirror"): // that annotation cannot change
			n.t.Errorf("%s: %v: %s", annotations, err, out)
		}
		if i%10 < 9 {
			continue
		}
		for file, is := range n.files(dirs) {
			if was := before[file]; is != was {
				n.t.Errorf("%s is %q, was %q, with %s", file, is, was, annotations)
			}
		}
	}
	if n.t.Logf("%d of %d sets were written", written, sets); written < sets/2 {
		n.t.Error("most were refused")
	}
}

// unharmed checks that the victims' files are as they were.
func (f *fake) unharmed(victims map[string]string) {
	f.t.Helper()
	want := map[string]int64{"plain": 512, "weighted": 400}
	for name, dir := range victims {
		if !f.is(dir, model.Shares, want[name]) {
			f.t.Fatalf("the weight of %s is %d, want %d", name, f.get(dir, model.Shares), want[name])
		}
	}
}
