package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
	hadoop "github.com/waterline-io/waterline/test/bed/yarn"
)

// TestYARNGuard lets three containers of a worker grow until they have more memory than its limit, as containers do
// that asked for less than they use. With a guard, one container leaves, the kernel kills nobody, and the job runs that
// map again. Without one, the kernel kills.
func TestYARNGuard(t *testing.T) {
	withAndWithout(newNight(t), func(p *night, guarded bool, o outgrown) {
		switch {
		case !guarded && o.oomKills == 0:
			p.t.Error("without a guard, the kernel did not kill: this shows nothing")
		case guarded && (o.oomKills > 0 || o.restarts > 0 || o.killed != 1 || o.again != 1 || o.err != nil):
			p.t.Errorf("want no OOM kill, no restart, one container that left, and its map run again: %+v", o)
		case guarded:
			shows(p.t, "explain nm night-"+p.node.name+" -n "+hadoopNamespace, string(model.MemoryAtHardMark),
				"SIG"+string(shed.Terminate))
		}
	})
}

// withAndWithout has a worker with a guard outgrown, and then one without.
func withAndWithout(p *night, judge func(p *night, guarded bool, o outgrown)) {
	p.sub("Guard", func(p *night) { judge(p, true, p.outgrow(true)) })
	installChart(p.t, "--reuse-values", "--set", "manager.pools.guard.enabled=false")
	kubectl(p.t, "rollout", "status", "deployment/waterline-manager", "-n", "waterline-system", ready)
	p.sub("NoGuard", func(p *night) { judge(p, false, p.outgrow(false)) })
}

const (
	outgrowLimit = 1504 << 20 // of the worker beside a guard: floor and overhead without the guard's part
	outgrowGuard = 32 << 20   // the guard's part, which is the worker's without a guard
	outgrowEach  = 480        // MiB: three exceed the limit, two and their NodeManager do not reach the guard's mark
	outgrowQuick = outgrowLimit / 100 * 88
)

// outgrown is what became of a worker that was outgrown, and of the job.
type outgrown struct {
	oomKills int     // processes that the kernel killed in the worker
	restarts int32   // of the pod's containers
	again    int     // maps that ran more than once
	killed   int     // containers
	lost     float64 // seconds that these had run
	err      error   // of the job
}

// outgrow runs a job whose maps outgrow a worker, until one is ended by the guard or the kernel, and then to its end.
func (p *night) outgrow(guarded bool) (o outgrown) {
	stat := "/sys/fs/cgroup/memory.stat"
	if p.Version == cgroup.V1 {
		stat = "/sys/fs/cgroup/memory/memory.stat"
	}
	growth := hadoop.Growth{
		Dir: filepath.Join(bed.Shared(), "outgrow"), There: "/shared/outgrow", Java: "/opt/java/bin/java",
		Stat: stat, Each: outgrowEach, Quick: outgrowQuick,
	}
	grow, err := growth.Begin()
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
	limit := int64(outgrowLimit)
	if !guarded {
		limit += outgrowGuard
	}
	p.expect(p.t, worker, model.MemoryMax, limit)
	j, _ := p.job(p.Sleep(p.t.Context(), 3, 1, time.Second, append(onLabel, grow)...))
	eventually(p.t, "a container is ended", func() (bool, string) {
		o.oomKills, o.restarts = p.oomKills(worker, name)
		if o.oomKills > 0 || !guarded {
			return o.oomKills > 0, p.held(worker)
		}
		out, err := tryKubectl("logs", name, "-n", hadoopNamespace, "-c", "guard")
		return err == nil && strings.Contains(out, `"left":true`), fmt.Sprintf("%v: %s; %s", err, out, p.held(worker))
	})
	if err := growth.End(); err != nil {
		p.t.Fatal(err)
	}
	<-j.Done()
	o.err = j.Wait(p.t.Context())
	o.again = j.Counter("Failed map tasks") + j.Counter("Killed map tasks")
	kills, restarts := p.oomKills(worker, name)
	o.oomKills, o.restarts = max(o.oomKills, kills), max(o.restarts, restarts)
	o.killed, o.lost = p.killed(name)
	p.t.Logf("%+v", o)
	return o
}

// killed returns how many containers of a worker did not end by themselves, and how many seconds these had run.
func (p *night) killed(worker string) (count int, seconds float64) {
	p.t.Helper()
	dir := p.t.TempDir()
	for file, args := range map[string][]string{"rm1": {"rm"}, worker: {worker, "-c", "worker"}} {
		args = append([]string{"logs", "-n", hadoopNamespace}, args...)
		before, _ := tryKubectl(append(args, "--previous")...) // it may not have been started again
		out, err := tryKubectl(args...)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file+".log"), []byte(before+"\n"+out+"\n"), 0o644)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	ledger, err := hadoop.ReadLedger(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range ledger.Killed {
		if k.Node == worker {
			count++
			seconds += max(k.At.Sub(k.Began), 0).Seconds()
		}
	}
	return count, seconds
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

// oomKills returns how many processes the kernel killed in the cgroup of a worker because of its memory limit, and how
// often containers of its pod were started again. One that was, has another cgroup.
func (p *night) oomKills(dir, pod string) (n int, restarts int32) {
	p.t.Helper()
	s := object[corev1.Pod](p.t, "pod", pod, "-n", hadoopNamespace).Status
	for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
		restarts += c.RestartCount
		if e := c.LastTerminationState.Terminated; e != nil && e.Reason == "OOMKilled" {
			n++
		}
	}
	count, err := hadoop.OOMKills(p.Version, func(file string) ([]byte, error) {
		return p.readFile(filepath.Join(p.OfKnob(model.MemoryMax), dir, file))
	})
	if errors.Is(err, fs.ErrNotExist) {
		return n, restarts
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return n + count, restarts
}

// held returns what the kernel says of the memory in a worker's cgroup, for the log.
func (p *night) held(dir string) string {
	content, err := p.readFile(filepath.Join(p.OfKnob(model.MemoryMax), dir, "memory.stat"))
	return fmt.Sprintf("%s, %v", content, err)
}
