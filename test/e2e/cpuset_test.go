package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// cpuPod makes a pod that requests CPUs. Each container that starts in it first prints its allowed CPUs.
func (n *node) cpuPod(name, mode, cpu string) {
	n.t.Helper()
	apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {waterline.io/cpu-manager: %s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  containers:
    - name: c
      image: "%s"
      imagePullPolicy: Never
      command: [sh, -c, "grep Cpus_allowed_list /proc/self/status; sleep 1000000"]
      resources: {requests: {cpu: %s}, limits: {cpu: %s}}
`, name, mode, n.name, cluster.BusyboxImage, cpu, cpu))
	kubectl(n.t, "wait", "--for=condition=Ready", "pod/"+name, ready)
}

// began returns the CPUs on which the newest container of a pod started.
func (n *node) began(name string) string {
	n.t.Helper()
	var list string
	eventually(n.t, name+" prints its CPUs", func() (bool, string) {
		out, err := tryKubectl("logs", name)
		_, list, _ = strings.Cut(out, ":")
		list = strings.TrimSpace(list)
		return err == nil && list != "", out
	})
	return list
}

// cpuCondition waits until a pod's condition is right, and returns its message.
func (n *node) cpuCondition(name string, status corev1.ConditionStatus, reason model.Code) string {
	n.t.Helper()
	var message string
	eventually(n.t, fmt.Sprintf("%s: %s %s", name, status, reason), func() (bool, string) {
		for _, c := range object[corev1.Pod](n.t, "pod", name).Status.Conditions {
			if c.Type == v1alpha1.ConditionCPUSet {
				message = c.Message
				return c.Status == status && c.Reason == string(reason), fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		return status == "", "no condition"
	})
	return message
}

// own returns the CPUs in a pod's condition.
func (n *node) own(name string, mode model.Code) model.CPUSet {
	n.t.Helper()
	set, err := model.ParseCPUs(strings.TrimPrefix(n.cpuCondition(name, corev1.ConditionTrue, mode), "c "))
	if err != nil {
		n.t.Fatal(err)
	}
	return set
}

// runsOn waits until the kernel lets a pod's container run on these CPUs.
func (n *node) runsOn(name string, want model.CPUSet) {
	n.t.Helper()
	dir, _ := n.container(name)
	eventually(n.t, fmt.Sprintf("%s runs on %s", name, want), func() (bool, string) {
		got := n.cpus(dir)
		return got == want, got.String()
	})
}

// keepOff waits until no container of another pod of the node may run on these CPUs.
func (n *node) keepOff(owner string, cpus model.CPUSet) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s is the only pod on %s", owner, cpus), func() (bool, string) {
		var there []string
		for _, pod := range object[corev1.PodList](n.t, "pods", "-A", "--field-selector",
			"status.phase=Running,spec.nodeName="+n.name).Items {
			for _, s := range pod.Status.ContainerStatuses {
				_, id, _ := strings.Cut(s.ContainerID, "://")
				if pod.Name == owner || s.State.Running == nil {
					continue
				}
				on, err := n.tryCPUs(n.containerDir(n.dirOf(&pod), id))
				if err != nil || on.Overlaps(cpus) { // it may have gone since it was listed
					there = append(there, fmt.Sprintf("%s/%s on %s: %v", pod.Namespace, pod.Name, on, err))
				}
			}
		}
		return len(there) == 0, fmt.Sprint(there)
	})
}

func (n *node) annotateCPUs(name, mode string) {
	n.t.Helper()
	kubectl(n.t, "annotate", "--overwrite", "pod", name, "waterline.io/cpu-manager="+mode)
}

// testCPUs walks pods that request CPUs through their lives on a real node, which has two.
func (n *node) testCPUs() {
	t := n.t
	n.run("bystander", "", "", false)
	dir, _ := n.container("bystander")
	all := n.cpus(dir)

	t.Log("a pod gets exclusive CPUs, and runs on them from its first instruction")
	n.cpuPod("alone", "exclusive", "1")
	mine := n.own("alone", model.CPUsExclusive)
	rest := all.Minus(mine)
	n.runsOn("alone", mine)
	n.runsOn("bystander", rest)
	n.keepOff("alone", mine)
	if began := n.began("alone"); began != mine.String() {
		t.Errorf("its container started on %s, not on %s", began, mine)
	}

	t.Log("pods that start later never run on these CPUs")
	if on := n.firstAct("later"); on != rest.String() {
		t.Errorf("the first instruction of another pod ran on %s, not on %s", on, rest)
	}

	t.Log("no more CPUs are free: the pod has a condition and its owner an event")
	n.cpuPod("second", "exclusive", "500m")
	n.cpuCondition("second", corev1.ConditionFalse, model.CPUsNotWhole)
	n.runsOn("second", rest)
	eventually(t, "an event", func() (bool, string) {
		out := kubectl(t, "get", "events", "--field-selector",
			"involvedObject.name=second,reason="+string(model.CPUsNotWhole), "-o", "name")
		return out != "", out
	})

	t.Log("the agent repairs other writers' values")
	container, _ := n.container("alone")
	n.setCPUs(container, rest.String())
	n.runsOn("alone", mine)

	t.Log("the pod's annotation changes while it runs")
	n.annotateCPUs("alone", "share")
	home := n.own("alone", model.CPUsShare)
	n.runsOn("alone", home)
	n.runsOn("bystander", all)
	n.annotateCPUs("alone", "none")
	n.cpuCondition("alone", "", "")
	n.runsOn("alone", all)
	n.annotateCPUs("alone", "exclusive")
	mine = n.own("alone", model.CPUsExclusive)
	rest = all.Minus(mine)
	n.runsOn("alone", mine)
	n.runsOn("bystander", rest)

	if !oldKubelet(t) {
		t.Log("the pod is resized to a fraction of a CPU, and back")
		resizeTo(t, "alone", "500m", "500m")
		n.cpuCondition("alone", corev1.ConditionFalse, model.CPUsNotWhole)
		n.runsOn("alone", all)
		n.runsOn("bystander", all)
		resizeTo(t, "alone", "1", "1")
		mine = n.own("alone", model.CPUsExclusive)
		rest = all.Minus(mine)
		n.runsOn("alone", mine)
		n.expect(t, container, model.Quota, model.Unlimited)
		n.keepOff("alone", mine)
	}

	t.Log("its container restarts")
	_, before := n.container("alone")
	if out, err := n.ctr("tasks", "kill", "--signal", "SIGKILL", before); err != nil {
		t.Fatal(err, out)
	}
	eventually(t, "another container", func() (bool, string) {
		_, id := n.container("alone")
		return id != before, id
	})
	n.runsOn("alone", mine)
	if began := n.began("alone"); began != mine.String() {
		t.Errorf("the new container started on %s, not on %s", began, mine)
	}

	t.Log("the agent and the container runtime restart")
	agent := n.agent().Name
	kubectl(t, "delete", "pod", "-n", "waterline-system", agent)
	kubectl(t, "rollout", "status", "daemonset/waterline-agent", "-n", "waterline-system", ready)
	n.mustRestart("containerd")
	n.runsOn("alone", mine)
	n.runsOn("bystander", rest)
	n.keepOff("alone", mine)
	eventually(t, "a new pod starts on other CPUs", func() (bool, string) {
		on := n.firstAct(fmt.Sprintf("again-%d", time.Now().UnixNano()))
		return on == rest.String(), on
	})

	t.Log("the output of the commands")
	out, err := program("waterline", "cpus", "--kubeconfig", bed.Kubeconfig(), "--node", n.name)
	if err != nil || !regexp.MustCompile(`(?m)default/alone.*exclusive.*`+mine.String()).MatchString(out) {
		t.Errorf("waterline cpus: %v\n%s", err, out)
	}
	out, err = program("waterline", "cpus", "--kubeconfig", bed.Kubeconfig(), "--plan", "default/alone=none")
	if err != nil || !strings.Contains(out, "default/bystander") {
		t.Errorf("waterline cpus --plan: %v\n%s", err, out)
	}

	t.Log("the pod goes, and the others may run on all CPUs again")
	kubectl(t, "delete", "pod", "alone", "--wait")
	n.runsOn("bystander", all)
}
