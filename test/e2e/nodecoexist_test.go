package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// koordlet does what Koordinator's agent does to the cgroups of one batch pod: each second it compares their files with
// what follows from the pod's batch resources, and writes those that differ.
type koordlet struct {
	n    *node
	want []wanted

	mu     sync.Mutex
	writes int
	errs   []string
}

// newKoordlet starts the agent for a pod, and returns when all files have its values. It ends with the test.
func newKoordlet(n *node, pod, container string, milli, memory int64) *koordlet {
	n.t.Helper()
	shares, quota := model.MilliCPUToShares(milli), model.MilliCPUToQuota(milli, model.DefaultQuotaPeriod)
	k := &koordlet{n: n, want: []wanted{
		{n.layout.Class(model.BestEffort), model.Quota, 150_000}, // its suppression of all batch pods together
		{pod, model.Shares, shares}, {pod, model.Quota, quota}, {pod, model.MemoryMax, memory},
		{container, model.Shares, shares}, {container, model.Quota, quota}, {container, model.MemoryMax, memory},
	}}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			k.reconcile()
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}()
	n.t.Cleanup(func() {
		close(end)
		<-done
		if len(k.errs) > 0 {
			n.t.Errorf("Koordinator's agent: %q", k.errs)
		}
		n.set(n.t, n.layout.Class(model.BestEffort), model.Quota, model.Unlimited)
	})
	for _, w := range k.want {
		n.expect(n.t, w.dir, w.knob, w.value)
	}
	return k
}

func (k *koordlet) reconcile() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.want {
		if k.n.is(w.dir, w.knob, w.value) {
			continue
		}
		k.writes++
		if err := k.n.writeFile(k.n.path(w.dir, w.knob), []byte(k.n.text(w.knob, w.value))); err != nil {
			k.errs = append(k.errs, err.Error())
		}
	}
}

// wrote returns how many writes there were since the last call.
func (k *koordlet) wrote() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer func() { k.writes = 0 }()
	return k.writes
}

// TestNodeCoexist installs Waterline on a real node that Koordinator manages: its manager publishes batch resources on
// the Node, a pod requests them, and its agent writes the files of that pod. Waterline observes, then enforces on nodes
// with a label, which this node gets and loses again. The other system's resources and pod never change. Both agents
// want the same values in the pod's files, so neither writes against the other, and in the end every file is as it was
// before. TestAPICoexist has other ways back.
func TestNodeCoexist(t *testing.T) {
	oneNode(t, "objects and pods are the same there, and level 4 has every step")
	n := install(t, "--set", "manager.enabled=true", "--set-json", `policy={"mode": "Observe", "cpu": {}, "memory": {}}`)
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(tryKubectl("get", "nodereport", n.name, "-o", "yaml"))
		}
	})
	const cpu, memory = v1alpha1.ResourceKoordinatorBatchCPU, v1alpha1.ResourceKoordinatorBatchMemory
	publish := func(amounts string) {
		t.Helper()
		kubectl(t, "patch", "node", n.name, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status": {"capacity": %[1]s, "allocatable": %[1]s}}`, amounts))
	}
	publish(fmt.Sprintf(`{%q: "8000", %q: "16Gi"}`, cpu, memory))
	t.Cleanup(func() { publish(fmt.Sprintf(`{%q: null, %q: null}`, cpu, memory)) })
	apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: koord-batch}, value: 5000}`)
	pod := strings.Replace(n.batch("theirs", true, 100, 64<<20), "labels: {"+v1alpha1.LabelQoS+": BE}",
		"labels: {"+v1alpha1.LabelQoSAlias+": BE}", 1)
	apply(t, strings.Replace(pod, "spec:\n", "spec:\n  priorityClassName: koord-batch\n", 1))
	kubectl(t, "wait", "--for=condition=Ready", "pod/theirs", ready)
	container, _ := n.container("theirs")
	theirs := newKoordlet(n, n.dir("theirs"), container, 100, 64<<20)
	dirs := []string{n.dir("theirs"), container, n.layout.Class(model.BestEffort)}
	before := n.files(dirs)
	theirs.wrote()

	unchanged := func(when, milli string) {
		t.Helper()
		time.Sleep(3 * time.Second) // whatever Waterline would write, it had the time
		node := object[corev1.Node](t, "node", n.name)
		for name, want := range map[corev1.ResourceName]string{cpu: milli, memory: "16Gi"} {
			capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
			if capacity.String() != want || allocatable.String() != want {
				t.Errorf("%s: the Node has %s and %s of %s, want %s", when, &capacity, &allocatable, name, want)
			}
		}
		if record := node.Annotations[v1alpha1.AnnotationPublished]; record != "" {
			t.Errorf("%s: the Node has the record %s", when, record)
		}
		p := object[corev1.Pod](t, "pod", "theirs")
		requests := p.Spec.Containers[0].Resources.Requests
		if len(requests) != 2 || requests.Name(cpu, "").Value() != 100 || p.Spec.PriorityClassName != "koord-batch" ||
			p.Annotations[v1alpha1.AnnotationBatchResources] != "" || p.Status.Phase != corev1.PodRunning ||
			p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: their pod requests %v, has class %s and annotations %v, and is %s", when, requests,
				p.Spec.PriorityClassName, p.Annotations, p.Status.Phase)
		}
	}
	same := func(when string) {
		t.Helper()
		eventually(t, when+", every file is as before", func() (bool, string) {
			now, wrong := n.files(dirs), []string{}
			for file, was := range before {
				if now[file] != was {
					wrong = append(wrong, fmt.Sprintf("%s is %q, was %q", file, now[file], was))
				}
			}
			slices.Sort(wrong)
			return len(wrong) == 0 && len(now) == len(before) && len(before) >= 10,
				fmt.Sprintf("of %d files\n%s", len(now), strings.Join(wrong, "\n"))
		})
	}
	reports := func(mode model.Mode) {
		t.Helper()
		eventually(t, fmt.Sprintf("the node reports mode %s", mode), func() (bool, string) {
			r := object[v1alpha1.NodeReport](t, "nodereport", n.name).Status
			return string(r.Mode) == string(mode), fmt.Sprintf("%+v", r)
		})
	}
	reports(model.ModeObserve)
	unchanged("observing", "8k")
	same("observing")
	if writes := theirs.wrote(); writes != 0 {
		t.Errorf("observing, %d files had foreign values", writes)
	}

	n.policy(strings.Replace(selling("Enforce", "Static"), "{",
		`{"nodeSelector": {"matchLabels": {"canary": "true"}}, `, 1))
	unchanged("enforcing elsewhere", "8k")
	reports(model.ModeObserve)
	same("enforcing elsewhere")

	kubectl(t, "label", "node", n.name, "canary=true")
	t.Cleanup(func() { kubectl(t, "label", "node", n.name, "canary-") })
	n.sold(false, "the node sells", func(is int64) bool { return is > 0 })
	a := n.run("a", "waterline.io/cpu-share: \"2048\"", "requests: {cpu: 100m}", false)
	n.expect(t, a, model.Shares, 2048)
	reports(model.ModeEnforce)
	publish(fmt.Sprintf(`{%q: "7000"}`, cpu))
	unchanged("enforcing", "7k")
	if writes := theirs.wrote(); writes != 0 {
		t.Errorf("enforcing, %d files had foreign values", writes)
	}

	kubectl(t, "label", "node", n.name, "canary-")
	n.sold(false, "the node sells nothing", func(is int64) bool { return is == 0 })
	n.expect(t, a, model.Shares, model.MilliCPUToShares(100))
	reports(model.ModeObserve)
	unchanged("observing again", "7k")
	same("observing again")
	if writes := theirs.wrote(); writes != 0 {
		t.Errorf("when Waterline let go of the files, %d had foreign values", writes)
	}
}
