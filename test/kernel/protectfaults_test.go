package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// protectNode is a node on which an agent in its own process suppresses batch by quota, up to the whole machine.
type protectNode struct {
	*suppressNode
	policy string // file
	d      *daemon
	online []*exec.Cmd
}

const (
	webPod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: web}, spec: {nodeName: node, " +
		"containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}"
	jobPod = `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: default, uid: %[1]s, labels: {waterline.io/qos: BE}},
spec: {nodeName: node, containers: [{name: c, resources: {requests: {waterline.io/batch-cpu: 1000}, limits: {waterline.io/batch-cpu: 1000}}}]}}`
	brim = "{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: brim}, spec: {mode: Enforce, " +
		"weight: {max: 262144}, cpu: {waterline: 100%, method: Realtime, suppression: Quota}}}"
)

// rise is the decrease of batch that makes room for online usage of one CPU, which other processes may use too.
const rise = 250

func newProtectNode(t *testing.T) *protectNode {
	t.Helper()
	n := &protectNode{suppressNode: newSuppressNode(t), policy: filepath.Join(t.TempDir(), "policy")}
	// The weight of the test's group far exceeds that of other processes on this machine, which are not to be measured.
	n.set(filepath.Dir(n.layout.Root), model.Shares, 16*model.SharesPerCPU)
	n.group(n.agents())
	n.set(n.agents(), model.Shares, 102400) // as an agent sets for its own pod
	if err := os.WriteFile(n.policy, []byte(brim), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// agents returns the group in which agents run.
func (n *protectNode) agents() string { return filepath.Dir(n.layout.Root) + "/agents" }

// options returns the flags of an agent of such a node.
func (n *protectNode) options(more ...string) []string {
	return append([]string{"--proc-root", n.proc, "--config", n.policy, "--allocatable-millicores", fmt.Sprint(n.milli)},
		more...)
}

// manifests returns a directory with the manifests of the node's pods.
func (n *protectNode) manifests() string {
	n.t.Helper()
	dir := n.t.(*testing.T).TempDir()
	n.announce(dir, "web", webPod)
	n.announce(dir, "job", fmt.Sprintf(jobPod, "job"))
	return dir
}

func (n *protectNode) announce(dir, name, text string) {
	n.t.Helper()
	file := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.t.Fatal(err)
	}
}

// await is [suppressNode.until] for an agent in another process.
func (n *protectNode) await(what string, holds func() bool) time.Duration {
	n.t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > 90*time.Second {
			n.t.Fatalf("not within 90 s: %s; batch may use %d mCPU; the agent's log: %s", what, n.cores(), n.d.text())
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// fill waits until an agent that has measured batch reports that batch has the machine.
func (n *protectNode) fill() {
	n.t.Helper()
	n.await("batch may use the whole machine", func() bool {
		return n.raw(n.job, model.Quota) != model.Unlimited &&
			n.cores() >= n.milli*85/100
	})
}

// step starts online load and returns how long it took until batch had less.
func (n *protectNode) step() time.Duration {
	n.t.Helper()
	before := n.cores()
	n.online = append(n.online, n.load(n.web))
	return n.await("batch makes room", func() bool { return n.cores() <= before-rise })
}

// rest ends all processes of online load except this many.
func (n *protectNode) rest(but int) {
	for _, cmd := range n.online[but:] {
		end(cmd)
	}
	n.online = n.online[:but]
}

// use measures the CPU usage of the online pod and of batch for a while, in milli-cores.
func (n *protectNode) use(length time.Duration) (web, job float64) {
	n.t.Helper()
	var nanos [2][2]uint64
	var at [2][2]time.Time
	for i := range 2 {
		if i > 0 {
			time.Sleep(length)
		}
		for j, dir := range []string{n.web, n.job} {
			nanos[i][j], at[i][j] = n.used(dir)
		}
	}
	milli := func(j int) float64 { return float64(nanos[1][j]-nanos[0][j]) / float64(at[1][j].Sub(at[0][j])) * 1000 }
	return milli(0), milli(1)
}

// holding returns the kernel's settings that divide the CPUs.
func (n *protectNode) holding() string {
	var b strings.Builder
	for _, dir := range []string{n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort), n.web, n.job,
		n.job + "/0123456789aa"} {
		fmt.Fprint(&b, n.raw(dir, model.Shares), " ", n.raw(dir, model.Quota), "; ")
	}
	return b.String()
}

// shielded measures the usage of the online pod for a while, in milli-cores. It fails if the pod has much less than it
// wants while batch has some. CPU that neither has was taken by other processes and is not judged.
func (n *protectNode) shielded(when string, wants float64, length time.Duration) (web, job float64) {
	n.t.Helper()
	web, job = n.use(length)
	n.t.Logf("%s: online uses %.0f mCPU of %.0f, batch %.0f", when, web, wants, job)
	enough := 0.8
	if emulated() {
		enough = 0.5 // measurements mean little there
	}
	if web < enough*wants && job > 0.2*web {
		n.t.Errorf("%s: online uses %.0f mCPU of %.0f, and batch %.0f", when, web, wants, job)
	}
	return web, job
}

// reacts checks each time that it took until batch had less.
func (n *protectNode) reacts(took ...time.Duration) {
	n.t.Helper()
	slices.Sort(took)
	n.t.Logf("online rises -> batch has less: %s", took)
	most := 10 * time.Second // a process may stand still for seconds; waiting for the API server would take longer
	if len(took) >= 10 && !emulated() {
		most = 800 * time.Millisecond // the measurements of each second would be as fast
	}
	if middle := took[len(took)/2]; middle > most {
		n.t.Errorf("in the median batch has less after %s, want at most %s", middle, most)
	}
}

// TestProtectFaults causes one fault after the other beside batch that would use every CPU. The kernel's pressure is
// missing all the time.
func TestProtectFaults(t *testing.T) {
	n := newProtectNode(t)
	for range runtime.NumCPU() {
		n.load(n.job)
	}
	api := newAPIServer(t, n.milli, webPod, fmt.Sprintf(jobPod, "job"))
	runDir, kubeconfig := memoryDir(t), api.kubeconfig(t)
	start := func() {
		n.d = n.daemonIn(n.agents(), "", runDir, n.options("--node-name", "node", "--kubeconfig", kubeconfig, "--kubelet",
			"")...)
	}
	start()
	t.Log("the API server hangs")
	alive := n.hung(api)
	t.Log("the agent is killed")
	n.killed(api, start, alive)
	t.Log("a fork bomb goes off in batch")
	n.bombed(alive)
}

// hung lets the API server hang while online load starts, and returns the usage of the online pod.
func (n *protectNode) hung(api *apiServer) (alive float64) {
	t := n.t.(*testing.T)
	n.fill()
	steps, lines := 1, n.d.logged("")
	if n.d.metric(v1alpha1.MetricPressure) != 0 {
		t.Error("the kernel reports pressure")
	}
	if soak() {
		steps = 10
	}
	api.hang()
	var took []time.Duration
	for i := range steps {
		if i > 0 {
			n.fill()
			time.Sleep(4 * time.Second) // otherwise the load would count as one that swings
		}
		took = append(took, n.step())
		time.Sleep(time.Second) // the agent measures how high the load is
		if i < steps-1 {
			n.rest(0)
		}
	}
	n.reacts(took...)
	alive, _ = n.shielded("without an API server", 1000, 1500*time.Millisecond)
	if got := n.d.logged(""); got != lines {
		t.Errorf("the agent logged %d lines; all: %s", got-lines, n.d.text())
	}
	return alive
}

// killed kills the agent under full load, lets online pods request more, and starts another agent. Its API server still
// hangs at first.
func (n *protectNode) killed(api *apiServer, start func(), alive float64) {
	t := n.t.(*testing.T)
	n.d.end(unix.SIGKILL)
	before, quota := n.holding(), n.cores()
	unmoved := func(when string) {
		t.Helper()
		if now := n.holding(); now != before {
			t.Errorf("%s: the kernel has %s, was %s", when, now, before)
		}
	}
	_, batch := n.shielded("without an agent", alive, 1500*time.Millisecond)
	if batch > 1.2*float64(quota)+50 {
		t.Errorf("without an agent batch uses %.0f mCPU of %d", batch, quota)
	}
	for range runtime.NumCPU() - 1 {
		n.online = append(n.online, n.load(n.web))
	}
	time.Sleep(200 * time.Millisecond)
	n.shielded("the online pod wants all CPUs", float64(n.milli), time.Second)
	unmoved("without an agent")
	n.rest(1)

	// If the machine stands still for a second, batch seems to have an allowance that does not exist. An error of the
	// agent occurs every time.
	const tries = 3
	for try := 1; ; try++ {
		least, most := n.takenOver(api, start, unmoved)
		t.Logf("batch may use %d mCPU; while another agent takes over %d to %d", quota, least, most)
		if most <= n.milli*85/100 && least >= quota/3 || emulated() {
			break
		}
		if try == tries {
			t.Errorf("during the takeover by another agent, batch has %d to %d mCPU, before %d", least, most, quota)
			break
		}
		n.await("batch has its former allowance", func() bool { return n.cores() >= quota*85/100 })
		n.d.end(unix.SIGKILL)
		before = n.holding()
	}
	n.rest(0)
	n.d.finish(2) // location of the pods, and possibly that the agent was ended during a write to the API
}

// takenOver starts an agent in place of a killed one. Its API server hangs at first. It returns the minimum and maximum
// of batch's allowance during the takeover.
func (n *protectNode) takenOver(api *apiServer, start func(), unmoved func(when string)) (least, most int64) {
	t := n.t.(*testing.T)
	answer := api.hang()
	requests := api.hung.Load()
	began := time.Now()
	start()
	// for pods, node, policies, report
	within(t, "the new agent queries the API server", func() bool { return api.hung.Load() >= requests+4 }, n.d.text)
	time.Sleep(300 * time.Millisecond)
	// After a second, the agent has measured, and decides about the pods that the former agent knew.
	if took := time.Since(began); took < time.Second || !emulated() {
		unmoved("before the pods are known")
	}
	answer()
	least = n.milli
	watch := func() {
		if n.raw(n.job, model.Quota) == model.Unlimited {
			t.Fatal("batch has no quota for a moment")
		}
		least, most = min(least, n.cores()), max(most, n.cores())
	}
	n.await("the new agent continues",
		func() bool { watch(); return n.d.metric(v1alpha1.MetricBatchCPUAvailable, "window", "1s") > 0 })
	for until := time.Now().Add(2500 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		watch()
	}
	return least, most
}

// mostTasks plays the part of the kubelet's podPidsLimit.
const mostTasks = 500

// limitTasks limits the number of processes of the batch pod. It returns the file that counts them, and the file
// through which they enter; both are "" where the kernel cannot limit them.
func (n *protectNode) limitTasks() (current, procs string) {
	n.t.Helper()
	dir := n.path(n.job)
	if n.mount.Version == cgroup.V1 {
		dir = filepath.Join("/sys/fs/cgroup/pids", filepath.Dir(n.layout.Root))
		if os.Mkdir(dir, 0o755) != nil {
			return "", ""
		}
		n.t.Cleanup(func() { n.removeAt(dir) })
	} else {
		for _, parent := range []string{"", filepath.Dir(n.layout.Root), n.layout.Root, n.layout.Class(model.BestEffort)} {
			if n.tryText(parent, "cgroup.subtree_control", "+pids") != nil {
				return "", ""
			}
		}
	}
	if err := write(filepath.Join(dir, "pids.max"), fmt.Sprint(mostTasks)); err != nil {
		n.t.Fatal(err)
	}
	return filepath.Join(dir, "pids.current"), filepath.Join(dir, "cgroup.procs")
}

// bomb starts processes in the batch pod that use CPU and start more processes for as long as they may. They are in
// their own PID namespace. When its first process or this test ends, the kernel kills all of them.
func (n *protectNode) bomb(procs string) *exec.Cmd {
	n.t.Helper()
	cmd := n.meterNode.run(n.job, "sh", "-c", "b() { b & b & while :; do :; done; }; b")
	if n.mount.Version == cgroup.V1 {
		i := slices.IndexFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "FILES=") })
		cmd.Env[i] += " " + procs
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

// hidePressure shows the agent pressure of the machine but not of groups, as on cgroup v1, or on a kernel that was
// configured so.
func (n *protectNode) hidePressure() {
	n.t.Helper()
	if err := os.Mkdir(filepath.Join(n.proc, "pressure"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	for _, file := range []string{"pressure/cpu", "pressure/memory", "pressure/io"} {
		if content, err := os.ReadFile(filepath.Join(host.DefaultProc, file)); err == nil {
			if err := os.WriteFile(filepath.Join(n.proc, file), content, 0o600); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	for _, dir := range []string{n.layout.Root, n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort), n.web,
		n.job} {
		_ = n.tryText(dir, "cgroup.pressure", "0") // v2 from 6.1 on
	}
}

// bombed starts a fork bomb in the batch pod, beside its other processes.
func (n *protectNode) bombed(alive float64) {
	t := n.t.(*testing.T)
	current, procs := n.limitTasks()
	if current == "" {
		t.Log("live kernel: no pids controller")
		return
	}
	n.hidePressure()
	n.d = n.daemonIn(n.agents(), n.manifests(), memoryDir(t), n.options()...)
	n.fill()
	bomb := n.bomb(procs)
	tasks := func() int { content, _ := os.ReadFile(current); return number(t, strings.TrimSpace(string(content))) }
	n.await("the fork bomb has started", func() bool { return tasks() >= mostTasks*8/10 })
	cpu, began := n.d.cpu(), time.Now()
	n.reacts(n.step())
	time.Sleep(time.Second)
	n.shielded("beside the fork bomb", alive, 1500*time.Millisecond)
	used := (n.d.cpu() - cpu).Seconds() / time.Since(began).Seconds()
	t.Logf("beside %d processes of batch the agent uses %.0f mCPU", tasks(), 1000*used)
	if most := 0.3; used > most && !emulated() {
		t.Errorf("the agent uses %.2f CPUs, want at most %.2f", used, most)
	}
	n.d.finish(1)
	n.rest(0)
	n.set(n.job, model.Quota, model.Unlimited) // they need CPU to die
	n.set(n.layout.Class(model.BestEffort), model.Shares, 10_000)
	end(bomb)
	n.await("the fork bomb has ended", func() bool { return tasks() <= runtime.NumCPU() })
}

// TestSuppressUnwatched lets batch and online load start while the agent has no inotify watches left for groups.
func TestSuppressUnwatched(t *testing.T) {
	t.Parallel()
	n := newProtectNode(t)
	manifests := n.manifests()
	s := newStage(t, "-U", "-r")
	s.do("echo 2 >/proc/sys/user/max_inotify_watches")
	n.d = s.daemon(n.testNode, manifests, memoryDir(t), n.options()...)
	n.fill()
	if n.d.metric(v1alpha1.MetricWatching) != 0 {
		t.Error("the agent reports that it watches")
	}
	n.reacts(n.step())
	n.announce(manifests, "late", fmt.Sprintf(jobPod, "late"))
	late := n.addBatch("late")
	took := n.await("a new batch pod has its quota", func() bool {
		return n.raw(late, model.Quota) != model.Unlimited &&
			n.holds(late, model.Shares, 1024)
	})
	t.Logf("a new batch pod has its weight and quota after %s", took)
	if took > 10*time.Second && !emulated() {
		t.Errorf("a new batch pod has its quota after %s", took)
	}
	n.d.finish(2)
}

// TestSuppressFrozen lets the measurements of the machine fail, and then stand still. Batch must have less and less.
// Golden cases show the amounts.
func TestSuppressFrozen(t *testing.T) {
	t.Parallel()
	n := newProtectNode(t)
	n.d = n.daemonIn(n.agents(), n.manifests(), memoryDir(t), n.options()...)
	n.fill()
	before, frozen := n.cores(), time.Now()
	n.stat.Store(isEmpty)
	time.Sleep(2 * time.Second) // the last measurement may have been applied since
	full, most := n.cores(), int64(0)
	if full < before*95/100 && time.Since(frozen) < 5*time.Second {
		t.Errorf("batch has %d mCPU at once, and had %d", full, before)
	}
	less := full * 95 / 100
	if soak() {
		less = full / 2
	}
	n.await("batch has less", func() bool { most = max(most, n.cores()); return n.cores() <= less })
	took := time.Since(frozen)
	t.Logf("no measurements -> batch has %d of %d mCPU after %s", n.cores(), full, took)
	if took < 5*time.Second {
		t.Errorf("batch has less after %s, though measurements are as good as new for 5 s", took)
	}
	if most > full {
		t.Errorf("batch had %d mCPU", most)
	}
	if got := n.d.logged(`"operation":"measuring"`); got != 1 {
		t.Errorf("the agent logged this %d times, want once: %s", got, n.d.text())
	}
	n.stat.Store(standsStill)
	t.Logf("measurements stand still -> batch has nothing after %s",
		n.await("batch has nothing", func() bool { return n.cores() <= 10 }))
	if !soak() {
		return
	}
	n.stat.Store(goesOn)
	t.Logf("measurements continue -> batch may use the whole machine after %s",
		n.await("batch may use the whole machine", func() bool { return n.cores() >= n.milli*85/100 }))
	n.d.finish(5) // location of the pods; measurements and glances fail; both work again
}
