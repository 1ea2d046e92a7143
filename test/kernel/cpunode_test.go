package kernel_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/agent"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
)

// cpuPod is a pod with a real process in each container.
type cpuPod struct {
	pod       model.Pod
	dir       string
	processes map[string]*exec.Cmd // by name of the container's cgroup
	once      bool                 // it has, or had, CPUs of its own
}

// cpuNode is a node whose pods request CPUs.
type cpuNode struct {
	*testNode
	source *pods
	audit  time.Duration // SyncPeriod of the agent
	all    model.CPUSet  // online
	cores  map[int]int   // CPU → core
	pods   map[string]*cpuPod
	born   int
	hint   model.CPUSet         // of the pods that come
	ran    map[int]model.CPUSet // process → its allowed CPUs at the last moment when all was settled
	bound  []time.Duration      // from a pod's cgroup to its CPU list: processes that start there later are bound

	mu         sync.Mutex
	conditions map[string]model.PodCondition
	notices    map[model.Code]int
	room       *model.CPURoom // as last reported, once the Node is known
	seen       map[string]int // how often each event happened
}

// newCPUNode makes a node, or skips the test where CPU sets are impossible. With a single CPU, no pod can have an
// exclusive one.
func newCPUNode(t *testing.T) *cpuNode {
	n := &cpuNode{
		testNode: newNode(t), source: newPods(), audit: 10 * time.Second, cores: map[int]int{}, pods: map[string]*cpuPod{},
		ran:        map[int]model.CPUSet{},
		conditions: map[string]model.PodCondition{}, notices: map[model.Code]int{}, seen: map[string]int{},
	}
	if n.mount.Cpusets == "" {
		t.Skip("live kernel: no cpuset controller")
	}
	topology, err := host.ReadTopology(host.DefaultSys)
	if err != nil {
		t.Fatal(err)
	}
	if n.all = topology.Online(); n.all.Len() < 2 {
		t.Skip("one CPU")
	}
	for _, cpu := range topology.CPUs {
		n.cores[cpu.ID] = cpu.Core
	}
	n.source.change(func(s *model.Snapshot) { s.Allocatable.CPU = int64(n.all.Len()) * 1000 })
	return n
}

// agent starts an agent that keeps its state in a directory.
func (n *cpuNode) agent(dir string) *run {
	return n.start(n.source, func(c *agent.Config) {
		c.RunDir, c.SyncPeriod = dir, n.audit
		c.API.Notify = func(_ context.Context, notice model.Notice) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.notices[notice.Reason.Code]++
			return nil
		}
		c.API.Report = func(_ context.Context, _ string, r model.Report) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.room = r.CPUs
			return nil
		}
		c.API.SetCondition = func(_ context.Context, c model.Condition) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if pod := n.pods[c.UID]; pod != nil && c.Reason == "" && (pod.pod.Annotations.CPUs == model.CPUShare ||
				pod.pod.Annotations.CPUs == model.CPUExclusive) {
				n.seen["removed"]++
			}
			n.conditions[c.UID] = c.PodCondition
			n.count(c.PodCondition)
			if pod := n.pods[c.UID]; pod != nil {
				pod.pod.CPUCondition, pod.once = c.PodCondition, pod.once || c.Met
				n.source.set(pod.pod)
			}
			return nil
		}
	})
}

// saw counts an event.
func (n *cpuNode) saw(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[what]++
}

// count counts the result that the agent reported for a pod. The caller holds the lock.
func (n *cpuNode) count(c model.PodCondition) {
	if !c.Met {
		if c.Reason != "" {
			n.seen["refused: "+string(c.Reason)]++
			n.seen["refused"]++
		}
		return
	}
	n.seen[string(c.Reason)]++
	for part := range strings.SplitSeq(c.Message, ", ") {
		cores := map[int]bool{}
		_, list, _ := strings.Cut(part, " ")
		set, _ := model.ParseCPUs(list) // wrong checks the list itself
		for cpu := range set.All() {
			cores[n.cores[cpu]] = true
		}
		if len(cores) > 1 && c.Reason == model.CPUsExclusive {
			n.seen["several cores"]++
		}
	}
}

// add makes a pod with one container for each CPU limit; 0: no limit. A container requests its limit, or nothing if
// less is set.
func (n *cpuNode) add(q model.QoSClass, mode model.CPUMode, less bool, limits ...int64) *cpuPod {
	n.t.Helper()
	n.born++
	uid := fmt.Sprintf("pod%d", n.born)
	p := &cpuPod{processes: map[string]*exec.Cmd{}, pod: model.Pod{
		UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: q, Created: time.Now(),
		Annotations: model.PodAnnotations{CPUs: mode, Hint: n.hint},
	}}
	for i, limit := range limits {
		request := limit * 1000
		if less {
			request = 0
		}
		p.pod.Containers = append(p.pod.Containers, model.Container{Name: string(rune('a' + i)), LimitMilli: limit * 1000,
			RequestMilli: request})
		p.pod.RequestMilli += request
		p.pod.LimitMilli += limit * 1000
	}
	n.mu.Lock()
	n.pods[uid] = p
	n.mu.Unlock()
	taken := n.foreign(uid)
	p.dir = n.pod(q, uid, p.pod.RequestMilli)
	n.publish(p) // the API has the pod before its containers exist
	n.bind(p, taken)
	n.begin(p, "f0f0f0f0f0f0")
	for i := range limits {
		n.restart(p, i)
	}
	return p
}

func (n *cpuNode) publish(p *cpuPod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.source.set(p.pod)
}

// foreign returns the exclusive CPUs of all pods except one.
func (n *cpuNode) foreign(uid string) model.CPUSet {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taken model.CPUSet
	for other, c := range n.conditions {
		// A late report of the agent may be about a pod that is gone.
		if other != uid && n.pods[other] != nil && c.Reason == model.CPUsExclusive {
			taken = taken.Or(conditionCPUs(c))
		}
	}
	return taken
}

// conditionCPUs returns the union of the CPUs that the agent reported as own for a pod's containers.
func conditionCPUs(c model.PodCondition) model.CPUSet {
	var all model.CPUSet
	for part := range strings.SplitSeq(c.Message, ", ") {
		_, list, _ := strings.Cut(part, " ")
		set, err := model.ParseCPUs(list)
		if err == nil && c.Met {
			all = all.Or(set)
		}
	}
	return all
}

// bind waits, on v2, until a new pod cannot run on exclusive CPUs of other pods. A runtime needs longer than that to
// start the pod's first process.
func (n *cpuNode) bind(p *cpuPod, taken model.CPUSet) {
	n.t.Helper()
	if n.separate() || taken.Empty() {
		return
	}
	begin := time.Now()
	within(n.t, p.dir+" keeps off "+taken.String(),
		func() bool { return !n.list(p.dir, "cpuset.cpus.effective").Overlaps(taken) },
		func() string { return n.text(p.dir, "cpuset.cpus.effective") })
	n.bound = append(n.bound, time.Since(begin))
}

// list reads a CPU list from a file that every group has.
func (n *cpuNode) list(dir, file string) model.CPUSet {
	text, err := os.ReadFile(n.cpusets(dir, file))
	if err != nil {
		return model.CPUSet{}
	}
	set, err := model.ParseCPUs(string(text))
	if err != nil {
		n.t.Errorf("%s in %s: %v", file, dir, err)
	}
	return set
}

// begin makes a container's group and starts a process in it. Like runc, it starts the process inside the group of each
// hierarchy. The process first reads its allowed CPUs. On v2 these must not include exclusive CPUs of another pod. On
// v1, a new container has its pod's list until the agent sees the container.
func (n *cpuNode) begin(p *cpuPod, id string) {
	n.t.Helper()
	name, taken := p.dir+"/"+id, n.foreign(p.pod.UID)
	n.group(name)
	cmd := exec.Command("sh", "-c", `for f; do echo $$ >"$f" || exit 1; done
while read -r key value; do [ "$key" != Cpus_allowed_list: ] || echo "$value"; done </proc/$$/status
while :; do sleep 1000; done`, "sh", n.path(name, "cgroup.procs"))
	if n.separate() {
		cmd.Args = append(cmd.Args, n.cpusets(name, "cgroup.procs"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	p.processes[id] = cmd
	n.t.Cleanup(func() { n.end(p, id) })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	first, listErr := model.ParseCPUs(line)
	if err != nil || listErr != nil {
		n.t.Fatalf("the process in %s printed %q: %v, %v", name, line, err, listErr)
	}
	switch {
	case !first.Overlaps(taken):
		n.saw("started where it may")
	case n.separate():
		n.saw("started elsewhere")
	default:
		n.t.Errorf("the first process of %s started on %s, but %s are exclusive to other pods", name, first, taken)
	}
}

func (n *cpuNode) end(p *cpuPod, id string) {
	cmd := p.processes[id]
	if cmd == nil {
		return
	}
	delete(p.processes, id)
	delete(n.ran, cmd.Process.Pid)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	n.remove(p.dir + "/" + id)
}

// restart ends a container if it runs, and starts it again under a new id. The API reports the new id a little later.
func (n *cpuNode) restart(p *cpuPod, i int) {
	n.t.Helper()
	n.born++
	c := &p.pod.Containers[i]
	n.end(p, c.ID)
	id := fmt.Sprintf("%012x", n.born)
	n.begin(p, id)
	n.mu.Lock()
	defer n.mu.Unlock()
	containers := append([]model.Container(nil), p.pod.Containers...)
	containers[i].ID = id
	p.pod.Containers = containers
	n.source.set(p.pod)
}

func (n *cpuNode) drop(p *cpuPod) {
	for id := range p.processes {
		n.end(p, id)
	}
	n.mu.Lock()
	delete(n.pods, p.pod.UID)
	delete(n.conditions, p.pod.UID)
	n.source.remove(p.pod.UID)
	n.mu.Unlock()
	n.remove(p.dir)
}

func (n *cpuNode) annotate(p *cpuPod, mode model.CPUMode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.pod.Annotations.CPUs = mode
	n.source.set(p.pod)
}

// wrong describes the processes that may run on wrong CPUs, judged by the conditions of the pods and by the kernel's
// affinity of each process. It returns "" if there are none.
func (n *cpuNode) wrong() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := map[string]map[string]model.CPUSet{} // pod → container → CPUs
	taken, homes := model.CPUSet{}, model.CPUSet{}
	for uid, p := range n.pods {
		condition := n.conditions[uid]
		requests := p.pod.Annotations.CPUs == model.CPUShare || p.pod.Annotations.CPUs == model.CPUExclusive
		if !requests {
			if condition != (model.PodCondition{}) {
				return fmt.Sprintf("%s requests no CPUs but has the condition %+v", uid, condition)
			}
			continue
		}
		if condition.Reason == "" {
			return uid + " requests CPUs and has no condition"
		}
		switch condition.Reason {
		case model.CPUsMoveLater:
			return "a move must wait: " + condition.Message
		case model.CPUsUnknown: // a new agent has not queried the kubelet yet
			return uid + " has the condition that the CPUs are unknown"
		}
		if !condition.Met {
			continue
		}
		if exclusive := p.pod.Annotations.CPUs == model.CPUExclusive; exclusive != (condition.Reason == model.CPUsExclusive) {
			return fmt.Sprintf("%s requests %s and has the condition %+v", uid, p.pod.Annotations.CPUs, condition)
		}
		own[uid] = map[string]model.CPUSet{}
		for part := range strings.SplitSeq(condition.Message, ", ") {
			name, list, _ := strings.Cut(part, " ")
			set, err := model.ParseCPUs(list)
			i := int(name[0] - 'a')
			if err != nil || set.Len() != int(p.pod.Containers[i].LimitMilli/1000) {
				return fmt.Sprintf("the condition of %s is %q, its limits are %+v", uid, condition.Message, p.pod.Containers)
			}
			if set.Overlaps(taken) || set.Overlaps(homes) {
				return fmt.Sprintf("%s has CPUs of another pod: %s", uid, set)
			}
			own[uid][name] = set
			if p.pod.Annotations.CPUs == model.CPUExclusive {
				taken = taken.Or(set)
			} else {
				homes = homes.Or(set)
			}
		}
	}
	shared := n.all.Minus(taken)
	if shared.Empty() {
		return "no CPU is left for other pods"
	}
	for uid, p := range n.pods {
		for id, cmd := range p.processes {
			allowed, err := allowedCPUs(cmd.Process.Pid)
			if err != nil {
				return err.Error()
			}
			should := shared
			if mine := own[uid]; mine != nil {
				if id == "f0f0f0f0f0f0" {
					if foreign := allowed.And(taken); !foreign.Within(union(mine)) {
						return fmt.Sprintf("the sandbox of %s runs on %s", uid, allowed)
					}
					continue
				}
				for i := range p.pod.Containers {
					if c := &p.pod.Containers[i]; c.ID == id && !mine[c.Name].Empty() {
						should = mine[c.Name]
					}
				}
			}
			if allowed != should {
				return fmt.Sprintf("%s of %s, which requests %q, runs on %s, not on %s", id, uid, p.pod.Annotations.CPUs, allowed,
					should)
			}
		}
	}
	return n.wrongLists(own, shared)
}

// wrongLists describes the v2 cgroups with a wrong CPU list, which would bind groups that are made in them later. It
// returns "" if there are none. Only the QoS classes, the pods, and the containers of pods that have or had CPUs of
// their own have lists.
func (n *cpuNode) wrongLists(own map[string]map[string]model.CPUSet, shared model.CPUSet) string {
	if n.separate() {
		return ""
	}
	var alone [3]model.CPUSet // by QoS class
	for uid, mine := range own {
		p := n.pods[uid]
		should := union(mine)
		for i := range p.pod.Containers {
			if mine[p.pod.Containers[i].Name].Empty() {
				should = should.Or(shared)
			}
		}
		if is := n.list(p.dir, "cpuset.cpus"); is != should {
			return fmt.Sprintf("the list of %s is %s, not %s", uid, is, should)
		}
		if p.pod.Annotations.CPUs == model.CPUExclusive {
			alone[p.pod.QoS] = alone[p.pod.QoS].Or(union(mine))
		}
	}
	for uid, p := range n.pods {
		if is := n.list(p.dir, "cpuset.cpus.effective"); own[uid] == nil && is != shared {
			return fmt.Sprintf("%s may run on %s, not on %s", uid, is, shared)
		}
		for id := range p.processes {
			if is := n.list(p.dir+"/"+id, "cpuset.cpus"); !p.once && !is.Empty() {
				return fmt.Sprintf("the list of %s of %s, which never had its own CPUs, is %s", id, uid, is)
			}
		}
	}
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		if is, should := n.list(n.layout.Class(q), "cpuset.cpus.effective"), shared.Or(alone[q]); is != should {
			return fmt.Sprintf("the class %v may run on %s, not on %s", q, is, should)
		}
	}
	return ""
}

func union(sets map[string]model.CPUSet) model.CPUSet {
	var all model.CPUSet
	for _, s := range sets {
		all = all.Or(s)
	}
	return all
}

// allowedCPUs returns the CPUs on which the kernel lets a process run.
func allowedCPUs(pid int) (model.CPUSet, error) {
	status, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		return model.CPUSet{}, err
	}
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return model.ParseCPUs(line)
}

// settle waits until every process and list is right, and returns how long that took.
func (n *cpuNode) settle(what string) time.Duration {
	n.t.Helper()
	begin := time.Now()
	var wrong string
	// The number of moves in a minute is bounded, so a move may have to wait. The virtual machine was also seen to
	// stand still for 16 s when a CPU went offline while the host was busy.
	waitFor(n.t, patience, what, func() bool { wrong = n.wrong(); return wrong == "" }, func() string { return wrong })
	took := time.Since(begin)
	for _, p := range n.pods {
		for _, cmd := range p.processes {
			now, err := allowedCPUs(cmd.Process.Pid)
			if before, ran := n.ran[cmd.Process.Pid]; err == nil && ran && now != before {
				n.saw("moved")
			}
			n.ran[cmd.Process.Pid] = now
		}
	}
	return took
}

// served reports whether a pod has CPUs of its own.
func (n *cpuNode) served(uid string) bool { return n.condition(uid).Met }

// condition returns the last condition that the agent reported for a pod.
func (n *cpuNode) condition(uid string) model.PodCondition {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conditions[uid]
}
