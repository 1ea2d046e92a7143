package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// own is a sampler of the services of a fake node, which is sampled once a second.
type own struct{ *waits }

func newOwn(t *testing.T, pods ...string) *own {
	t.Helper()
	w := &own{newWaits(t, pods...)}
	w.w.system.owner = uint32(os.Getuid())
	w.marks = nil
	for _, uid := range model.SystemGroups() {
		w.marks = append(w.marks, model.WaitMark{PodWait: model.PodWait{UID: uid}})
	}
	w.process(1, "systemd", "0::/init.scope\n", 0)
	return w
}

const kernelThread = 0x200040 // flags of one

// process begins, or changes, a process. Each of its tasks has waited for a second.
func (w *own) process(pid int, name, cgroups string, flags int64, tids ...int) {
	w.t.Helper()
	dir := filepath.Join(w.proc, fmt.Sprint(pid))
	w.file(filepath.Join(dir, "cgroup"), cgroups)
	w.file(filepath.Join(dir, "stat"), fmt.Sprintf("%d (%s) S 1 1 1 0 -1 %d 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 0 0 0 0 0 "+
		"0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n", pid, name, flags))
	for _, tid := range append(tids, pid) {
		w.waited(pid, tid, 1000)
	}
}

// waited sets for how long a task has waited in its life, in milliseconds.
func (w *own) waited(pid, tid int, waited int64) {
	w.t.Helper()
	file := filepath.Join(w.proc, fmt.Sprint(pid), "task", fmt.Sprint(tid), "schedstat")
	w.file(file, fmt.Sprintf("5 %d 7\n", waited*1e6))
}

// seconds samples for some seconds.
func (w *own) seconds(n int) {
	w.t.Helper()
	for range n {
		w.boot += time.Second
		if err := w.w.Sample(w.marks); err != nil {
			w.t.Fatal(err)
		}
	}
}

// sums returns for how long the services of each group have waited.
func (w *own) sums() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, s := range w.w.Append(nil) {
		all[s.UID] = s.Waited
	}
	return all
}

// TestSystem checks which processes are the node's own services. A process in a pod is none, whatever it is called, and
// neither is one of a shell.
func TestSystem(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const v1 = "9:name=systemd:%[1]s\n5:cpu,cpuacct:%[1]s\n0::/\n"
	w := newOwn(t, "web")
	pod := w.pods["web"].Dir
	for i, c := range []struct {
		name, cgroups string
		flags         int64
		want          string
	}{
		{"kubelet", "0::/system.slice/kubelet.service\n", 0, model.SystemKubelet},
		{"kubelet", "0::/\n", 0, model.SystemKubelet},
		{"kubelet", fmt.Sprintf(v1, "/"), 0, model.SystemKubelet},
		{"k3s-server", "0::/system.slice/k3s.service\n", 0, model.SystemKubelet},
		{"containerd", "0::/runtime.slice/containerd.service\n", 0, model.SystemRuntime},
		{"containerd-shim", fmt.Sprintf(v1, "/system.slice/containerd.service"), 0, model.SystemRuntime},
		{"containerd", "4:memory:/jobs/" + id + "\n1:cpu,cpuacct:/\n0::/\n", 0, model.SystemRuntime},
		{"sshd", "0::/system.slice/ssh.service\n", 0, model.SystemServices},
		{"agetty", "0::/system.slice/system-getty.slice/getty@tty1.service\n", 0, model.SystemServices},
		{"cron", fmt.Sprintf(v1, "/system.slice/cron.service"), 0, model.SystemServices},
		{"ksoftirqd/3", "0::/\n", kernelThread, model.SystemKernel},
		{"kworker/0:1H-kblockd", "0::/\n", kernelThread, model.SystemKernel},
		{"jbd2/sda1-8", "0::/\n", kernelThread, model.SystemKernel},

		{"kubelet", "0::/" + pod + "/cri-containerd-" + id + ".scope\n", 0, ""},
		{"kubelet", "4:memory:/" + pod + "\n1:cpu:/\n0::/\n", 0, ""},
		{"kubelet", "4:memory:/\n1:cpu:/docker/" + id + "\n0::/\n", 0, ""},
		{"kubelet", "0::/../../" + filepath.Base(pod) + "/" + id + "\n", 0, ""},
		{"ksoftirqd/3", "0::/" + pod + "/" + id + "\n", 0, ""},
		{"ksoftirqd/3", "0::/\n", 0, ""},
		{"vhost-7", "0::/" + pod + "\n", kernelThread, ""},
		{"kworker/u8:3", "0::/\n", kernelThread, ""},
		{"khugepaged", "0::/\n", kernelThread, ""},
		{"sh", "0::/" + pod + "/" + id + "/system.slice/x.service\n", 0, ""},
		{"sh", "0::/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:" + id + "\n", 0, ""},
		{"kubelet", "0::/system.slice/docker-" + id + ".scope/kubelet.slice\n", 0, ""},
		{"sh", "0::/system.slice/docker.service/child\n", 0, ""},
		{"sh", "0::/system.slice\n", 0, ""},
		{"load", "0::/user.slice/user-0.slice/session-3.scope\n", 0, ""},
		{"kubelet", "0::/user.slice/user-0.slice/session-3.scope\n", 0, ""},
		{"qemu", "0::/machine.slice/machine-1.scope\n", 0, ""},
		{"load", "0::/\n", 0, ""},
		{"load", fmt.Sprintf(v1, "/"), 0, ""},
		{"x) (kubelet", "0::/\n", 0, ""},
	} {
		pid := 100 + i
		before := w.sums()
		w.process(pid, c.name, c.cgroups, c.flags)
		w.seconds(12)
		w.waited(pid, pid, 1250)
		w.seconds(1)
		for uid, waited := range w.sums() {
			want := time.Duration(0)
			if uid == c.want {
				want = 250 * time.Millisecond
			}
			if waited-before[uid] != want {
				t.Errorf("%s in %q: %s waited %s more, want %s", c.name, c.cgroups, uid, waited-before[uid], want)
			}
		}
		if _, seen := w.sums()[c.want]; c.want != "" && !seen {
			t.Errorf("%s in %q: %s is not sampled", c.name, c.cgroups, c.want)
		}
	}
}

// TestSystemFromPod checks an agent with a cgroup namespace, which sees paths above its own, and a node in a container.
func TestSystemFromPod(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, above := range []string{"/../../../..", "/system.slice/docker-" + id + ".scope"} {
		w := newOwn(t)
		w.process(1, "systemd", "0::"+above+"/init.scope\n", 0)
		w.process(100, "cron", "0::"+above+"/system.slice/cron.service\n", 0)
		w.process(101, "sh", "0::/../system.slice/x.service\n", 0)
		w.seconds(12)
		w.waited(100, 100, 1250)
		w.waited(101, 101, 2000)
		if w.seconds(1); w.sums()[model.SystemServices] != 250*time.Millisecond {
			t.Errorf("%s: %v", above, w.sums())
		}
	}
}

// TestSystemEntersPod checks that the first process of a container, which begins in the cgroup of the runtime, never
// counts as the runtime's.
func TestSystemEntersPod(t *testing.T) {
	w := newOwn(t, "web")
	w.process(100, "containerd", "0::/system.slice/containerd.service\n", 0)
	w.seconds(12)
	w.process(101, "containerd", "0::/system.slice/containerd.service\n", 0)
	w.seconds(6) // one search finds it
	w.process(101, "containerd", "0::/"+w.pods["web"].Dir+"/0123456789ab\n", 0)
	for i := range 20 {
		w.seconds(1)
		w.waited(101, 101, 2000+int64(i))
	}
	if got := w.sums()[model.SystemRuntime]; got != 0 {
		t.Errorf("the runtime waited %s", got)
	}
}

// TestSystemBounds checks that floods of processes and kernel threads change neither how much is remembered, nor how
// many files are open, nor who else is seen.
func TestSystemBounds(t *testing.T) {
	w := newOwn(t)
	w.process(100, "kubelet", "0::/system.slice/kubelet.service\n", 0)
	for i := range systemProcesses + 200 {
		w.process(1000+i, "job", "0::/system.slice/cron.service\n", 0)
		w.process(5000+i, fmt.Sprintf("kworker/0:%d", i), "0::/\n", kernelThread)
	}
	w.seconds(60)
	w.process(9000, "sshd", "0::/system.slice/ssh.service\n", 0, 9001)
	w.seconds(60)
	for i := range w.w.system.groups {
		if g := &w.w.system.groups[i]; len(g.tasks) > systemTasks || len(g.pids) > systemProcesses {
			t.Errorf("%s: %d files, %d processes", g.sum.UID, len(g.tasks), len(g.pids))
		}
	}
	if n := len(w.w.system.groups[servicesGroup].tasks); n < systemTasks/2 {
		t.Errorf("of a flood %d tasks are sampled", n)
	}
	w.waited(100, 100, 1250)
	w.seconds(1)
	if got := w.sums()[model.SystemKubelet]; got != 250*time.Millisecond {
		t.Errorf("beside a flood, the kubelet waited %s", got)
	}
	for i := range systemProcesses + 200 {
		if err := os.RemoveAll(filepath.Join(w.proc, fmt.Sprint(1000+i))); err != nil {
			t.Fatal(err)
		}
		w.w.system.groups[servicesGroup].ends()
	}
	w.seconds(600)
	w.waited(9000, 9001, 1250)
	w.seconds(1)
	if got := w.sums()[model.SystemServices]; got != 250*time.Millisecond {
		t.Errorf("after the flood, sshd waited %s", got)
	}
}

// ends lets the files of sampled tasks fail, as those of ended tasks do.
func (g *systemGroup) ends() {
	for i := range g.tasks {
		closeFile(g.tasks[i].fd)
		g.tasks[i].fd = -1
	}
	g.tasks = g.tasks[:0]
}

// TestSystemTurns checks that tasks which run keep their places among too many, and that the others take turns.
func TestSystemTurns(t *testing.T) {
	w := newOwn(t)
	for i := range 3 * systemTasks {
		w.process(1000+i, fmt.Sprintf("kworker/0:%d", i), "0::/\n", kernelThread)
	}
	w.seconds(12)
	found := map[int]bool{}
	busy := w.w.system.groups[kernelGroup].tasks[0].tid
	for i := range 120 {
		w.waited(busy, busy, 2000+int64(i))
		w.seconds(1)
		for _, task := range w.w.system.groups[kernelGroup].tasks {
			found[task.tid] = true
		}
		if !w.w.system.groups[kernelGroup].samples(busy) {
			t.Fatal("a thread that runs lost its place")
		}
	}
	if len(found) != 3*systemTasks {
		t.Errorf("%d of %d threads had a turn", len(found), 3*systemTasks)
	}
}

// TestSystemUnwanted checks that nothing is sampled, and no file open, while no plan wants it.
func TestSystemUnwanted(t *testing.T) {
	w := newOwn(t)
	w.process(100, "kubelet", "0::/system.slice/kubelet.service\n", 0)
	w.seconds(12)
	if len(w.sums()) != 1 {
		t.Errorf("%v", w.sums())
	}
	w.marks = nil
	w.seconds(1)
	if g := &w.w.system.groups[kubeletGroup]; len(g.tasks) > 0 || len(g.pids) > 0 || len(w.sums()) > 0 {
		t.Errorf("%+v, %v", g, w.sums())
	}
}

// FuzzParseThread checks that no content of a stat file makes the parser fail.
func FuzzParseThread(f *testing.F) {
	f.Add([]byte("14 (ksoftirqd/0) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0"))
	f.Add([]byte("1 (a) (b) S"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if p, ok := parseThread(content); !ok && p.realtime {
			t.Errorf("%+v", p)
		}
	})
}

// BenchmarkSystem is a sample of this machine's services, a second after the one before.
func BenchmarkSystem(b *testing.B) {
	layout := cgroup.Layout{Driver: cgroup.Cgroupfs, Root: "kubepods"}
	s := newSystem(layout, DefaultProc)
	defer s.close()
	marks := []model.WaitMark{{PodWait: model.PodWait{UID: model.SystemKernel}}}
	now := time.Hour
	for range 60 {
		now += time.Second
		s.sample(marks, now)
	}
	b.ReportAllocs()
	for b.Loop() {
		now += time.Second
		s.sample(marks, now)
	}
	files := 0
	for i := range s.groups {
		files += len(s.groups[i].tasks)
	}
	b.ReportMetric(float64(files), "files")
}
