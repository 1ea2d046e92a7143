// Package manager runs what is done for the cluster as a whole: the webhook that makes batch pods ask for batch
// resources, on all replicas; and on the one that leads, the oversight of nodes, evictions, and the status of policies.
// It decides nothing itself: what is done about nodes is decided by decide/cluster/nodehealth, who is evicted by
// decide/cluster/evictbudget, and which policy governs a node by decide/policy.
//
// It is written with client-go alone. Oversight is a decision about all nodes at once, which a queue of single objects
// does not fit; and of each object only a few words are kept, where the caches of controller-runtime keep objects.
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
	"github.com/waterline-io/waterline/internal/decide/cluster/nodehealth"
	"github.com/waterline-io/waterline/internal/manager/admit"
)

// Names of what the manager has in the cluster.
const (
	LeaderLease   = "waterline-manager"
	WebhookConfig = "waterline"
	WebhookSecret = "waterline-webhook"
)

// Config is what a manager needs.
type Config struct {
	Client    kubernetes.Interface
	Custom    rest.Interface // for Waterline's own API group
	Namespace string         // that the manager runs in, and the agents
	Identity  string         // of this replica, another one for each
	Log       *slog.Logger

	NodeHealth nodehealth.Settings
	Evict      evictbudget.Settings
	Sweep      time.Duration // between two looks for pods that slipped
}

// Manager is one replica.
type Manager struct {
	cfg        Config
	policies   *policies
	namespaces *table[map[string]string] // those that opted in
	admitted   sync.Map                  // admit.Why → *atomic.Uint64

	leading atomic.Pointer[leader] // nil: another replica leads
}

// New returns a manager.
func New(cfg Config) *Manager {
	return &Manager{
		cfg: cfg, policies: newPolicies(cfg.Log),
		namespaces: newTable(func(obj any) map[string]string { return obj.(*corev1.Namespace).Labels }),
	}
}

// Webhook returns what answers the API server at [admit.Path].
func (m *Manager) Webhook() http.Handler {
	return admit.New(admit.Options{
		Rules:     func() admit.Rules { return *m.policies.rules.Load() },
		Namespace: m.namespace,
		Count:     m.count,
		Log:       m.cfg.Log,
	}).Handler()
}

// namespace looks a namespace up. One that opted in is known, unless that was a moment ago; of others there is no need
// to know more than the API server says.
func (m *Manager) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if labels, known := m.namespaces.get(name); known {
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

// Ready returns why the webhook should not be asked yet; nil if it may be.
func (m *Manager) Ready() error {
	if !m.policies.isListed() || !m.namespaces.isListed() {
		return errors.New("the policies are not known yet")
	}
	return nil
}

// Alive returns why the process should be started anew; nil if it need not.
func (m *Manager) Alive() error {
	if l := m.leading.Load(); l != nil {
		return l.alive(time.Now())
	}
	return nil
}

// Run follows the cluster until the context ends, and does what the leader does whenever this replica is the one.
func (m *Manager) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	core := m.cfg.Client.CoreV1().RESTClient()
	wg.Go(func() {
		m.policies.follow(ctx, m.cfg.Custom, "colocationpolicies", "", "", &v1alpha1.ColocationPolicy{})
	})
	wg.Go(func() {
		m.namespaces.follow(ctx, core, "namespaces", "", v1alpha1.LabelColocation+"="+v1alpha1.ColocationEnabled,
			&corev1.Namespace{})
	})
	err := m.elect(ctx)
	wg.Wait()
	return err
}

// elect takes part in the election until the context ends. Who loses the lead stops what it does before it runs again.
func (m *Manager) elect(ctx context.Context) error {
	one := make(chan struct{}, 1) // full while something runs; the election calls back on its own time
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: m.cfg.Namespace, Name: LeaderLease},
			Client:     m.cfg.Client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: m.cfg.Identity},
		},
		Name: LeaderLease, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				one <- struct{}{}
				defer func() { <-one }()
				if ctx.Err() == nil {
					m.lead(ctx)
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
	one <- struct{}{} // what ran has ended
	return nil
}

// lead does what the leader does, with nothing known from before, until the context ends.
func (m *Manager) lead(ctx context.Context) {
	l := newLeader(&m.cfg, m.policies, m.namespaces)
	m.leading.Store(l)
	defer m.leading.Store(nil)
	l.run(ctx)
}
