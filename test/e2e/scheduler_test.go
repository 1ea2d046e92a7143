package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Profiles of the scheduler under test. Both are in one process.
const (
	profiled = "waterline"
	stock    = "stock"
	refusing = "refusing" // like it; WeightSpread refuses nodes
)

// schedule is a cluster without kubelets, for the scheduler. Nodes and agents' pods are objects in etcd. Kubernetes'
// own controllers and scheduler stand still, so that nobody judges nodes by their missing Leases.
type schedule struct {
	t        testing.TB
	registry *registry
	client   *kubernetes.Clientset
	pods     int // made so far
}

// scheduleNamespace is the namespace of the pods. Its policy allows everything.
const scheduleNamespace = "schedule"

// schedulePolicy is the policy of all nodes, as their reports say.
const schedulePolicy = `
apiVersion: waterline.io/v1alpha1
kind: ColocationPolicy
metadata: {name: schedule}
spec:
  mode: Enforce
  weight: {max: 262144}
  privileges: [{namespaceSelector: {}, allow: [ShareCPUs, ExclusiveCPUs]}]
`

var stopControllers sync.Once

func newSchedule(t testing.TB) *schedule {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	stopControllers.Do(func() {
		for _, name := range []string{scheduleNamespace, v1alpha1.Namespace} {
			if out, err := tryApply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", name)); err != nil {
				t.Fatal(out)
			}
			eventually(t, "an account for pods", func() (bool, string) {
				out, err := tryKubectl("get", "serviceaccount", "default", "-n", name)
				return err == nil, out
			})
		}
		control(t, "stop", "controller-manager")
		control(t, "stop", "scheduler")
		if out, err := tryApply(schedulePolicy); err != nil {
			t.Fatal(out)
		}
	})
	s := &schedule{t: t, registry: newRegistry(t), client: client}
	t.Cleanup(s.clean)
	return s
}

// clean removes all objects that tests make.
func (s *schedule) clean() {
	s.t.Helper()
	s.removePods()
	nodes, err := s.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var keys []string
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		keys = append(keys, "minions/"+name, "pods/"+v1alpha1.Namespace+"/"+name, "waterline.io/nodereports/"+name)
	}
	s.remove(keys)
}

// removePods removes the pods, but not the agents.
func (s *schedule) removePods() {
	s.t.Helper()
	var keys []string
	for _, p := range s.list() {
		keys = append(keys, "pods/"+p.Namespace+"/"+p.Name)
	}
	s.remove(keys)
}

// remove deletes objects in etcd, each in its own revision. Of many that were deleted in one revision, watchers were
// seen to miss some.
func (s *schedule) remove(keys []string) {
	s.t.Helper()
	var writers sync.WaitGroup
	for w := range writersAtOnce {
		writers.Go(func() {
			for i := w; i < len(keys); i += writersAtOnce {
				request := map[string]any{"key": []byte("/registry/" + keys[i])}
				if err := s.registry.call("deleterange", request); err != nil {
					s.t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// schedNode is a node to make.
type schedNode struct {
	name    string
	cpu     int // CPUs
	batch   int // milli-cores of batch CPU
	noAgent bool
	report  map[string]any // changes to the report of an idle node; nil: none
	none    bool           // no report
}

// nodeName returns the name of a node.
func nodeName(i int) string { return fmt.Sprintf("sched-%04d", i) }

// nodes makes nodes.
func (s *schedule) nodes(all ...schedNode) {
	s.t.Helper()
	var entries []entry
	for _, n := range all {
		entries = append(entries, n.objects()...)
	}
	if err := s.registry.make(entries); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range all {
		if !n.none {
			s.report(n)
		}
	}
}

func (n *schedNode) objects() []entry {
	now := metav1.Now()
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(strconv.Itoa(n.cpu)), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	if n.batch > 0 {
		amounts[v1alpha1.ResourceBatchCPU] = resource.MustParse(strconv.Itoa(n.batch))
	}
	all := []entry{{"minions/" + n.name, &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.name, UID: types.UID(n.name), CreationTimestamp: now,
			Labels: map[string]string{corev1.LabelHostname: n.name}},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now},
		}},
	}}}
	if n.noAgent {
		return all
	}
	return append(all, agentOf(n.name, true))
}

// agentOf returns the pod of a node's agent.
func agentOf(node string, ready bool) entry {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	now := metav1.Now()
	return entry{"pods/" + v1alpha1.Namespace + "/" + node, &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: node, UID: types.UID("agent-" + node),
			CreationTimestamp: now, Labels: map[string]string{"app.kubernetes.io/name": "waterline-agent"}},
		Spec: corev1.PodSpec{NodeName: node, SchedulerName: corev1.DefaultSchedulerName,
			Containers: []corev1.Container{{Name: "agent", Image: "none"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: status, LastTransitionTime: now},
		}},
	}}
}

// report writes the report of a node in the form in which the API server stores it.
func (s *schedule) report(n schedNode) {
	s.t.Helper()
	zero := map[string]any{"mid": "0", "batch": "0"}
	account := func(capacity string) map[string]any {
		return map[string]any{"offer": zero, "bound": zero, "allowance": capacity, "capacity": capacity, "ceiling": capacity,
			"system": "0", "online": "0", "peaks": map[string]any{"hour": "0", "day": "0"}}
	}
	status := map[string]any{
		"policy": "schedule", "mode": "Enforce", "selling": "Open", "changed": time.Now().UTC().Format(time.RFC3339),
		"cpu": account(strconv.Itoa(n.cpu)), "memory": account("64Gi"),
	}
	for key, value := range n.report {
		status[key] = value
	}
	value, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion, "kind": "NodeReport", "status": status,
		"metadata": map[string]any{"name": n.name, "uid": "report-" + n.name,
			"creationTimestamp": time.Now().UTC().Format(time.RFC3339)},
	})
	if err == nil {
		err = s.registry.call("put", map[string]any{
			"key": []byte("/registry/waterline.io/nodereports/" + n.name), "value": value,
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// online returns the change of a report by which online pods use CPU, in CPUs.
func online(capacity, used int) map[string]any {
	zero := map[string]any{"mid": "0", "batch": "0"}
	amount := strconv.Itoa(capacity)
	return map[string]any{"cpu": map[string]any{"offer": zero, "bound": zero, "allowance": "0", "capacity": amount,
		"ceiling": amount, "system": "0", "online": strconv.Itoa(used), "peaks": map[string]any{"hour": "0", "day": "0"}}}
}

// freeCPUs returns the change of a report by which CPUs of a node with one NUMA node are free.
func freeCPUs(free, cores string, exclusive int) map[string]any {
	return map[string]any{"cpuSets": map[string]any{"maxExclusive": exclusive, "numaNodes": []any{
		map[string]any{"id": 0, "free": free, "cores": []string{cores}},
	}}}
}

// pod makes a pod for a profile, which change may change, and returns its name.
func (s *schedule) pod(profile string, change func(*corev1.Pod)) string {
	s.t.Helper()
	p := s.newPod(profile, change)
	s.create(p)
	return p.Name
}

func (s *schedule) newPod(profile string, change func(*corev1.Pod)) *corev1.Pod {
	s.pods++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%05d", s.pods), Namespace: scheduleNamespace},
		Spec: corev1.PodSpec{SchedulerName: profile, Containers: []corev1.Container{{Name: "c", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}}}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func (s *schedule) create(p *corev1.Pod) {
	s.t.Helper()
	if err := s.try(p); err != nil {
		s.t.Fatal(err)
	}
}

// try makes a pod in the API.
func (s *schedule) try(p *corev1.Pod) error {
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(context.Background(), p, metav1.CreateOptions{})
	return err
}

// batchCPU makes a pod request batch CPU only.
func batchCPU(milli string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse(milli)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
}

// exclusive makes a pod want CPUs of its own.
func exclusive(cpus int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(strconv.Itoa(cpus))}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
		p.Annotations = map[string]string{v1alpha1.AnnotationCPUManager: "exclusive"}
	}
}

// weighing gives a pod a weight.
func weighing(shares int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationCPUShare: strconv.Itoa(shares)}
	}
}

// bound waits until a pod has a node, and returns it.
func (s *schedule) bound(name string) *corev1.Pod {
	s.t.Helper()
	var pod *corev1.Pod
	eventually(s.t, name+" has a node", func() (bool, string) {
		pod = s.get(name)
		return pod.Spec.NodeName != "", fmt.Sprint(pod.Status.Conditions)
	})
	return pod
}

func (s *schedule) get(name string) *corev1.Pod {
	s.t.Helper()
	pod, err := s.client.CoreV1().Pods(scheduleNamespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// refused waits until a pod has no node, for a reason that contains words.
func (s *schedule) refused(name string, words ...string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%s is refused: %q", name, words), func() (bool, string) {
		pod := s.get(name)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) }), c.Message
			}
		}
		return false, pod.Spec.NodeName
	})
}

// list returns all pods.
func (s *schedule) list() []corev1.Pod {
	s.t.Helper()
	all, err := s.client.CoreV1().Pods(scheduleNamespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.Items
}

// schedulerProcess is a running scheduler.
type schedulerProcess struct {
	t    testing.TB
	cmd  *exec.Cmd
	port int
	out  bytes.Buffer
	done chan struct{}
}

// schedulerConfig is the configuration of the scheduler under test. A leader keeps its Lease on a machine that stands
// still for a quarter of a minute.
func schedulerConfig(elect bool) string {
	plugins := "plugins: {multiPoint: {enabled: [{name: WeightSpread, weight: 3}, {name: LoadAware, weight: 2}, " +
		"{name: BatchFit, weight: 3}, {name: CPUSetFit, weight: 3}]}}"
	args := func(more string) string {
		return "pluginConfig: [{name: BatchFit, args: {agentGrace: 2s}}, {name: LoadAware, args: {agentGrace: 2s}}" +
			more + "]"
	}
	return fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: %v, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 500ms,
  resourceName: waterline-scheduler, resourceNamespace: %s}
clientConnection: {kubeconfig: %q, qps: 5000, burst: 5000}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- {schedulerName: %s, %s, %s}
- {schedulerName: %s, %s, %s}
- {schedulerName: %s}
`, elect, scheduleNamespace, bed.Kubeconfig(), profiled, plugins, args(""),
		refusing, plugins, args(", {name: WeightSpread, args: {refuse: true}}"), stock)
}

// scheduler starts a scheduler, which ends with the test. One that elects a leader need not be ready.
func (s *schedule) scheduler(elect bool) *schedulerProcess {
	s.t.Helper()
	p := s.start("waterline-scheduler", schedulerConfig(elect))
	if !elect {
		eventually(s.t, "the scheduler is ready", func() (bool, string) { return p.page("/readyz") == "ok", "" })
	}
	return p
}

// start starts a program, which is a scheduler, with a configuration.
func (s *schedule) start(program, config string) *schedulerProcess {
	s.t.Helper()
	dir := s.t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		s.t.Fatal(err)
	}
	p := &schedulerProcess{t: s.t, port: freePort(s.t), done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(built, "bed/bin", program), "--config="+file, "--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(p.port), "--cert-dir="+dir,
		"--authorization-always-allow-paths=/metrics,/healthz,/readyz", "--authentication-tolerate-lookup-failure")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread that started the process ends
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		p.kill()
		if s.t.Failed() {
			s.t.Logf("the scheduler said:\n%s", lastLines(p.out.String(), 60))
		}
	})
	return p
}

// kill ends the scheduler at once.
func (p *schedulerProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// page returns what the scheduler answers; "" without an answer.
func (p *schedulerProcess) page(path string) string {
	p.t.Helper()
	select {
	case <-p.done:
		p.t.Fatalf("the scheduler ended: %s", lastLines(p.out.String(), 20))
	default:
	}
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	response, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", p.port, path))
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return string(content)
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}

// TestSchedulerPlaces checks where pods go, what refused pods are told, and what wakes them.
func TestSchedulerPlaces(t *testing.T) {
	s := newSchedule(t)
	p := s.scheduler(false)

	t.Run("Load", func(t *testing.T) {
		s := s.within(t, p)
		s.nodes(schedNode{name: nodeName(1), cpu: 8}, schedNode{name: nodeName(2), cpu: 8, report: online(8, 6)})
		requests := func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3")
			p.Spec.NodeName = nodeName(1)
		}
		s.pod(profiled, requests)
		s.known(p, "Trusted", 2)
		if node := s.bound(s.pod(profiled, nil)).Spec.NodeName; node != nodeName(1) {
			t.Errorf("a pod went to %s, where online pods use 6 of 8 CPUs", node)
		}
		if node := s.bound(s.pod(stock, nil)).Spec.NodeName; node != nodeName(2) {
			t.Errorf("the stock scheduler chose %s, where more is requested", node)
		}
	})

	t.Run("Stale", func(t *testing.T) {
		s := s.within(t, p)
		s.nodes(schedNode{name: nodeName(1), cpu: 8, none: true},
			schedNode{name: nodeName(2), cpu: 8, report: map[string]any{"changed": "2020-01-01T00:00:00Z"}},
			schedNode{name: nodeName(3), cpu: 8, report: map[string]any{"cpuSets": map[string]any{
				"maxExclusive": 1, "numaNodes": []any{map[string]any{"id": 0, "free": "77", "cores": []string{"0-3"}}},
			}}})
		s.known(p, "ReportMissing", 1)
		s.known(p, "ReportOld", 1)
		s.known(p, "ReportUnreadable", 1)
		on := map[string]bool{}
		for range 6 {
			on[s.bound(s.pod(profiled, nil)).Spec.NodeName] = true
		}
		if len(on) < 3 {
			t.Errorf("six pods went to %v only", on)
		}
	})

	t.Run("Batch", func(t *testing.T) {
		s := s.within(t, p)
		hot := schedNode{name: nodeName(1), cpu: 8, batch: 4000, report: map[string]any{"hot": "MemoryExhausted"}}
		gone := schedNode{name: nodeName(2), cpu: 8, batch: 4000, noAgent: true}
		s.nodes(hot, gone)
		s.known(p, "Trusted", 1)
		s.known(p, "ReportOrphaned", 1)
		name := s.pod(profiled, batchCPU("1000"))
		s.refused(name, "the node is hot (MemoryExhausted) and takes no batch", "no agent has held batch down here for")
		hot.report = nil
		s.report(hot)
		if node := s.bound(name).Spec.NodeName; node != hot.name {
			t.Errorf("the pod went to %s", node)
		}
		hot.report = map[string]any{"selling": "Draining"}
		s.report(hot)
		time.Sleep(time.Second)
		name = s.pod(profiled, batchCPU("1000"))
		s.refused(name, "the window for batch is about to end")
		if err := s.registry.make([]entry{agentOf(gone.name, true)}); err != nil {
			t.Fatal(err)
		}
		if node := s.bound(name).Spec.NodeName; node != gone.name {
			t.Errorf("the pod went to %s", node)
		}
		if woken := p.page("/metrics"); !strings.Contains(woken, "waterline_scheduler_woken_total 2") {
			t.Errorf("the metrics do not count two pods that were woken")
		}
	})

	t.Run("CPUSets", func(t *testing.T) {
		s := s.within(t, p)
		small := schedNode{name: nodeName(1), cpu: 8, report: freeCPUs("2-3", "0-3/4-7", 2)}
		large := schedNode{name: nodeName(2), cpu: 8, report: freeCPUs("1-7", "0-3/4-7", 6)}
		s.nodes(small, large)
		s.known(p, "Trusted", 2)
		first := s.bound(s.pod(profiled, exclusive(2)))
		if hint := first.Annotations[v1alpha1.AnnotationCPUSetHint]; first.Spec.NodeName != small.name || hint != "2-3" {
			t.Errorf("the pod got %s on %s, and 2-3 on %s fit exactly", hint, first.Spec.NodeName, small.name)
		}
		var taken model.CPUSet
		for range 3 {
			pod := s.bound(s.pod(profiled, exclusive(2)))
			cpus, err := model.ParseCPUs(pod.Annotations[v1alpha1.AnnotationCPUSetHint])
			if err != nil || cpus.Len() != 2 || cpus.Overlaps(taken) || pod.Spec.NodeName != large.name {
				t.Errorf("the pod got %s on %s beside %s: %v", cpus, pod.Spec.NodeName, taken, err)
			}
			taken = taken.Or(cpus)
		}
		name := s.pod(profiled, exclusive(2))
		s.refused(name, "0 CPUs of the 2 CPUs needed are free", "1 CPUs of the 2 CPUs needed are free")
		small.report = freeCPUs("1-3,5", "0-3/4-7", 4)
		s.report(small)
		pod := s.bound(name)
		if hint := pod.Annotations[v1alpha1.AnnotationCPUSetHint]; hint != "1,5" {
			t.Errorf("the pod got %s, and 1 and 5 became free", hint)
		}
		tenant := s.bound(s.pod(profiled, func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationCPUSetHint: "0-7"}
		}))
		if _, found := tenant.Annotations[v1alpha1.AnnotationCPUSetHint]; found {
			t.Error("the hint that a tenant wrote stays")
		}
	})

	t.Run("Weights", func(t *testing.T) {
		s := s.within(t, p)
		s.nodes(schedNode{name: nodeName(1), cpu: 8}, schedNode{name: nodeName(2), cpu: 8})
		s.known(p, "Trusted", 2)
		weighs := func(p *corev1.Pod) {
			grace := int64(0) // no kubelet ends it
			p.Spec.TerminationGracePeriodSeconds = &grace
			weighing(4096)(p)
		}
		on := map[string]int{}
		for range 4 {
			on[s.bound(s.pod(profiled, weighs)).Spec.NodeName]++
		}
		if on[nodeName(1)] != 2 {
			t.Errorf("four pods of 4 CPUs' weight went to %v", on)
		}
		s.refused(s.pod(refusing, weighs), "would get 2.7 CPUs of the 4.0 CPUs of its weight",
			"with 12.0 CPUs of weights on 8.0 CPUs")
		if node := s.bound(s.pod(profiled, weighs)).Spec.NodeName; node == "" {
			t.Error("a profile that refuses nothing refused a pod")
		}
		apply(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: first}, value: 1000}")
		before := len(s.list())
		s.bound(s.pod(refusing, func(p *corev1.Pod) {
			weighs(p)
			p.Spec.PriorityClassName = "first"
		}))
		if after := len(s.list()); after != before {
			t.Errorf("%d pods made room for one of higher priority, and one is enough", before+1-after)
		}
	})
}

// within returns the schedule for a subtest, which begins without objects, as the scheduler sees it too.
func (s *schedule) within(t *testing.T, p *schedulerProcess) *schedule {
	t.Helper()
	s.clean()
	sub := *s
	sub.t = t
	sub.registry = newRegistry(t)
	t.Cleanup(func() { s.pods = sub.pods })
	eventually(t, "the scheduler knows no node", func() (bool, string) {
		metrics := p.page("/metrics")
		return metrics != "" && !strings.Contains(metrics, "waterline_scheduler_nodes{"), kubectl(t, "get", "nodes")
	})
	return &sub
}

// known waits until the scheduler counts nodes under a word.
func (s *schedule) known(p *schedulerProcess, word string, nodes int) {
	s.t.Helper()
	line := fmt.Sprintf("waterline_scheduler_nodes{report=%q} %d\n", word, nodes)
	eventually(s.t, line, func() (bool, string) {
		var found []string
		for l := range strings.Lines(p.page("/metrics")) {
			if strings.HasPrefix(l, "waterline_scheduler_nodes{") {
				found = append(found, l)
			}
		}
		return slices.Contains(found, line), strings.Join(found, "")
	})
}
