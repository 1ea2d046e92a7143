package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
)

// TestYARNGuard lets three containers of a worker grow until they have more memory than its limit, as containers do
// that asked for less than they use. With a guard, one container leaves, the kernel kills nobody, and the job runs that
// map again. Without one, the kernel kills.
func TestYARNGuard(t *testing.T) {
	p := newNight(t)
	p.sub("Guard", func(p *night) { p.outgrow(true) })
	installChart(t, "--reuse-values", "--set", "manager.pools.guard.enabled=false")
	kubectl(t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	p.sub("NoGuard", func(p *night) { p.outgrow(false) })
}

// What the maps of a job that outgrows its worker do. The first attempt of each holds 1 MiB more again and again, up to
// a maximum, until the test tells it to go on. It is quick at first. Near the guard's mark it takes a second for each
// MiB, so that the guard has longer than it ever needs, whatever else the machine does.
const growing = `#!/bin/bash
stat=/sys/fs/cgroup/memory/memory.stat
[ -e $stat ] || stat=/sys/fs/cgroup/memory.stat
case "$*" in *_m_*_0\ *)
  i=0
  until [ -e %[1]s/go ]; do
    if [ $i -lt %[2]d ]; then
      printf -v "held$i" %%1048576s
      i=$((i + 1))
    fi
    while read -r key value; do
      case $key in total_rss | anon) used=$value ;; esac
    done < $stat
    if [ $used -lt %[3]d ]; then sleep 0.1; else sleep 1; fi
  done
esac
exec /opt/java/bin/java "$@"
`

const (
	outgrowLimit = 1504 << 20 // of the worker: floor and overhead without the guard's part
	outgrowEach  = 480        // MiB: three exceed the limit, two and their NodeManager do not reach the guard's mark
	outgrowQuick = outgrowLimit / 100 * 88
)

// outgrow runs a job whose maps outgrow a worker.
func (p *night) outgrow(guarded bool) {
	dir := filepath.Join(bed.Shared(), "outgrow")
	err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "bin"), 0o755),
		os.WriteFile(filepath.Join(dir, "bin/java"), fmt.Appendf(nil, growing, "/shared/outgrow", outgrowEach, outgrowQuick),
			0o755))
	if err != nil {
		p.t.Fatal(err)
	}
	// With Hadoop's default, the NodeManager itself ends a container that uses more than it asked for. Clusters that let
	// containers use each other's memory have this.
	p.pool(`
    properties: {yarn.nodemanager.pmem-check-enabled: "false"}
  size: {floor: {cpu: "1", memory: 1Gi}}
  identity: {coolDown: 1s}`)
	p.active(1)
	name := "night-" + p.node.name
	pod := object[corev1.Pod](p.t, "pod", name, "-n", hadoopNamespace)
	worker := p.workerDir(&pod)
	p.expect(p.t, worker, model.MemoryMax, outgrowLimit)

	j, _ := p.job(p.Sleep(p.t.Context(), 3, 1, 0, append([]string{"-Dmapreduce.map.env=JAVA_HOME=/shared/outgrow"},
		onLabel...)...))
	if !guarded {
		eventually(p.t, "the kernel kills", func() (bool, string) {
			kills, restarts := p.oomKills(worker), p.restarts(name)
			return kills > 0 || restarts > 0, fmt.Sprintf("%d kills, %d restarts; %s", kills, restarts, p.held(worker))
		})
		p.t.Logf("%d OOM kills, %d restarts of the worker", p.oomKills(worker), p.restarts(name))
		return
	}
	eventually(p.t, "the guard has a container leave", func() (bool, string) {
		out, err := tryKubectl("logs", name, "-n", hadoopNamespace, "-c", "guard")
		return err == nil && strings.Contains(out, `"left":true`), fmt.Sprintf("%v: %s; %s", err, out, p.held(worker))
	})
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		p.t.Fatal(err)
	}
	p.finish(j)
	if again := j.Counter("Failed map tasks") + j.Counter("Killed map tasks"); again != 1 {
		p.t.Errorf("%d maps ran again, want 1: %s", again, j.Output())
	}
	shows(p.t, "explain nm "+name+" -n "+hadoopNamespace, string(model.MemoryAtHardMark), "SIG"+string(shed.Terminate))
	if kills, restarts := p.oomKills(worker), p.restarts(name); kills > 0 || restarts > 0 {
		p.t.Errorf("beside a guard, the kernel killed %d processes, and containers of the pod were started again %d times",
			kills, restarts)
	}
}

// workerDir returns the cgroup of the NodeManager in a worker's pod.
func (p *night) workerDir(pod *corev1.Pod) string {
	p.t.Helper()
	if len(pod.Status.ContainerStatuses) != 1 {
		p.t.Fatalf("the pod has no one container: %+v", pod.Status)
	}
	_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	return p.containerDir(p.dirOf(pod), id)
}

// restarts returns how often containers of a pod were started again.
func (p *night) restarts(name string) (n int32) {
	p.t.Helper()
	s := object[corev1.Pod](p.t, "pod", name, "-n", hadoopNamespace).Status
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		n += c.RestartCount
	}
	return n
}

// oomKills returns how many processes the kernel killed in a cgroup because of its memory limit; 0 if it is gone.
func (p *night) oomKills(dir string) (n int) {
	p.t.Helper()
	file := "memory.events"
	if p.Version == cgroup.V1 {
		file = "memory.oom_control"
	}
	content, err := p.readFile(filepath.Join(p.OfKnob(model.MemoryMax), dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			return n
		}
	}
	p.t.Fatalf("%s does not count kills: %s", file, content)
	return 0
}

// held returns what the kernel says of the memory in a worker's cgroup, for the log.
func (p *night) held(dir string) string {
	content, err := p.readFile(filepath.Join(p.OfKnob(model.MemoryMax), dir, "memory.stat"))
	return fmt.Sprintf("%s, %v", content, err)
}
