package manager

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Alone returns an error if a manager leads in another namespace: two releases would write to the same Nodes and
// policies. A Lease there that nobody renews is what a removed release left. If the Leases cannot be read, that is
// logged, and the manager counts as alone.
func (m *Manager) Alone(ctx context.Context) error {
	list := func() ([]coordinationv1.Lease, error) {
		all, err := m.cfg.Client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + LeaderLease,
		})
		if err != nil {
			return nil, fmt.Errorf("looking for another manager: %w", err)
		}
		return all.Items, nil
	}
	rival, err := findRival(ctx, m.cfg.Namespace, list)
	switch {
	case err != nil:
		m.cfg.Log.Warn("whether another manager leads is not known", "err", err)
	case rival != "":
		return fmt.Errorf("another manager leads in namespace %s, and this one is in namespace %s: a cluster has one "+
			"release of Waterline; uninstall one of them", rival, m.cfg.Namespace)
	}
	return nil
}

// findRival returns the namespace of a Lease that a manager in another namespace renews; "" if there is none. It sees a
// renewal as a change, because clocks of machines differ. It returns at once if no such Lease has a holder.
func findRival(ctx context.Context, own string, list func() ([]coordinationv1.Lease, error)) (string, error) {
	before := map[string]string{}
	for until := time.Now().Add(leaseDuration); ; {
		leases, err := list()
		if err != nil {
			return "", err
		}
		held := map[string]string{}
		for _, l := range leases {
			if who := l.Spec.HolderIdentity; l.Namespace == own || who == nil || *who == "" {
				continue
			}
			held[l.Namespace] = l.ResourceVersion
			if seen, known := before[l.Namespace]; known && seen != l.ResourceVersion {
				return l.Namespace, nil
			}
		}
		if before = held; len(held) == 0 || time.Now().After(until) {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(retryPeriod):
		}
	}
}
