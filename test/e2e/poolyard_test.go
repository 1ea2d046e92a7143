package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/test/bed/fakerm"
)

// poolNamespace is where the tests' pools are.
const poolNamespace = "yarn"

// yard is a cluster with worker pools. Its nodes are objects, whose kubelets and agents are here: a kubelet binds and
// runs the pods of workers, and an agent reports what its node offers and what pods request of that. What runs in the
// pods is up to each pool's runtime: see [fakeRuntime] and [liveRuntime].
type yard struct {
	*managed
	registry     *registry
	core, custom *rest.RESTClient
	store        pastStore // pods of the namespace
	jobs         sync.WaitGroup

	mu    sync.Mutex
	pools map[string]*yarnPool
	nodes map[string]*yarnNode
	pods  map[types.UID]*yarnPod
	pasts map[types.UID]podPast
}

// podRuntime runs the NodeManagers of a pool's pods.
type podRuntime interface {
	// start starts the NodeManager of a pod, again if it has ended, and returns the pod's address.
	start(ctx context.Context, k *yarnPod) (ip string, err error)
	// up reports whether the NodeManager of a pod that was started runs. The yard's lock is held.
	up(k *yarnPod) bool
	// stops is asked in each round from the deletion of a pod on, and reports whether the pod has stopped. Until then it
	// runs the pod's hook, and ends the NodeManager. The yard's lock is held.
	stops(k *yarnPod, now time.Time) bool
	// kill ends the NodeManager of a pod at once. The yard's lock is held.
	kill(k *yarnPod)
}

// yarnPool is what a pool's kubelets and its ResourceManager need to know, and what they saw.
type yarnPool struct {
	*fakerm.RM   // nil: the ResourceManager is a real one
	runtime      podRuntime
	address      string
	admin        string // of the administration protocol
	grace, drain time.Duration
	boot         time.Duration            // by which the clock says that a NodeManager started earlier
	as           func(host string) string // the name under which a NodeManager registers; nil: its own

	// The rest belongs to the yard's lock.
	ended, early int      // containers that ended with their pod; those before their time
	ends         []ending // of those pods
	unlabelled   int      // NodeManagers that started on a host without the label
	label        string   // of the pool
	seen         int      // kills of the ResourceManager that were judged
	complaints   []string
	notes        []string // what happened, for when a test fails
	marked       []marked // what the marks of pods said, for pools of a real ResourceManager
}

// ending is what the marks of a pod say about its end.
type ending struct {
	leaving time.Time // since when it was to stop; zero: it was not
	by      time.Time // when its containers may end with it; zero: never
}

// marked is until when the containers of a worker may not be ended, from some time on.
type marked struct {
	pod   string // its name
	at    time.Time
	until time.Time // zero: never
}

// yarnNode is a node and what its agent reports.
type yarnNode struct {
	offer, others model.Amount // what others request of the offer
	reported      string
	busy          bool
	sent          model.Amount // the last offer that was written, and when
	written       time.Time
}

// yarnPod is a pod as its kubelet sees it.
type yarnPod struct {
	pod      *corev1.Pod
	pool     *yarnPool
	host     string
	busy     bool // a request is under way
	bound    bool
	started  bool
	deleted  time.Time // when the time that it got when it was first deleted ends
	lastBusy time.Time // when a container was last seen to run, after that
	gone     bool
	server   *http.Server
	requests model.Amount
	past     podPast
}

// hereAllowed lets pools reach this machine, where the tests' ResourceManagers and workers are.
const hereAllowed = `--pools-allow={"` + poolNamespace + `":{"addresses":["127.0.0.0/8","::1","0.0.0.0/0"]}}`

// manager starts a manager whose pools reach this machine, unless its arguments say otherwise.
func (y *yard) manager(args ...string) *process {
	y.t.Helper()
	return y.managed.manager(append([]string{hereAllowed}, args...)...)
}

// newYard returns a cluster without nodes and pools, and without a manager.
func newYard(t *testing.T, values ...string) *yard {
	t.Helper()
	makeNamespace(t, poolNamespace, "")
	values = append([]string{"--set-json", `manager.pools.namespaces=["` + poolNamespace + `"]`}, values...)
	y := &yard{
		managed: newManaged(t, values...), registry: newRegistry(t),
		pools: map[string]*yarnPool{}, nodes: map[string]*yarnNode{}, pods: map[types.UID]*yarnPod{},
		pasts: map[types.UID]podPast{},
	}
	y.store = pastStore{cache.NewStore(cache.MetaNamespaceKeyFunc), y}
	config, err := clientcmd.BuildConfigFromFlags("", bed.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if y.core, err = kube.NewClient(config); err != nil {
		t.Fatal(err)
	}
	if y.custom, err = kube.NewCustomClient(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	list := cache.NewListWatchFromClient(y.core, "pods", poolNamespace, fields.Everything())
	y.jobs.Go(func() { cache.NewReflector(list, &corev1.Pod{}, y.store, 0).RunWithContext(ctx) })
	y.jobs.Go(func() { y.run(ctx) })
	t.Cleanup(func() {
		y.sweep()
		cancel()
		y.jobs.Wait()
	})
	return y
}

// sweep removes pools whose controller is gone, and nodes.
func (y *yard) sweep() {
	y.mu.Lock()
	pools, nodes := slices.Collect(maps.Keys(y.pools)), slices.Collect(maps.Keys(y.nodes))
	y.mu.Unlock()
	for _, name := range pools {
		path := "/apis/waterline.io/v1alpha1/namespaces/" + poolNamespace + "/workerpools/" + name
		y.request(http.MethodDelete, path, "")
		y.request(http.MethodPatch, path, `{"metadata":{"finalizers":[]}}`)
	}
	y.registry.remove("pods/" + poolNamespace + "/")
	for _, name := range nodes {
		for _, key := range []string{"pods/waterline-system/agent-", "minions/", "leases/kube-node-lease/"} {
			y.registry.remove(key + name)
		}
		y.request(http.MethodDelete, reports+name, "")
	}
}

// request sends a request as an administrator, after the test's end too, and returns the status of the answer.
func (y *yard) request(method, path, body string) int {
	r, err := http.NewRequestWithContext(context.Background(), method, y.admin.host+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", string(types.MergePatchType))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := y.admin.client.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// rm makes a ResourceManager for a pool, which needs not exist yet.
func (y *yard) rm(t testing.TB, name, label string, o fakerm.Options, grace, drain time.Duration) *yarnPool {
	t.Helper()
	p := &yarnPool{
		RM: fakerm.New(o), label: label, grace: grace, drain: drain,
	}
	p.runtime = &fakeRuntime{y}
	server := httptest.NewServer(p)
	rpc, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go p.ServeRPC(rpc)
	ctx, cancel := context.WithCancel(context.Background())
	y.jobs.Go(func() { p.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		p.Break(fakerm.Faults{})
		server.CloseClientConnections()
		server.Close()
		_ = rpc.Close()
	})
	p.address, p.admin = server.URL, rpc.Addr().String()
	y.mu.Lock()
	defer y.mu.Unlock()
	y.pools[name] = p
	return p
}

// offer makes a node that offers something, or changes its offer. Its name ends with a hyphen and a number, so that no
// name is the beginning of another.
func (y *yard) offer(t testing.TB, name, label string, offer model.Amount) {
	t.Helper()
	y.mu.Lock()
	n, there := y.nodes[name]
	if there {
		n.offer = offer
		y.mu.Unlock()
		return
	}
	y.nodes[name] = &yarnNode{offer: offer, busy: true}
	y.mu.Unlock()
	entries := objects(name)[:3] // without pods
	entries[0].object.(*corev1.Node).Labels["pool"] = label
	agent := entries[2].object.(*corev1.Pod)
	agent.Name = "agent-" + name
	entries[2].key = "pods/waterline-system/" + agent.Name
	if err := y.registry.make(entries); err != nil {
		t.Fatal(err)
	}
	y.kubelet(true, name)
	body := fmt.Sprintf(`{"apiVersion":"waterline.io/v1alpha1","kind":"NodeReport","metadata":{"name":%q}}`, name)
	if status := y.request(http.MethodPost, strings.TrimSuffix(reports, "/"), body); status != http.StatusCreated {
		t.Fatalf("making the report of %s: status %d", name, status)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.nodes[name].busy = false
}

// others sets what batch pods besides workers request of a node.
func (y *yard) others(name string, amount model.Amount) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.nodes[name].others = amount
}

// run is the life of kubelets and agents.
func (y *yard) run(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			y.round(ctx)
		}
	}
}

func (y *yard) round(ctx context.Context) {
	y.mu.Lock()
	defer y.mu.Unlock()
	there := map[types.UID]bool{}
	bound := map[string]model.Amount{}
	now := time.Now()
	for _, o := range y.store.List() {
		pod := o.(*corev1.Pod)
		there[pod.UID] = true
		k := y.pods[pod.UID]
		if k == nil {
			k = y.newPod(pod)
			y.pods[pod.UID] = k
		}
		if k.pod = pod; pod.Spec.NodeName != "" {
			b := bound[pod.Spec.NodeName]
			bound[pod.Spec.NodeName] = b.Plus(k.requests)
		}
		k.past = y.pasts[pod.UID]
		if k.pool != nil && k.pool.RM == nil {
			k.pool.remember(k, now)
		}
		if k.pool != nil && !k.busy {
			y.attend(ctx, k, now)
		}
	}
	for uid, k := range y.pods {
		if there[uid] {
			continue
		}
		if k.started && !k.gone { // somebody removed the object: its kubelet kills the processes
			k.pool.runtime.kill(k)
		}
		delete(y.pods, uid)
		delete(y.pasts, uid)
	}
	for _, p := range y.pools {
		y.judge(p)
	}
	for name, n := range y.nodes {
		y.report(ctx, name, n, bound[name].Plus(n.others))
	}
}

// judge counts what the ResourceManager killed before its time: containers have the grace from the moment at which
// they do not fit, unless their worker must have stopped before. If the manager was killed after it had marked the
// pod with their deadline and before it told the ResourceManager, they have it from the mark on. The API server's
// clock says when that was, in whole seconds: this test may see the mark later.
func (y *yard) judge(p *yarnPool) {
	if p.RM == nil {
		return
	}
	kills := p.Kills()
	for _, kill := range kills[p.seen:] {
		by := kill.Over.Add(p.grace)
		var all []string
		for _, k := range y.pods {
			if !strings.EqualFold(k.host, kill.Host) {
				continue
			}
			m := k.marks()
			all = append(all, fmt.Sprintf("%+v", m))
			if !m.End.IsZero() && m.End.Before(by) {
				by = m.End
			}
			past := k.past
			untold := kill.Last.Before(past.marked.Add(time.Second)) && kill.Set.Sub(past.marked) > time.Second
			if granted := past.until.Sub(past.marked); untold && granted >= p.grace-time.Second && past.until.Before(by) {
				by = past.until
			}
			if end := m.Leaving.Add(p.drain); !m.Leaving.IsZero() && end.Before(by) {
				by = end
			}
		}
		if kill.At.Before(by.Add(-200 * time.Millisecond)) { // the two clocks of the ResourceManager and the controller
			p.early += kill.Containers
			p.complaints = append(p.complaints, fmt.Sprintf("%s: %d containers on %s were killed before %s; "+
				"the total was set to %+v at %s, the one before at %s; the marks: %q", kill.At.Format(time.StampMilli),
				kill.Containers, kill.Host, by.Format(time.StampMilli), kill.Total, kill.Set.Format(time.StampMilli),
				kill.Last.Format(time.StampMilli), all))
		}
	}
	p.seen = len(kills)
}

// report writes a node's report if something changed.
func (y *yard) report(ctx context.Context, name string, n *yarnNode, bound model.Amount) {
	account := func(offer, bound int64, unit string) string {
		return fmt.Sprintf(`{"offer":{"batch":"%[1]d%[3]s","mid":"0"},"bound":{"batch":"%[2]d%[3]s","mid":"0"},`+
			`"allowance":"%[1]d%[3]s","capacity":"1P","ceiling":"1P","system":"0","online":"0",`+
			`"peaks":{"hour":"0","day":"0"}}`, offer, bound, unit)
	}
	status := fmt.Sprintf(`{"status":{"policy":"default","policyGeneration":1,"mode":"Enforce","selling":"Open",`+
		`"cpu":%s,"memory":%s}}`, account(n.offer.CPU, bound.CPU, "m"), account(n.offer.Memory, bound.Memory, ""))
	if n.busy || n.reported == status {
		return
	}
	n.busy, n.reported = true, status
	offer := n.offer
	y.jobs.Go(func() {
		err := y.custom.Patch(types.MergePatchType).Resource("nodereports").Name(name).SubResource("status").
			Body([]byte(status)).Do(ctx).Error()
		y.mu.Lock()
		defer y.mu.Unlock()
		if n.busy = false; err != nil && ctx.Err() == nil {
			if n.reported = ""; !apierrors.IsNotFound(err) { // when the test ends
				y.t.Logf("the report of %s: %v", name, err)
			}
			return
		}
		n.sent, n.written = offer, time.Now()
	})
}
