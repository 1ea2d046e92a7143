package e2e_test

import (
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
	"cpu": {"method": "Static", "ratio": "100%", "suppression": "Quota"}}`

// TestNodeTenants checks what a tenant can reach by what it may write into its own namespace.
func TestNodeTenants(t *testing.T) {
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

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	sets := 200
	if soak {
		sets = 1000
	}
	values := []string{
		"262144", "2", "-1", "1e9", "unlimited", "kubelet", "exclusive", "share", "none", "never", "first",
		"LSE", "LSR", "LS", "BE", "SYSTEM", "", string(uid), "../../kubepods", strings.Repeat("x", 300), "{}",
		`{"pod":{"request":{"cpu":99999}}}`,
	}
	keys := []string{
		"waterline.io/cpu-share", "iqiyi.com/cpu-share", "waterline.io/cpu-quota", "waterline.io/cpu-manager",
		"qos.gocrane.io/cpu-manager", "waterline.io/cpu-placement", "waterline.io/cpu-memory", "waterline.io/evict",
		"waterline.io/batch-resources", "kubernetes.io/config.hash", "kubernetes.io/config.mirror", "waterline.io/pool",
	}
	some := func(from []string) string { return from[r.IntN(len(from))] }
	for i := range sets {
		var annotations, labels []string
		for range 1 + r.IntN(5) {
			annotations = append(annotations, fmt.Sprintf("%s: %q", some(keys), some(values)))
		}
		for _, key := range []string{"waterline.io/qos", "koordinator.sh/qosClass", "waterline.io/pool"} {
			if value := some(values); r.IntN(2) == 0 && len(value) < 60 && !strings.ContainsAny(value, "./{-") {
				labels = append(labels, fmt.Sprintf("%s: %q", key, value))
			}
		}
		name := fmt.Sprintf("h%d", i)
		out, err := tryApply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: hostile, name: %s, annotations: {%s}, labels: {%s}}
spec: {nodeName: %s, containers: [{name: c, image: none, resources: {requests: {cpu: 100m}, limits: {cpu: 1}}}]}
`, name, strings.Join(distinct(annotations), ", "), strings.Join(labels, ", "), f.node))
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

// distinct drops all but the first entry of each key.
func distinct(entries []string) []string {
	seen := map[string]bool{}
	var all []string
	for _, e := range entries {
		key, _, _ := strings.Cut(e, ": ")
		if !seen[key] {
			seen[key] = true
			all = append(all, e)
		}
	}
	return all
}
