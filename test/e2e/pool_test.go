package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

const poolPath = "/apis/waterline.io/v1alpha1/namespaces/" + poolNamespace + "/workerpools/"

// cpuMemory is an amount of CPUs and GiB.
func cpuMemory(cpus, gib int64) model.Amount {
	return model.Amount{CPU: cpus * 1000, Memory: gib << 30}
}

// quick are times of a ResourceManager that is faster than a real one.
var quick = fakerm.Options{
	Boot: 500 * time.Millisecond, Expiry: 3 * time.Second, Return: 2 * time.Second, Heartbeat: time.Second,
	Unsettled: 100 * time.Millisecond, Minimum: fakerm.Size{MemoryMiB: 1024, VCores: 1}, Labelled: 10 * time.Second,
}

// poolOf returns a pool as the API has it; its name is empty if there is none.
func (y *yard) poolOf(t testing.TB, name string) (p v1alpha1.WorkerPool) {
	t.Helper()
	err := y.custom.Get().Namespace(poolNamespace).Resource("workerpools").Name(name).Do(t.Context()).Into(&p)
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	return p
}

// becomes waits until a pool has a state.
func (y *yard) becomes(t testing.TB, name, what string, is func(p *v1alpha1.WorkerPool) bool) v1alpha1.WorkerPool {
	t.Helper()
	var p v1alpha1.WorkerPool
	eventually(t, "pool "+name+": "+what, func() (bool, string) {
		p = y.poolOf(t, name)
		return is(&p), fmt.Sprintf("%+v", p.Status)
	})
	return p
}

// active waits until a number of workers is active, and no more are wanted.
func (y *yard) active(t testing.TB, name string, n int32) v1alpha1.WorkerPool {
	t.Helper()
	return y.becomes(t, name, fmt.Sprintf("%d active workers", n), func(p *v1alpha1.WorkerPool) bool {
		return p.Status.Active == n && p.Status.ObservedGeneration == p.Generation &&
			meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// explained checks what the command line says of a pool and of its first worker, which are active.
func explained(t testing.TB, p *v1alpha1.WorkerPool) {
	t.Helper()
	if len(p.Status.Workers) == 0 {
		t.Fatal("the pool has no workers")
	}
	w := &p.Status.Workers[0]
	shows(t, "explain pool "+p.Name+" -n "+p.Namespace, "pool "+p.Namespace+"/"+p.Name+"  engine ",
		fmt.Sprintf("workers wanted %d, active %d", p.Status.Wanted, p.Status.Active), w.Name, "Active: the worker takes")
	shows(t, "explain worker "+w.Name+" -n "+p.Namespace,
		"worker "+p.Namespace+"/"+w.Name+" of pool "+p.Name+" on node "+w.Node, "Active since ", "Active: the worker takes")
}

// offers waits until the ResourceManager shows a total of a host.
func (p *yarnPool) offers(t testing.TB, host string, want fakerm.Size) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s offers %v", host, want), func() (bool, string) {
		n := p.Node(host)
		return n.Total == want, fmt.Sprintf("%+v", n)
	})
}

// check checks what must never happen to the containers of a pool.
func (y *yard) check(t testing.TB, p *yarnPool) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	c := p.Counted()
	if p.early > 0 || p.unlabelled > 0 || c.Misplaced > 0 || len(p.complaints) > 0 {
		t.Errorf("%d containers ended early, %d NodeManagers started without their label, %d containers are misplaced: %q",
			p.early, p.unlabelled, c.Misplaced, p.complaints)
	}
	t.Logf("%d requests, %d resizes, %d containers; killed: %d in their time by the ResourceManager, %d with their pod",
		c.Requests, c.Resizes, c.Started, c.Killed, p.ended)
}

// poolHost is the host of the worker of a node.
func poolHost(pool, node string) string {
	return fmt.Sprintf("%s-%s.%s.%s.svc.cluster.local", pool, node, pool, poolNamespace)
}

// specOf returns a WorkerPool of one worker on each node with the label pool=NAME.
func specOf(name, address, more string) string {
	return fmt.Sprintf(`
apiVersion: waterline.io/v1alpha1
kind: WorkerPool
metadata: {name: %[1]s, namespace: %[2]s}
spec: {yarn: {resourceManagers: [%[3]q], label: {name: elastic}}, nodeSelector: {matchLabels: {pool: %[1]s}},
  template: {spec: {containers: [{name: worker, image: hadoop}]}}%[4]s}
`, name, poolNamespace, address, more)
}

func (y *yard) create(t testing.TB, manifest string) {
	t.Helper()
	if out, err := tryApply(manifest); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestAPIPool runs pools beside each other with one manager; with -short, only one, through its life.
func TestAPIPool(t *testing.T) {
	y := newYard(t)
	excludes := t.TempDir()
	y.manager("--pools="+poolNamespace, "--exclude-dir="+excludes)
	if testing.Short() {
		t.Run("life", y.testLife)
		return
	}
	beside(t, map[string]func(t *testing.T){
		"life": y.testLife, "loss": y.testLoss, "drain": y.testDrain, "window": y.testWindow,
		"again": y.testAgain, "fixed": y.testFixed, "secret": y.testSecret, "many": y.testMany,
		"demand": y.testDemand, "gone": y.testGone,
		"evict":  func(t *testing.T) { y.testEvict(t) },
		"hang":   func(t *testing.T) { y.testHang(t) },
		"zeros":  func(t *testing.T) { y.testZeros(t) },
		"faults": func(t *testing.T) { y.testFaults(t, excludes) },
	})
	t.Run("host", y.testHost) // alone, because it lets privileged pods in
}

// beside runs subtests at the same time. They mostly wait, so there can be more than the machine has CPUs, unlike with
// [testing.T.Parallel].
func beside(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	var all sync.WaitGroup
	for name, run := range tests {
		all.Go(func() { t.Run(name, run) })
	}
	all.Wait()
}

// testAgain deletes a pool and makes one of the same name at once, several times. Its hosts lose the label with the old
// pool and have it again before a NodeManager of the new one starts.
func (y *yard) testAgain(t *testing.T) {
	p := y.rm(t, "again", "elastic", quick, 60*time.Second, 30*time.Minute)
	y.offer(t, "again-0", "again", cpuMemory(9, 17))
	y.create(t, specOf("again", p.address, ""))
	for range 3 {
		old := y.active(t, "again", 1)
		again, err := json.Marshal(v1alpha1.WorkerPool{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "WorkerPool"},
			ObjectMeta: metav1.ObjectMeta{Name: old.Name, Namespace: old.Namespace}, Spec: old.Spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		if status := y.request(http.MethodDelete, poolPath+"again", ""); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		eventually(t, "the new pool is there", func() (bool, string) {
			status := y.request(http.MethodPost, strings.TrimSuffix(poolPath, "/"), string(again))
			return status == http.StatusCreated, fmt.Sprint(status)
		})
	}
	y.active(t, "again", 1)
	y.check(t, p)
}

// testMany makes a pool of more workers than its status shows. Its report has them all, and the command line reads it.
func (y *yard) testMany(t *testing.T) {
	const workers = 25
	p := y.rm(t, "many", "elastic", quick, 60*time.Second, 30*time.Minute)
	for i := range workers {
		y.offer(t, fmt.Sprintf("many-%d", i), "many", cpuMemory(9, 17))
	}
	y.create(t, specOf("many", p.address, ""))
	shown := y.active(t, "many", workers).Status
	if len(shown.Workers) != 0 || shown.Reports != 1 || shown.Replicas != workers {
		t.Errorf("the status shows %d workers, %d reports and %d replicas", len(shown.Workers), shown.Reports, shown.Replicas)
	}
	first, last := fmt.Sprintf("many-many-%d", 0), fmt.Sprintf("many-many-%d", workers-1)
	eventually(t, "the report has all workers as active", func() (bool, string) {
		text := kubectl(t, "get", "configmap", "many-report-0", "-n", poolNamespace, "-o",
			`jsonpath={.data.workers\.json}`)
		return strings.Count(text, `"phase":"Active"`) == workers && strings.Contains(text, `"`+last+`"`), text
	})
	shows(t, "explain pool many -n "+poolNamespace, fmt.Sprintf("workers wanted %d, active %[1]d", workers), first, last)
	shows(t, "explain worker "+last+" -n "+poolNamespace, "of pool many", "Active since ")
	y.check(t, p)
}

// misedit edits the pool of testLife so that its spec cannot be used, and back.
func (y *yard) misedit(t *testing.T, p *yarnPool, first, second string) {
	t.Log("an edit that the API server takes and the manager does not: workers shrink, and none grows")
	label := func(value string) {
		if status := y.request(http.MethodPatch, poolPath+"night",
			`{"spec":{"template":{"metadata":{"labels":{"`+v1alpha1.LabelQoS+`":`+value+`}}}}}`); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	label(`"LS"`)
	y.complains(t, "night", v1alpha1.ConditionReady, "Invalid", "template", "goes on by its last valid spec")
	y.offer(t, "life-0", "night", cpuMemory(9, 20))
	y.offer(t, "life-1", "night", cpuMemory(5, 11))
	p.offers(t, second, fakerm.Size{MemoryMiB: 4096, VCores: 2})
	if n := p.Node(first); n.Total != (fakerm.Size{MemoryMiB: 8192, VCores: 4}) {
		t.Errorf("it grew: %+v", n)
	}
	label("null")
	p.offers(t, first, fakerm.Size{MemoryMiB: 16384, VCores: 8})
}

// testLife makes a pool with five lines of YAML, and follows its workers until it is deleted.
func (y *yard) testLife(t *testing.T) {
	o := quick
	o.Expiry = time.Minute // no NodeManager dies, also on a machine that stands still
	p := y.rm(t, "night", "elastic", o, 60*time.Second, 30*time.Minute)
	for i := range 3 {
		y.offer(t, fmt.Sprintf("life-%d", i), "night", cpuMemory(9, 20))
	}
	y.offer(t, "life-2", "night", cpuMemory(1, 2)) // no room
	stranger := &corev1.Pod{}
	err := y.core.Post().Namespace(poolNamespace).Resource("pods").Body(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "night-life-2", Labels: map[string]string{v1alpha1.LabelPool: "night"}},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}).Do(t.Context()).Into(stranger)
	if err != nil {
		t.Fatal(err)
	}

	// A larger ceiling makes the pool replace each worker by one of the same name.
	y.create(t, specOf("night", p.address, `, identity: {coolDown: 1s}`))
	shown := y.active(t, "night", 2)
	if total := shown.Status.Total; total.VCores != 2 || total.Memory.Value() != 4<<30 || shown.Status.Wanted != 2 ||
		len(shown.Status.Workers) != 2 {
		t.Errorf("%+v", shown.Status)
	}
	if out := kubectl(t, "get", "wpool", "night", "-n", poolNamespace); !strings.Contains(out, "READY") ||
		!strings.Contains(out, "AllActive") || !strings.Contains(out, "4Gi") {
		t.Error(out)
	}
	explained(t, &shown)

	t.Log("workers grow in steps, by what no pod of their node requests")
	if status := y.request(http.MethodPatch, poolPath+"night",
		`{"spec":{"size":{"ceiling":{"cpu":"8","memory":"16Gi"},"pause":"1s","follow":{"window":"0s"}},`+
			`"drain":{"grace":"6s","timeout":"10s"}}}`,
	); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	y.mu.Lock()
	p.grace, p.drain = 6*time.Second, 10*time.Second
	y.mu.Unlock()
	first, second := poolHost("night", "life-0"), poolHost("night", "life-1")
	p.offers(t, first, fakerm.Size{MemoryMiB: 16384, VCores: 8}) // 9 CPUs and 20 GiB, less 1.1 and 3
	p.Ask("jobs", fakerm.Demand{Label: "elastic", Size: fakerm.Size{MemoryMiB: 2048, VCores: 1}, For: time.Hour,
		PerNode: 6})
	eventually(t, "it is busy", func() (bool, string) {
		n := p.Node(first)
		return n.Containers == 6, fmt.Sprintf("%+v", n)
	})
	p.Ask("jobs", fakerm.Demand{})
	t.Log("a batch pod takes a part; then the offer falls")
	y.others("life-1", cpuMemory(2, 4))
	p.offers(t, second, fakerm.Size{MemoryMiB: 12288, VCores: 6})
	y.offer(t, "life-0", "night", cpuMemory(5, 11))
	p.offers(t, first, fakerm.Size{MemoryMiB: 8192, VCores: 4})
	eventually(t, "two containers are killed at their deadline", func() (bool, string) {
		n := p.Node(first)
		return n.Containers == 4, fmt.Sprintf("%+v", n)
	})

	if !testing.Short() {
		y.misedit(t, p, first, second)
	}

	t.Log("the pool is deleted, and its workers drain")
	if status := y.request(http.MethodDelete, poolPath+"night", ""); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	eventually(t, "the pool is gone", func() (bool, string) {
		left := y.poolOf(t, "night")
		return left.Name == "", fmt.Sprintf("%+v", left.Status)
	})
	if hosts := p.Hosts(); len(hosts) > 0 {
		t.Errorf("hosts have labels: %v", hosts)
	}
	t.Log("a pool of the same name follows at once: its hosts have their labels before their pods are made")
	y.create(t, specOf("night", p.address, `, identity: {coolDown: 1s}`))
	y.active(t, "night", 2)
	y.check(t, p)
	now := &corev1.Pod{}
	err = y.core.Get().Namespace(poolNamespace).Resource("pods").Name("night-life-2").Do(t.Context()).Into(now)
	if err != nil || now.UID != stranger.UID || now.DeletionTimestamp != nil || now.Generation != stranger.Generation ||
		len(now.Annotations) != len(stranger.Annotations) {
		t.Errorf("the pod that is not the controller's: %v, %+v", err, now.ObjectMeta)
	}
}
