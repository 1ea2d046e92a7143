// Package manager runs the cluster side of Waterline. Every replica serves the webhook that makes batch pods request
// batch resources. The leader also carries out node health, evictions and worker pools, and writes the status of
// policies.
//
// The manager decides nothing itself: decide/cluster/nodehealth decides about nodes, decide/cluster/evictbudget about
// evictions, decide/cluster/pool about workers, and decide/policy which policy governs a node.
//
// It uses client-go without controller-runtime. Node health is one decision about all nodes, which a queue of single
// objects does not fit; and of each object the manager keeps a few words, where the caches of controller-runtime keep
// objects.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/manager/fleet"
	"github.com/waterline-io/waterline/internal/manager/pools"
)

// Names of the manager's objects.
const (
	LeaderLease   = "waterline-manager"
	WebhookConfig = "waterline"
	WebhookSecret = "waterline-webhook"
)

// Times of the leader's Lease.
const (
	leaseDuration = 15 * time.Second // without a renewal, after which another replica leads
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second // between two renewals
)

// Config is the configuration of a manager.
type Config struct {
	Client kubernetes.Interface
	Custom rest.Interface // for Waterline's own API group
	// Election has a rate limit of its own: in a large cluster, the requests of a new leader delayed the renewal of its
	// Lease until it lost the lead.
	Election  coordinationclient.LeasesGetter
	Namespace string // of the manager and the agents
	Identity  string // unique to this replica
	Log       *slog.Logger

	Koordinator bool // slack is sold under Koordinator's resource names

	NodeHealth nodehealth.Settings
	Evict      evictbudget.Settings
	Sweep      time.Duration // between two searches for slipped pods
	Pools      pools.Options // which namespaces may have worker pools, and what an administrator sets for all of them
}

// Manager is one replica.
type Manager struct {
	cfg        Config
	policies   *fleet.Policies
	namespaces *cache.Table[map[string]string] // that opted in
	admitted   sync.Map                        // admit.Why → *atomic.Uint64

	leading atomic.Pointer[leader] // nil: another replica leads
}

// New returns a manager.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, policies: fleet.NewPolicies(cfg.Log, cfg.Koordinator),
		namespaces: cache.New(func(obj any) map[string]string { return obj.(*corev1.Namespace).Labels }),
	}
}

// Webhook returns the handler for the API server's calls to [admit.Path].
func (m *Manager) Webhook() http.Handler {
	return admit.New(admit.Options{
		Rules: m.policies.Rules, Namespace: m.namespace, Count: m.count, Log: m.cfg.Log,
	})
}

// namespace returns a namespace. Labels of a namespace that opted in are known, except for a moment after that; for
// others, the API server is queried.
func (m *Manager) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if labels, known := m.namespaces.Get(name); known {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, nil
	}
	namespace, err := m.cfg.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking up namespace %s: %w", name, err)
	}
	return namespace, nil
}

func (m *Manager) count(why admit.Why) {
	n, known := m.admitted.Load(why)
	if !known {
		n, _ = m.admitted.LoadOrStore(why, new(atomic.Uint64))
	}
	n.(*atomic.Uint64).Add(1)
}

// Ready returns nil if the webhook can answer, otherwise the reason why not.
func (m *Manager) Ready() error {
	if !m.policies.Listed() || !m.namespaces.Listed() {
		return errors.New("the policies are not known yet")
	}
	return nil
}

// Alive returns nil unless the process must be restarted; then it returns the reason.
func (m *Manager) Alive() error {
	l := m.leading.Load()
	if l == nil {
		return nil
	}
	if age := time.Since(l.start) - time.Duration(l.last.Load()); age > stalled {
		return fmt.Errorf("the last round was %v ago", age.Round(time.Second))
	}
	return nil
}

// Run watches the cluster until the context ends. While this replica leads, it also does the leader's work.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	core := m.cfg.Client.CoreV1().RESTClient()
	wg.Go(func() {
		m.policies.Follow(ctx, m.cfg.Custom, "colocationpolicies", "", "", &v1alpha1.ColocationPolicy{})
	})
	wg.Go(func() {
		m.namespaces.Follow(ctx, core, "namespaces", "", v1alpha1.LabelColocation+"="+v1alpha1.ColocationEnabled,
			&corev1.Namespace{})
	})
	err := m.elect(ctx)
	wg.Wait()
	return err
}

// elect takes part in the election until the context ends. A replica that loses the lead stops the leader's work before
// it runs again.
func (m *Manager) elect(ctx context.Context) error {
	one := make(chan struct{}, 1) // full while the leader's work runs: the election calls back in goroutines of its own
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: m.cfg.Namespace, Name: LeaderLease},
			Client:     m.cfg.Election,
			LockConfig: resourcelock.ResourceLockConfig{Identity: m.cfg.Identity},
		},
		Name: LeaderLease, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				one <- struct{}{}
				defer func() { <-one }()
				if ctx.Err() == nil { // the work starts without knowledge of earlier leads
					l := newLeader(&m.cfg, m.policies, m.namespaces)
					m.leading.Store(l)
					l.run(ctx)
					m.leading.Store(nil)
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(who string) { m.cfg.Log.Info("the leader is known", "leader", who) },
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the leader election: %w", err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx)
	}
	one <- struct{}{} // the leader's work has ended
	return nil
}
