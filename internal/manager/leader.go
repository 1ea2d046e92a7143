package manager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
)

const (
	roundEvery  = 2 * time.Second  // nodes are judged
	statusEvery = 5 * time.Second  // a policy's status is written at most this often
	stalled     = 30 * time.Second // without a round the process is taken for stuck
)

// leader is what the replica that leads does. It begins with nothing known.
type leader struct {
	cfg      *Config
	core     rest.Interface
	fleet    *fleet
	policies *policies
	keeper   *keeper
	evictor  *evictor
	statuses *statuses
	sweeper  *sweeper
	log      *slog.Logger
	start    time.Time

	last    atomic.Int64 // when a round last ended, since start
	fresh   atomic.Bool
	summary atomic.Pointer[nodehealth.Summary]

	mu       sync.Mutex
	governed map[string]string // by node; nil: not counted yet
	slipped  map[string]int32  // by policy; nil: not swept yet
}

func newLeader(cfg *Config, p *policies, namespaces *table[map[string]string]) *leader {
	l := &leader{
		cfg: cfg, core: cfg.Client.CoreV1().RESTClient(), fleet: newFleet(), policies: p, log: cfg.Log, start: time.Now(),
	}
	l.keeper = newKeeper(l.core, cfg.Custom, l.fleet, cfg.Log)
	l.evictor = newEvictor(cfg, l.fleet, p)
	l.statuses = &statuses{custom: cfg.Custom, fleet: l.fleet, policies: p, log: cfg.Log}
	l.sweeper = &sweeper{
		core: l.core, policies: p, namespaces: namespaces, identity: cfg.Identity, log: cfg.Log, told: map[string]time.Time{},
	}
	return l
}

// run works until the context ends, and returns when nothing runs any more.
func (l *leader) run(ctx context.Context) {
	l.log.Info("leading")
	var wg sync.WaitGroup
	wg.Go(func() {
		l.fleet.follow(ctx, l.core, l.cfg.Client.CoordinationV1().RESTClient(), l.cfg.Custom, l.cfg.Namespace,
			l.cfg.NodeHealth.FreshWithin/3)
	})
	wg.Go(func() { l.keeper.run(ctx) })
	wg.Go(func() { l.watchHealth(ctx) })
	wg.Go(func() { l.evictions(ctx) })
	wg.Go(func() { every(ctx, statusEvery, func() { l.count(ctx) }) })
	wg.Go(func() { every(ctx, l.cfg.Sweep, func() { l.sweep(ctx) }) })
	wg.Wait()
	l.log.Info("no longer leading")
}

// every calls f again and again until the context ends, the first time after one interval.
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

// watchHealth judges all nodes in rounds.
func (l *leader) watchHealth(ctx context.Context) {
	var state nodehealth.State
	wasBraked := false
	every(ctx, roundEvery, func() {
		now := time.Now() // its monotonic part counts, which nobody sets
		in := nodehealth.Input{At: now.Sub(l.start), Fresh: l.known(now), Settings: l.cfg.NodeHealth}
		if in.Fresh {
			in.Nodes = l.fleet.observe()
		}
		var actions []nodehealth.Action
		var summary nodehealth.Summary
		actions, summary, state = nodehealth.Round(in, state)
		l.last.Store(int64(time.Since(l.start)))
		if l.fresh.Store(in.Fresh); !in.Fresh {
			return
		}
		l.summary.Store(&summary)
		l.keeper.post(actions)
		if summary.Braked != wasBraked {
			wasBraked = summary.Braked
			l.log.Warn("the number of agents that look lost", "agents", summary.Agents, "lost", summary.Lost, "braked",
				summary.Braked)
		}
	})
}

// known reports whether what is known of the cluster is up to date.
func (l *leader) known(now time.Time) bool {
	return l.fleet.fresh(now) && l.policies.fresh(now, settled)
}

// count brings the status of policies up to date.
func (l *leader) count(ctx context.Context) {
	if !l.known(time.Now()) {
		return
	}
	tallies, governed := l.statuses.count()
	l.mu.Lock()
	l.governed = governed
	slipped := l.slipped
	l.mu.Unlock()
	if slipped == nil {
		slipped = map[string]int32{}
		l.policies.each(func(name string, p storedPolicy) { slipped[name] = p.status.SlippedPods }) // as another leader found
	}
	l.statuses.write(ctx, tallies, slipped)
}

// sweep looks for pods that slipped.
func (l *leader) sweep(ctx context.Context) {
	l.mu.Lock()
	governed := l.governed
	l.mu.Unlock()
	if governed == nil {
		return
	}
	slipped, err := l.sweeper.sweep(ctx, governed)
	if err != nil {
		if ctx.Err() == nil {
			l.log.Warn("pods that slipped could not be looked for", "err", err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slipped = slipped
}

// alive returns an error when the rounds have stopped.
func (l *leader) alive(now time.Time) error {
	if age := now.Sub(l.start) - time.Duration(l.last.Load()); age > stalled {
		return fmt.Errorf("the last round was %v ago", age.Round(time.Second))
	}
	return nil
}
