package manager

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/manager/evict"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/manager/health"
	"github.com/waterline-io/waterline/internal/manager/policystatus"
	"github.com/waterline-io/waterline/internal/manager/pools"
	"github.com/waterline-io/waterline/internal/manager/sweep"
)

const (
	roundEvery  = 2 * time.Second  // between two rounds of node health
	statusEvery = 5 * time.Second  // between two writes of a policy's status, at least
	stalled     = 30 * time.Second // without a round after which the process counts as stuck
)

// leader is the work of the leading replica. It starts without knowledge.
type leader struct {
	cfg      *Config
	core     rest.Interface
	fleet    *fleet.Fleet
	policies *fleet.Policies
	executor *health.Executor
	evictor  *evict.Evictor
	statuses *policystatus.Writer
	sweeper  *sweep.Sweeper
	pools    *pools.Controller // nil: no namespace may have pools
	log      *slog.Logger
	start    time.Time

	last    atomic.Int64 // when a round last ended, since start
	fresh   atomic.Bool
	summary atomic.Pointer[nodehealth.Summary]

	mu        sync.Mutex
	governed  map[string]string // policy by node; nil: not counted yet
	off       map[string]bool   // nodes on which Waterline is stopped; nil: not counted yet
	slipped   map[string]int32  // number by policy; nil: not searched yet
	requested sweep.Requests    // by batch pods, of the largest owners
}

func newLeader(cfg *Config, p *fleet.Policies, namespaces *cache.Table[map[string]string]) *leader {
	l := &leader{
		cfg: cfg, core: cfg.Client.CoreV1().RESTClient(), fleet: fleet.New(), policies: p, log: cfg.Log, start: time.Now(),
	}
	l.executor = health.New(l.core, cfg.Custom, l.fleet, cfg.Log)
	l.evictor = evict.New(&evict.Config{
		Core: l.core, Custom: cfg.Custom, Fleet: l.fleet, Policies: p, Settings: cfg.Evict, Namespace: cfg.Namespace,
		Identity: cfg.Identity, Log: cfg.Log,
	})
	l.statuses = &policystatus.Writer{Custom: cfg.Custom, Fleet: l.fleet, Policies: p, Log: cfg.Log}
	l.sweeper = sweep.New(l.core, p, namespaces, cfg.Identity)
	if len(cfg.Pools.Namespaces) == 0 {
		return l
	}
	o := cfg.Pools
	o.Identity, o.Log = cfg.Identity, cfg.Log
	o.Nodes = func() (map[string]pools.Node, bool) {
		l.mu.Lock()
		off := l.off
		l.mu.Unlock()
		return nodesForPools(l.fleet, l.evictor.Draining(), off), off != nil && l.known(time.Now())
	}
	o.Batch = func(pod *corev1.Pod) (*corev1.Pod, bool) { return worker(p.Rules(), pod) }
	l.pools = pools.New(o)
	l.fleet.Reports.Changed, l.fleet.Nodes.Changed = l.pools.Wake, l.pools.Wake
	l.fleet.Reports.Matters, l.fleet.Nodes.Matters = urgentReport, urgentNode
	return l
}

// worker returns the pod of a pool's worker as it requests batch resources, and whether any are sold. A pod with
// invalid resources counts as one for which they are: the API server refuses it, with an error that says why.
func worker(rules admit.Rules, pod *corev1.Pod) (batch *corev1.Pod, sold bool) {
	batch, o := rules.Mutate(pod, nil)
	return batch, o.Why != admit.NothingSold && o.Why != admit.OtherNames
}

// run works until the context ends, and returns when all of its goroutines have ended.
func (l *leader) run(ctx context.Context) {
	l.log.Info("leading")
	var wg sync.WaitGroup
	wg.Go(func() {
		l.fleet.Follow(ctx, l.core, l.cfg.Client.CoordinationV1().RESTClient(), l.cfg.Custom, l.cfg.Namespace,
			l.cfg.NodeHealth.FreshWithin/3)
	})
	wg.Go(func() { l.executor.Run(ctx) })
	wg.Go(func() { l.watchHealth(ctx) })
	wg.Go(func() { l.evictions(ctx) })
	if l.pools != nil {
		wg.Go(func() { l.pools.Run(ctx) })
	}
	wg.Go(func() { every(ctx, statusEvery, func() { l.count(ctx) }) })
	wg.Go(func() { every(ctx, l.cfg.Sweep, func() { l.sweep(ctx) }) })
	wg.Wait()
	l.log.Info("no longer leading")
}

// every calls f at intervals until the context ends, first after one interval.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// watchHealth decides node health in rounds.
func (l *leader) watchHealth(ctx context.Context) {
	var state nodehealth.State
	wasBraked := false
	every(ctx, roundEvery, func() {
		now := time.Now() // its monotonic part counts, which no program sets
		in := nodehealth.Input{At: now.Sub(l.start), Fresh: l.known(now), Settings: l.cfg.NodeHealth}
		if in.Fresh {
			in.Nodes = l.fleet.Observe()
		}
		var actions []nodehealth.Action
		var summary nodehealth.Summary
		actions, summary, state = nodehealth.Round(in, state)
		l.last.Store(int64(time.Since(l.start)))
		if l.fresh.Store(in.Fresh); !in.Fresh {
			return
		}
		l.summary.Store(&summary)
		l.executor.Post(actions)
		if summary.Braked != wasBraked {
			wasBraked = summary.Braked
			l.log.Warn("the number of agents that look lost", "agents", summary.Agents, "lost", summary.Lost, "braked",
				summary.Braked)
		}
	})
}

// evictions decides about the evictions that nodes request, in the same rounds as node health.
func (l *leader) evictions(ctx context.Context) {
	every(ctx, roundEvery, func() {
		if !l.known(time.Now()) {
			return
		}
		l.mu.Lock()
		governed := l.governed
		l.mu.Unlock()
		if governed != nil {
			l.evictor.Round(ctx, func() time.Duration { return time.Since(l.start) }, governed)
		}
	})
}

// known reports whether the view of the cluster is up to date.
func (l *leader) known(now time.Time) bool {
	return l.fleet.Fresh(now) && l.policies.Fresh(now, fleet.Settled)
}

// count updates the status of policies.
func (l *leader) count(ctx context.Context) {
	if !l.known(time.Now()) {
		return
	}
	tallies, governed, off := l.statuses.Count()
	l.mu.Lock()
	l.governed, l.off = governed, off
	slipped := l.slipped
	l.mu.Unlock()
	if slipped == nil {
		slipped = map[string]int32{}
		l.policies.Each(func(name string, p fleet.Policy) { slipped[name] = p.Status.SlippedPods }) // from another leader
	}
	l.statuses.Write(ctx, tallies, slipped)
}

// sweep searches for slipped pods, and sums up what batch pods request.
func (l *leader) sweep(ctx context.Context) {
	l.mu.Lock()
	governed := l.governed
	l.mu.Unlock()
	if governed == nil {
		return
	}
	slipped, requested, err := l.sweeper.Sweep(ctx, governed)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("searching for batch pods without batch requests", "err", err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slipped, l.requested = slipped, requested.Largest(sweep.MaxOwners)
}
