package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// TestNodeEvict lets a node without memory left for batch request the eviction of one of two pods, while there is no
// manager and, in full form, for a while no API server. Then a manager evicts one. Neither pod obeys SIGTERM.
func TestNodeEvict(t *testing.T) {
	oneNode(t, "the agent and the manager are the same there")
	n := install(t, "--set", "manager.enabled=true,manager.webhook.enabled=false", "--set-json",
		`manager.nodeSelector={"nowhere":"true"}`)
	const grace = 5 * time.Second
	pods := []string{"stubborn-1", "stubborn-2"}
	for _, name := range pods {
		manifest := strings.NewReplacer("annotations: {}", "labels: {"+v1alpha1.LabelQoS+": BE}",
			"terminationGracePeriodSeconds: 1", fmt.Sprintf("terminationGracePeriodSeconds: %d", int(grace.Seconds())),
			"sleep 1000000", "trap '' TERM; while :; do sleep 1; done")
		apply(t, manifest.Replace(n.manifest(name, "", "", false)))
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, ready)
	}
	lives := map[string]func(when string){}
	for _, name := range pods {
		lives[name] = n.living(name)
	}

	n.policy(`{"mode": "Enforce", "cpu": {"method":"Static", "ratio": "50%"}, "memory": {"waterline": "1%"}, ` +
		`"protect": {"eviction":{}}}`)
	report := func() v1alpha1.NodeReport { return object[v1alpha1.NodeReport](t, "nodereport", n.name) }
	requests := func() (bool, string) {
		status := report().Status
		return status.Eviction != nil && status.Hot != "", fmt.Sprintf("%+v", status)
	}
	eventually(t, "the node requests an eviction", requests)
	n.sold(false, "the hot node offers nothing to batch", func(cpu int64) bool { return cpu == 0 })
	// After a kill of an API server with etcd 3.4, its view of objects may stay old for minutes. The tests after this one
	// need a current view.
	if soak {
		control(t, "kill", "apiserver")
		time.Sleep(5 * time.Second)
		startAPI(t)
	}
	for _, check := range lives {
		check("there was no manager")
	}
	eventually(t, "the node still requests an eviction", requests)

	changes := newUser(t, bed.Kubeconfig()).record(t, "/api/v1/namespaces/default/pods")
	m := &managed{t: t, config: kubeconfig(t, kubectl(t, "create", "token", "waterline-manager", "-n",
		"waterline-system"))}
	m.manager("--webhook=", "--eviction-period=40s", "--lost-after=2m", "--fresh-within=1m", "--back-after=1s")
	var first, other string
	eventually(t, "one of them leaves", func() (bool, string) {
		for i, name := range pods {
			if leaves(t, name) {
				first, other = name, pods[1-i]
				return true, ""
			}
		}
		return false, m.metrics()
	})
	pod := object[corev1.Pod](t, "pod", first)
	if pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != int64(grace.Seconds()) {
		t.Errorf("its grace period is not its own: %v", pod.DeletionGracePeriodSeconds)
	}
	eventually(t, "it has ended, though it ignores SIGTERM", func() (bool, string) {
		out, err := tryKubectl("get", "pod", first)
		return err != nil && strings.Contains(out, "NotFound"), out
	})
	// The kubelet kills it when its grace period is over, and writes down when. Both times are in whole seconds.
	killed := false
	for _, c := range changes() {
		var was corev1.Pod
		if err := json.Unmarshal(c.object, &was); err != nil {
			t.Fatal(err)
		}
		for _, s := range was.Status.ContainerStatuses {
			if end := s.State.Terminated; end != nil && c.name == first {
				killed = true
				if early := pod.DeletionTimestamp.Sub(end.FinishedAt.Time); early > 2*time.Second {
					t.Errorf("it ended %s before its grace period was over", early)
				}
			}
		}
	}
	if !killed {
		t.Error("the kubelet never reported its end")
	}
	if leaves(t, other) {
		t.Error("the second pod leaves before the effect of the first is known")
	}
	lives[other]("another pod was evicted")
}
