// Package pools carries out WorkerPools: it makes the pods of NodeManagers, tells the ResourceManager their labels and
// sizes, and drains them before they stop.
//
// It decides nothing itself: decide/cluster/pool says what the next step of each worker is. What it needs for that, it
// reads anew in each round: the pool, its pods, the nodes and their reports, the ResourceManager and the exclude file.
// It keeps a few marks as an annotation of each pod, and the end and the failed attempts of earlier pods in the status
// of the pool. So another replica goes on where this one was killed.
package pools

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	actyarn "github.com/waterline-io/waterline/internal/act/yarn"
	"github.com/waterline-io/waterline/internal/decide/cluster/pool"
	"github.com/waterline-io/waterline/internal/decide/cluster/reach"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/yarn"
)

const (
	// settleTime is the time for which everything must have been watched without an error to count as up to date.
	settleTime = 3 * time.Second
	// roundInterval is the time from the start of a round of a pool to that of the next, unless one of them takes longer
	// with its pause. NodeManagers report once a second, so a much shorter time would show the same.
	roundInterval = 1500 * time.Millisecond
	// roundPause is the least time between two rounds. Changes meanwhile are one.
	roundPause = 500 * time.Millisecond
	// pausePerWorker is the same for each worker, up to maxPause: a round lists all of them, which costs the manager 50 µs
	// for each, and the ResourceManager 2.2 kB. Of 2,000 nodes, one always has less than a moment ago.
	pausePerWorker = time.Millisecond
	maxPause       = 2 * time.Second
)

// Options are those of a controller.
type Options struct {
	Core, Policy  rest.Interface // the API groups "" and policy
	Custom        rest.Interface // Waterline's own API group
	Namespaces    []string       // that may have pools
	ClusterDomain string         // of the names of Services, such as cluster.local
	ExcludeDir    string         // of exclude files; "": there is none
	// Reach has what the pools of each namespace may reach. Those of a namespace that it lacks reach nothing.
	Reach      map[string]reach.Scope
	Identity   string // of this replica
	GuardImage string // of the guards of pools that name none; "": these have no guard
	// Nodes returns the nodes of the cluster, and whether that is up to date.
	Nodes func() (nodes map[string]Node, fresh bool)
	// Batch returns the pod as it requests batch resources, and whether a policy sells any that it can request. Where none
	// does, the pod is returned unchanged, and would be placed as an online pod.
	Batch func(*corev1.Pod) (batch *corev1.Pod, sold bool)
	Log   *slog.Logger
}

// Node is what a controller needs of a node.
type Node struct {
	pool.Node
	Labels map[string]string
	Evict  string // UID of the worker whose eviction was granted; "": none
}

// Controller carries out the pools of some namespaces.
type Controller struct {
	o        Options
	pools    map[string]*cache.Table[*v1alpha1.WorkerPool] // by namespace
	pods     map[string]*cache.Table[podRow]
	excludes actyarn.Files
	gone     gonePods
	logins   yarn.Logins   // that KDCs refused to any pool
	queues   chan struct{} // has room for the one pool that reads the queues of its ResourceManager

	mu      sync.Mutex
	keepers map[string]*keeper // by namespace/name of the pool
	wake    chan struct{}      // a pool came or went
}

// New returns a controller. It does nothing before [Controller.Run].
func New(o Options) *Controller {
	c := &Controller{
		o: o, pools: map[string]*cache.Table[*v1alpha1.WorkerPool]{}, pods: map[string]*cache.Table[podRow]{},
		keepers: map[string]*keeper{}, wake: make(chan struct{}, 1), queues: make(chan struct{}, 1),
	}
	for _, namespace := range o.Namespaces {
		pools := cache.New(func(obj any) *v1alpha1.WorkerPool { return obj.(*v1alpha1.WorkerPool) })
		pools.Changed = c.Wake
		pods := cache.New(func(obj any) podRow { return rowOf(obj.(*corev1.Pod)) })
		pods.Changed, pods.Matters = c.Wake, podMatters
		pods.Gone = func(p podRow) { c.keepGone(namespace, p) }
		c.pools[namespace], c.pods[namespace] = pools, pods
	}
	return c
}

// Wake makes every pool look at once, because nodes have changed.
func (c *Controller) Wake() { poke(c.wake) }

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run carries out the pools until the context ends. It returns when nothing of it runs any more.
func (c *Controller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for namespace, pools := range c.pools {
		wg.Go(func() { pools.Follow(ctx, c.o.Custom, "workerpools", namespace, "", &v1alpha1.WorkerPool{}) })
		wg.Go(func() {
			c.pods[namespace].Follow(ctx, c.o.Core, "pods", namespace, v1alpha1.LabelPool, &corev1.Pod{})
		})
	}
	for ctx.Err() == nil {
		c.dispatch(ctx, &wg)
		select {
		case <-ctx.Done():
		case <-c.wake:
		}
	}
	wg.Wait()
}

// dispatch starts a keeper for each new pool and wakes the others. A keeper ends by itself when its pool is gone.
func (c *Controller) dispatch(ctx context.Context, wg *sync.WaitGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace, pools := range c.pools {
		pools.Each(func(key string, p *v1alpha1.WorkerPool) {
			k := c.keepers[key]
			if k == nil {
				k = newKeeper(c, namespace, p.Name)
				c.keepers[key] = k
				wg.Go(func() {
					k.run(ctx)
					c.mu.Lock()
					delete(c.keepers, key)
					c.mu.Unlock()
					c.Wake() // a pool of that name that came meanwhile has no keeper yet
				})
			}
			poke(k.wake)
		})
	}
}

// synced reports whether the pools and pods of a namespace are up to date.
func (c *Controller) synced(namespace string, now time.Time) bool {
	return c.pools[namespace].Fresh(now, settleTime) && c.pods[namespace].Fresh(now, settleTime)
}

// workersOn returns how many pods of workers that change their size each node has, of all pools. Those of one size take
// no part of what nobody requests.
func (c *Controller) workersOn() map[string]int {
	count := map[string]int{}
	for _, pods := range c.pods {
		pods.Each(func(_ string, p podRow) {
			if p.node != "" && p.owner != "" && !p.over && !p.crew {
				count[p.node]++
			}
		})
	}
	return count
}
