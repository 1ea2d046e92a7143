package kernel_test

import (
	"cmp"
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
	"github.com/waterline-io/waterline/internal/journal"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// protectNode is a node on which an agent in its own process suppresses batch by quota, up to the whole machine.
type protectNode struct {
	*suppressNode
	policy string // file
	d      *daemon
	online []*exec.Cmd
	steps  []time.Duration   // from each start of online load until batch had less
	least  int64             // of batch, in milli-cores, while another agent took over
	most   int64             // likewise
	moment func(what string) // called while faults and load last; a bench measures then
}

const (
	webPod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, uid: web}, spec: {nodeName: node, " +
		"containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}"
	jobPod = `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: default, uid: %[1]s, labels: {waterline.io/qos: BE}},
spec: {nodeName: node, containers: [{name: c, resources: {requests: {waterline.io/batch-cpu: 1000}, limits: {waterline.io/batch-cpu: 1000}}}]}}`
	brim = "{apiVersion: waterline.io/v1alpha1, kind: ColocationPolicy, metadata: {name: brim}, spec: {mode: Enforce, " +
		"weight: {max: 262144}, cpu: {waterline: 100%, method: Realtime, suppression: Arithmetic}}}"
)

// rise is the decrease of batch that makes room for online usage of one CPU, which other processes may use too.
const rise = 250

func newProtectNode(t *testing.T) *protectNode {
	t.Helper()
	n := &protectNode{suppressNode: newSuppressNode(t), policy: filepath.Join(t.TempDir(), "policy"),
		moment: func(string) {}}
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
func (n *protectNode) await(what string, holds func() bool) {
	n.t.Helper()
	waitFor(n.t, patience, what, holds, func() string {
		return fmt.Sprintf("batch may use %d mCPU; the agent's log: %s", n.cores(), n.d.text())
	})
}

// fill waits until an agent that has measured batch reports that batch has the machine.
func (n *protectNode) fill() {
	n.t.Helper()
	n.await("batch may use the whole machine", func() bool {
		return n.raw(n.job, model.Quota) != model.Unlimited &&
			n.cores() >= n.milli*85/100
	})
}

// step starts online load and waits until batch has less.
func (n *protectNode) step() {
	n.t.Helper()
	before := n.cores()
	n.online = append(n.online, n.load(n.web))
	began := time.Now()
	n.await("batch makes room", func() bool { return n.cores() <= before-rise })
	n.steps = append(n.steps, time.Since(began))
}

// rest ends all processes of online load except this many.
func (n *protectNode) rest(but int) {
	for _, cmd := range n.online[but:] {
		end(cmd)
	}
	n.online = n.online[:but]
}

// shares returns the kernel's weights that divide the CPUs.
func (n *protectNode) shares() string {
	var b strings.Builder
	for _, dir := range []string{n.layout.Class(model.Burstable), n.layout.Class(model.BestEffort), n.web, n.job,
		n.job + "/0123456789aa"} {
		fmt.Fprint(&b, n.raw(dir, model.Shares), "; ")
	}
	return b.String()
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

// TestProtectFaults causes one fault after the other beside batch that would use every CPU. The kernel's pressure is
// missing all the time.
func TestProtectFaults(t *testing.T) { protectFaults(newProtectNode(t)) }

func protectFaults(n *protectNode) {
	t := n.t.(*testing.T)
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
	n.hung(api)
	t.Log("the agent is killed")
	n.killed(api, start)
	t.Log("a fork bomb goes off in batch")
	n.bombed()
}

// The moments of [protectNode.moment].
const (
	withoutAPI    = "without an API server"
	withoutAgent  = "without an agent"
	allOnline     = "the online pod wants all CPUs"
	podsUnknown   = "another agent does not know the pods"
	bombStarted   = "the fork bomb has started"
	besideTheBomb = "beside the fork bomb"
)

// hung lets the API server hang while online load starts.
func (n *protectNode) hung(api *apiServer) {
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
	for i := range steps {
		if i > 0 {
			n.fill()
			time.Sleep(4 * time.Second) // otherwise the load would count as one that swings
		}
		n.step()
		time.Sleep(time.Second) // the agent measures how high the load is
		if i < steps-1 {
			n.rest(0)
		}
	}
	n.moment(withoutAPI)
	if got := n.d.logged(""); got != lines {
		t.Errorf("the agent logged %d lines; all: %s", got-lines, n.d.text())
	}
}

// killed kills the agent under full load, lets online pods request more, and starts another agent. Its API server still
// hangs at first.
func (n *protectNode) killed(api *apiServer, start func()) {
	t := n.t.(*testing.T)
	n.d.end(unix.SIGKILL)
	before, shares := n.holding(), n.shares()
	unmoved := func(when string) {
		t.Helper()
		if now := n.holding(); now != before {
			t.Errorf("%s: the kernel has %s, was %s", when, now, before)
		}
	}
	n.moment(withoutAgent)
	for range runtime.NumCPU() - 1 {
		n.online = append(n.online, n.load(n.web))
	}
	time.Sleep(200 * time.Millisecond)
	n.moment(allOnline)
	unmoved("without an agent")
	n.rest(1)

	n.takenOver(api, start)
	if now := n.shares(); now != shares {
		t.Errorf("after the takeover by another agent, the weights are %s, were %s", now, shares)
	}
	n.rest(0)
	n.d.finish(2) // location of the pods, and possibly that the agent was ended during a write to the API
}

// takenOver starts an agent in place of a killed one. Its API server hangs at first. Batch must have a quota all the
// time, and no weight may move before the agent knows the pods.
func (n *protectNode) takenOver(api *apiServer, start func()) {
	t := n.t.(*testing.T)
	answer := api.hang()
	requests, shares := api.hung.Load(), n.shares()
	start()
	// for pods, node, policies, report
	within(t, "the new agent queries the API server", func() bool { return api.hung.Load() >= requests+4 }, n.d.text)
	time.Sleep(300 * time.Millisecond)
	// After a second, the agent has measured, and changes the quota for the pods that the former agent knew.
	if now := n.shares(); now != shares {
		t.Errorf("before the pods are known, the weights are %s, were %s", now, shares)
	}
	n.moment(podsUnknown)
	n.least = n.milli
	watch := func() {
		if n.raw(n.job, model.Quota) == model.Unlimited {
			t.Fatal("batch has no quota for a moment")
		}
		n.least, n.most = min(n.least, n.cores()), max(n.most, n.cores())
	}
	watch()
	answer()
	n.await("the new agent continues",
		func() bool { watch(); return n.d.metric(v1alpha1.MetricBatchCPUAvailable, "window", "1s") > 0 })
	for range 1000 {
		watch()
		time.Sleep(2 * time.Millisecond)
	}
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
func (n *protectNode) bombed() {
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
	n.moment(bombStarted)
	n.step()
	time.Sleep(time.Second)
	n.moment(besideTheBomb)
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
	unwatched(newProtectNode(t))
}

// unwatched returns how long it takes until a new batch pod has its settings.
func unwatched(n *protectNode) time.Duration {
	t := n.t.(*testing.T)
	manifests := n.manifests()
	s := newStage(t, "-U", "-r")
	s.do("echo 2 >/proc/sys/user/max_inotify_watches")
	n.d = s.daemon(n.testNode, manifests, memoryDir(t), n.options()...)
	n.fill()
	if n.d.metric(v1alpha1.MetricWatching) != 0 {
		t.Error("the agent reports that it watches")
	}
	n.step()
	n.announce(manifests, "late", fmt.Sprintf(jobPod, "late"))
	late := n.addBatch("late")
	began := time.Now()
	n.await("a new batch pod has its quota", func() bool {
		return n.raw(late, model.Quota) != model.Unlimited &&
			n.holds(late, model.Shares, 1024)
	})
	took := time.Since(began)
	n.d.finish(2)
	return took
}

// TestSuppressFrozen lets the measurements of the machine fail, and then stand still. Batch must have less and less.
// Golden cases show the amounts.
func TestSuppressFrozen(t *testing.T) {
	t.Parallel()
	frozenStat(newProtectNode(t))
}

// frozenStat returns how long after the last measurement batch has less.
func frozenStat(n *protectNode) (took time.Duration) {
	t := n.t.(*testing.T)
	runDir := memoryDir(t)
	n.d = n.daemonIn(n.agents(), n.manifests(), runDir, n.options()...)
	n.fill()
	frozen := time.Now()
	n.stat.Store(isEmpty)
	time.Sleep(2 * time.Second) // the last measurement may have been applied since
	full, most := n.cores(), int64(0)
	less := full * 95 / 100
	if soak() {
		less = full / 2
	}
	n.await("batch has less", func() bool { most = max(most, n.cores()); return n.cores() <= less })
	took = time.Since(frozen)
	t.Logf("no measurements -> batch has %d of %d mCPU after %s", n.cores(), full, took)
	if most > full {
		t.Errorf("batch had %d mCPU", most)
	}
	if got := n.d.logged(`"operation":"measuring"`); got != 1 {
		t.Errorf("the agent logged this %d times, want once: %s", got, n.d.text())
	}
	n.stat.Store(standsStill)
	n.await("batch has nothing", func() bool { return n.cores() <= 10 })
	if soak() {
		n.stat.Store(goesOn)
		n.await("batch may use the whole machine", func() bool { return n.cores() >= n.milli*85/100 })
	}
	n.d.finish(5) // location of the pods; measurements and glances fail; both work again
	checkFrozen(t, runDir, n.job)
	return took
}

// checkFrozen checks in an agent's journal that a batch pod kept its quota while the last measurement of the machine
// was as good as new, which is 5 s by the agent's own clock, and had less afterwards.
func checkFrozen(t *testing.T, runDir, dir string) {
	t.Helper()
	type decided struct {
		measured, age time.Duration // the time of the measurement, and its age in this round
		quota         int64
	}
	var rounds []decided
	for round, err := range journal.Read(runDir) {
		if err != nil {
			t.Fatal(err)
		}
		quota := model.File{Dir: dir, Knob: model.Quota}
		i := slices.IndexFunc(round.Plan.Settings, func(s model.Setting) bool { return s.File == quota })
		if load := round.Node.Load; i >= 0 && load != nil {
			at := load.Node.CPU.At
			rounds = append(rounds, decided{at, load.Age(at), round.Plan.Settings[i].Value.Number})
		}
	}
	if len(rounds) == 0 {
		t.Fatal("the journal has no quota of the batch pod")
	}
	frozen := slices.MaxFunc(rounds, func(a, b decided) int { return cmp.Compare(a.age, b.age) }).measured
	rounds = slices.DeleteFunc(rounds, func(r decided) bool { return r.measured != frozen })
	fall := slices.IndexFunc(rounds, func(r decided) bool { return r.quota < rounds[0].quota })
	switch {
	case fall < 0:
		t.Errorf("the journal has no fall of the quota: %v", rounds)
	case rounds[fall].age <= 5*time.Second:
		t.Errorf("batch had less when the last measurement was %s old: %v", rounds[fall].age, rounds)
	default:
		t.Logf("batch had less when the last measurement was %s old", rounds[fall].age)
	}
}
