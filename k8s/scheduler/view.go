package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// view is what the plugins know of the cluster beyond the scheduler's own snapshot. Nothing waits for it: without the
// custom resources, or without the right to read them, nodes count as nodes without a report.
type view struct {
	started time.Time
	once    sync.Once

	// Set once by begin.
	log        klog.Logger
	activator  fwk.PodActivator
	namespaces corelisters.NamespaceLister
	nodes      corelisters.NodeLister
	pods       corelisters.PodLister
	podsSeen   func() bool // all pods that were there at the start are taken in

	mu       sync.Mutex
	reports  map[string]*report // by node
	agents   agents
	policies map[string]*model.Policy
	policy   *model.Policy // of nodes without one
	version  atomic.Int64  // grows when the policy of a node may have changed; while the lock is held
	ledger   place.Ledger
	load     *place.Settings    // of LoadAware; nil: no profile has it
	known    int                // nodes in the cluster
	asking   map[string]bool    // UIDs of pods on nodes that ask for a weight
	waiting  map[string]*waiter // UIDs of pods that were refused
	counted  time.Duration      // when count looked last at what time alone changes
	changed  []*changes         // one per plugin that keeps what look returned

	weights weightCache
}

// changes are the nodes of which something changed since a plugin has looked at them.
type changes struct {
	nodes map[string]bool
	all   bool // something changed of all nodes
}

// touch notes that something about a node changed. The lock is held.
func (v *view) touch(node string) {
	for _, c := range v.changed {
		c.nodes[node] = true
	}
}

// changes returns the changes from now on.
func (v *view) changes() *changes {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := &changes{nodes: map[string]bool{}}
	v.changed = append(v.changed, c)
	return c
}

func newView(namespace string) *view {
	defaults := model.DefaultPolicy()
	return &view{
		started: time.Now(), reports: map[string]*report{}, agents: newAgents(namespace),
		policies: map[string]*model.Policy{},
		policy:   &defaults, asking: map[string]bool{}, waiting: map[string]*waiter{},
		weights:  weightCache{nodes: map[string]*nodeWeights{}},
		podsSeen: func() bool { return true },
	}
}

// now returns the time on the view's monotonic clock.
func (v *view) now() time.Duration { return time.Since(v.started) }

// begin follows the cluster from the first call on, until the context ends.
func (v *view) begin(ctx context.Context, h fwk.Handle) error {
	var err error
	v.once.Do(func() { err = v.follow(ctx, h) })
	return err
}

func (v *view) follow(ctx context.Context, h fwk.Handle) error {
	v.log = klog.FromContext(ctx).WithName("waterline")
	registerMetrics()
	v.activator = h
	core := h.SharedInformerFactory().Core().V1()
	v.namespaces, v.nodes, v.pods = core.Namespaces().Lister(), core.Nodes().Lister(), core.Pods().Lister()
	namespaces := core.Namespaces().Informer()
	if _, err := namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: v.seeNamespace}); err != nil {
		return fmt.Errorf("following namespaces: %w", err)
	}
	var listed sync.Once
	pods, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			listed.Do(func() { await(ctx, namespaces.HasSynced) }) // a policy can select pods by their namespace
			v.seePod(obj)
		},
		UpdateFunc: func(old, obj any) { v.seeChange(old, obj) },
		DeleteFunc: func(obj any) { v.losePod(obj) },
	})
	if err != nil {
		return fmt.Errorf("following pods: %w", err)
	}
	v.podsSeen = pods.HasSynced
	client, err := dynamic.NewForConfig(h.KubeConfig())
	if err != nil {
		return fmt.Errorf("making a client for custom resources: %w", err)
	}
	policies := v.custom(ctx, client, "colocationpolicies", v.seePolicy, v.losePolicy)
	reports := v.custom(ctx, client, "nodereports", v.seeReport, v.loseReport)
	late := time.After(patience)
	for _, listed := range []<-chan struct{}{policies, reports} {
		select {
		case <-listed:
		case <-late:
			v.log.Info("Custom resources are not listed yet, so the first pods are scheduled as without them", "after", patience)
			late = time.After(0)
		case <-ctx.Done():
		}
	}
	go v.tend(ctx)
	return nil
}

// await waits until something is done, or the context ends. It looks more often than [cache.WaitForCacheSync], because
// pods that are seen late have no promises in the first scheduling cycles.
func await(ctx context.Context, done func() bool) {
	for !done() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// patience is how long the scheduler waits at its start for the reports and policies to be listed. Without them, the
// first pods after a restart would get no CPUs promised, and their nodes would count as unknown.
const patience = 5 * time.Second

// custom follows a custom resource. The returned channel is closed once all objects were taken in, or when it turns out
// that they cannot be read. In that case, client-go retries with growing pauses, and the first failure is logged.
func (v *view) custom(
	ctx context.Context, client dynamic.Interface, resource string,
	see func(*unstructured.Unstructured), lose func(name string),
) <-chan struct{} {
	listed := make(chan struct{})
	var once sync.Once
	done := func() { once.Do(func() { close(listed) }) }
	kind := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: resource}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, kind, "", 0, cache.Indexers{}, nil).Informer()
	var failed sync.Once
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		failed.Do(func() {
			v.log.Info("A custom resource cannot be read, so nodes count as without it; it is tried again",
				"resource", resource, "err", err)
		})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // others may end within patience
			done()
		}
	})
	of := func(obj any) *unstructured.Unstructured {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		u, _ := obj.(*unstructured.Unstructured)
		return u
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { see(of(obj)) },
		UpdateFunc: func(_, obj any) { see(of(obj)) },
		DeleteFunc: func(obj any) {
			if u := of(obj); u != nil {
				lose(u.GetName())
			}
		},
	})
	if err != nil { // only of an informer that has ended
		done()
		return listed
	}
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			done()
		}
	}()
	return listed
}

// fading is the step in which estimates fade, so that they need not be summed up for each pod.
const fading = 5 * time.Second

// look fills in what is known of a node. report is where its report goes. The lock is held.
func (v *view) look(name string, n *place.Node, report *place.Report, s *place.Settings) {
	now := v.now()
	n.Agent = v.agents.of(name, now)
	n.Assumed = v.ledger.Load(name, now.Truncate(fading), s)
	r := v.reports[name]
	if r == nil {
		return
	}
	n.Unreadable = r.unreadable
	*report = r.content
	report.Age = now - r.at
	n.Report = report
}

// useLoad takes in the settings of LoadAware in one profile. Those with the longest Settle count for what the profiles
// share, so that the ledger keeps an estimate for as long as it counts anywhere.
func (v *view) useLoad(s place.Settings) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.load == nil || s.Settle > v.load.Settle {
		v.load = &s
	}
}

// loadLocked returns the settings of LoadAware that count for all profiles. The lock is held.
func (v *view) loadLocked() place.Settings {
	if v.load == nil {
		return place.DefaultSettings()
	}
	return *v.load
}

// tend removes what no longer matters, counts, and wakes pods.
func (v *view) tend(ctx context.Context) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		v.count()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// count sets the metrics, prunes the ledger, and wakes the pods that are helped by time alone.
func (v *view) count() {
	nodes, err := v.nodes.List(labels.Everything())
	if err != nil {
		return // a lister of an informer has no errors
	}
	v.mu.Lock()
	s := v.loadLocked()
	v.mu.Unlock()
	counts := map[place.Code]int{}
	for _, node := range nodes {
		var n place.Node
		var r place.Report
		v.mu.Lock()
		v.look(node.Name, &n, &r, &s)
		v.mu.Unlock()
		_, why := n.Trusted(&s)
		counts[why.Code]++
	}
	v.mu.Lock()
	now := v.now()
	v.ledger.Prune(now, &s)
	v.agents.keep(nodes)
	v.known = len(nodes)
	assumed := v.ledger.Len()
	v.dropWaiters()
	helps := v.helpedByTime(v.counted, now)
	v.counted = now
	v.mu.Unlock()
	v.wake(helps)
	setMetrics(counts, assumed)
	v.weights.keep(nodes)
}
