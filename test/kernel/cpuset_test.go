package kernel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// cpuPod is a pod with a real process in each container.
type cpuPod struct {
	pod       model.Pod
	dir       string
	processes map[string]*exec.Cmd // by the name of the container's cgroup
}

// cpuNode is a node whose pods ask for CPUs.
type cpuNode struct {
	*node
	source *pods
	all    model.CPUSet
	pods   map[string]*cpuPod
	born   int

	mu         sync.Mutex
	conditions map[string]model.PodCondition
}

// newCPUNode makes a node, or skips the test where no CPU sets can be had: with one CPU nobody can have one alone.
func newCPUNode(t *testing.T) *cpuNode {
	n := &cpuNode{node: newNode(t), source: newPods(), pods: map[string]*cpuPod{}, conditions: map[string]model.PodCondition{}}
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
	n.source.change(func(s *kube.Snapshot) { s.AllocatableMilli = int64(n.all.Len()) * 1000 })
	return n
}

// agent starts an agent that keeps its state in a directory.
func (n *cpuNode) agent(dir string) *run {
	return n.start(n.source, func(c *agent.Config) {
		c.RunDir = dir
		c.SetCondition = func(_ context.Context, c model.Condition) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.conditions[c.UID] = c.PodCondition
			if pod := n.pods[c.UID]; pod != nil {
				pod.pod.CPUCondition = c.PodCondition
				n.source.set(pod.pod)
			}
			return nil
		}
	})
}

// add makes a pod with one container for each limit, in CPUs, 0 for none.
func (n *cpuNode) add(q model.QoSClass, mode model.CPUMode, limits ...int64) *cpuPod {
	n.t.Helper()
	n.born++
	uid := fmt.Sprintf("pod%d", n.born)
	p := &cpuPod{processes: map[string]*exec.Cmd{}, pod: model.Pod{
		UID: uid, APIUID: uid, Namespace: "default", Name: uid, QoS: q, Created: time.Now(), Asks: model.Asks{CPUs: mode},
	}}
	for i, limit := range limits {
		p.pod.Containers = append(p.pod.Containers, model.Container{Name: string(rune('a' + i)), LimitMilli: limit * 1000, RequestMilli: limit * 1000})
		p.pod.RequestMilli += limit * 1000
		p.pod.LimitMilli += limit * 1000
	}
	n.mu.Lock()
	n.pods[uid] = p
	n.mu.Unlock()
	p.dir = n.pod(q, uid, p.pod.RequestMilli)
	n.tell(p) // the API knows the pod before it has containers
	n.begin(p, "f0f0f0f0f0f0")
	for i := range limits {
		n.restart(p, i)
	}
	return p
}

func (n *cpuNode) tell(p *cpuPod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.source.set(p.pod)
}

// begin makes a container's group and starts a process in it, as runc does: in the group of each hierarchy from the first.
func (n *cpuNode) begin(p *cpuPod, id string) {
	n.t.Helper()
	name := p.dir + "/" + id
	n.group(name)
	cmd := exec.Command("sh", "-c", `for f; do echo $$ >"$f" || exit 1; done; while :; do sleep 1000; done`, "sh", n.path(name, "cgroup.procs"))
	if n.separate() {
		cmd.Args = append(cmd.Args, n.cpusets(name, "cgroup.procs"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	p.processes[id] = cmd
	n.t.Cleanup(func() { n.end(p, id) })
	within(n.t, "the process is in "+name, func() bool { return strings.Contains(n.text(name, "cgroup.procs"), fmt.Sprint(cmd.Process.Pid)) },
		func() string { return n.text(name, "cgroup.procs") })
}

func (n *cpuNode) end(p *cpuPod, id string) {
	cmd := p.processes[id]
	if cmd == nil {
		return
	}
	delete(p.processes, id)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait()
	n.remove(p.dir + "/" + id)
}

// restart ends a container, if it runs, and starts it again under a new id. The API hears of that a little later.
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

func (n *cpuNode) ask(p *cpuPod, mode model.CPUMode) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.pod.Asks.CPUs = mode
	n.source.set(p.pod)
}

// wrong returns what of the node's processes is not where it should be, "" if nothing: by the conditions that the pods were
// given, and where the kernel lets each process run.
func (n *cpuNode) wrong() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	own := map[string]map[string]model.CPUSet{} // pod → container → CPUs
	taken, homes := model.CPUSet{}, model.CPUSet{}
	for uid, p := range n.pods {
		condition := n.conditions[uid]
		asks := p.pod.Asks.CPUs == model.CPUShare || p.pod.Asks.CPUs == model.CPUExclusive
		if !asks {
			if condition != (model.PodCondition{}) {
				return fmt.Sprintf("%s asks for nothing but is told %+v", uid, condition)
			}
			continue
		}
		if condition.Reason == "" {
			return uid + " asks for CPUs and is told nothing"
		}
		if condition.Reason == model.CPUsMoveLater {
			return condition.Message
		}
		if !condition.Met {
			continue
		}
		own[uid] = map[string]model.CPUSet{}
		for part := range strings.SplitSeq(condition.Message, ", ") {
			name, list, _ := strings.Cut(part, " ")
			set, err := model.ParseCPUs(list)
			i := int(name[0] - 'a')
			if err != nil || set.Len() != int(p.pod.Containers[i].LimitMilli/1000) {
				return fmt.Sprintf("%s is told %q, its limits are %+v", uid, condition.Message, p.pod.Containers)
			}
			if set.Overlaps(taken) || set.Overlaps(homes) {
				return fmt.Sprintf("%s has CPUs of another: %s", uid, set)
			}
			own[uid][name] = set
			if p.pod.Asks.CPUs == model.CPUExclusive {
				taken = taken.Or(set)
			} else {
				homes = homes.Or(set)
			}
		}
	}
	shared := n.all.Minus(taken)
	if shared.Empty() {
		return "no CPU is left for the others"
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
				return fmt.Sprintf("%s of %s, which asks for %q, runs on %s, not on %s", id, uid, p.pod.Asks.CPUs, allowed, should)
			}
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

// allowedCPUs returns where the kernel lets a process run.
func allowedCPUs(pid int) (model.CPUSet, error) {
	status, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		return model.CPUSet{}, err
	}
	_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return model.ParseCPUs(line)
}

// settle waits until everything is where it should be, and returns how long that took.
func (n *cpuNode) settle(what string) time.Duration {
	n.t.Helper()
	begin := time.Now()
	for wrong := n.wrong(); wrong != ""; wrong = n.wrong() {
		limit := 10 * time.Second
		if strings.HasPrefix(wrong, string(model.CPUsMoveLater)) {
			limit = 70 * time.Second // moves are bounded
		}
		if time.Since(begin) > limit {
			n.t.Fatalf("not within %s: %s; instead %s", limit, what, wrong)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// TestCPUSets lets pods that ask for CPUs come, change their minds, restart and go, while the agent restarts too and somebody
// else writes into their cgroups, and looks where the kernel lets their processes run.
func TestCPUSets(t *testing.T) {
	n := newCPUNode(t)
	dir := memoryDir(t)
	r := n.agent(dir)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	steps, pause := 60, time.Duration(0)
	if soak() {
		steps, pause = 1000, 300*time.Millisecond // about as fast as moves may go
	}
	var took []time.Duration
	for step := range steps {
		var uids []string
		for uid := range n.pods {
			uids = append(uids, uid)
		}
		what := "add"
		var p *cpuPod
		if len(uids) > 0 {
			p = n.pods[uids[random.IntN(len(uids))]]
		}
		mode := []model.CPUMode{model.CPUNone, model.CPUShare, model.CPUExclusive, model.CPUExclusive}[random.IntN(4)]
		switch k := random.IntN(12); {
		case p == nil || k < 3 && len(uids) < 8:
			limits := [][]int64{{1}, {1, 0}, {0}, {2}, {1, 1}}[random.IntN(5)]
			p = n.add(model.QoSClass(random.IntN(2)), mode, limits...)
			what = fmt.Sprintf("add %s %v as %s", p.pod.UID, limits, mode)
		case k < 5:
			what = "drop " + p.pod.UID
			n.drop(p)
		case k < 8:
			what = fmt.Sprintf("%s becomes %s", p.pod.UID, mode)
			n.ask(p, mode)
		case k < 9:
			what = "restart a container of " + p.pod.UID
			n.restart(p, random.IntN(len(p.pod.Containers)))
		case k < 10:
			what = "the agent restarts"
			r.stop()
			r = n.agent(dir)
		default:
			// Where nobody has CPUs alone, the lists of those who have none of their own are none of our business.
			if what = "another writer"; n.served(p.pod.UID) {
				list := fmt.Sprint(random.IntN(n.all.Len()))
				_ = os.WriteFile(n.cpusets(p.dir+"/"+p.pod.Containers[0].ID, "cpuset.cpus"), []byte(list), 0)
				what += " makes it " + list + " in " + p.pod.UID
			}
		}
		took = append(took, n.settle(fmt.Sprintf("step %d: %s", step, what)))
		time.Sleep(pause)
	}
	p50, p90, p99 := quantiles(took)
	t.Logf("%d steps: p50 %s, p90 %s, p99 %s until every process was where it belongs", steps, p50, p90, p99)
	for uid, p := range n.pods {
		n.drop(p)
		n.settle("drop " + uid)
	}
}

// served reports whether a pod has CPUs of its own.
func (n *cpuNode) served(uid string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conditions[uid].Met
}
