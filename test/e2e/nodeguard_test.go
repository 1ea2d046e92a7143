package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/cluster"
)

// Containers of a stand-in for a NodeManager.
const (
	steadyContainer  = "container_1_0001_01_000001"
	growingContainer = "container_1_0001_01_000002"
)

// growing1MiB is the script of a container that holds 1 MiB more each time. From the guard's mark to the limit it takes
// some seconds, whatever else the machine does.
const growing1MiB = `i=0
while [ $i -lt 300 ]; do
	eval "held$i=\$(head -c 1048576 /dev/zero | tr '\\0' x)"
	i=$((i + 1))
	sleep 0.3
done
sleep 100000`

// testGuard has a container of a worker grow to the memory limit on cgroup v2, where the kubelet sets memory.oom.group,
// in a pod like those of a pool with a stand-in for the NodeManager. Without a guard, the kernel ends the worker with
// all its containers. With one, the container leaves, and the kernel kills nobody.
func (n *node) testGuard() {
	const sidecar = `
  initContainers:
  - {name: guard, image: "waterline/guard:dev", imagePullPolicy: Never, restartPolicy: Always,
    args: [--hard-memory-percent=70, --listen=], resources: {limits: {memory: 32Mi}}}`
	start := fmt.Sprintf("CONTAINER_ID=%s sleep 100000 & sleep 1\nCONTAINER_ID=%s sh -c %q & wait", steadyContainer,
		growingContainer, "$1")
	for name, guard := range map[string]string{"guarded": sidecar, "unguarded": ""} {
		apply(n.t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 1
  restartPolicy: Never
  shareProcessNamespace: true
  securityContext: {runAsUser: 1000}%s
  containers:
  - {name: worker, image: %q, imagePullPolicy: Never, resources: {limits: {memory: 128Mi}},
    command: [sh, -c, %q, org.apache.hadoop.yarn.server.nodemanager.NodeManager, %q]}
`, name, n.name, guard, cluster.BusyboxImage, start, growing1MiB))
		n.t.Cleanup(func() { kubectl(n.t, "delete", "pod", name, "--ignore-not-found", "--grace-period=1") })
	}
	dir, _ := n.container("guarded")
	read := func(file string) string {
		content, err := n.readFile(filepath.Join(n.Path, dir, file))
		if err != nil {
			n.t.Fatal(err)
		}
		return string(content)
	}
	if group := strings.TrimSpace(read("memory.oom.group")); group != "1" {
		n.t.Fatalf("memory.oom.group is %q: this shows nothing", group)
	}
	status := func(name string) corev1.ContainerState {
		return object[corev1.Pod](n.t, "pod", name).Status.ContainerStatuses[0].State
	}
	eventually(n.t, "the kernel ends the worker without a guard", func() (bool, string) {
		s := status("unguarded")
		return s.Terminated != nil && s.Terminated.Reason == "OOMKilled", fmt.Sprintf("%+v", s)
	})
	var log string
	eventually(n.t, "the container that grows leaves the other worker", func() (bool, string) {
		log, _ = tryKubectl("logs", "guarded", "-c", "guard")
		return strings.Contains(log, `"left":true`), log
	})
	if !strings.Contains(log, fmt.Sprintf(`"signal":%q`, shed.Terminate)) || strings.Contains(log, steadyContainer) ||
		!strings.Contains(log, string(model.MemoryAtHardMark)) {
		n.t.Errorf("the guard did something else:\n%s", log)
	}
	if s := status("guarded"); s.Running == nil || !strings.Contains(read("memory.events"), "oom_kill 0\n") {
		n.t.Errorf("the worker with a guard: %+v; memory.events: %s", s, read("memory.events"))
	}
}
