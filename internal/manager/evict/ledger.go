package evict

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/internal/decide/cluster/evictbudget"
)

// The ConfigMap of the chart that has the evictions of the last hour, and its key.
const (
	ledgerName = "waterline-evictions"
	ledgerKey  = "evictions.json"
)

// ledger keeps the evictions that count against the budgets for the next leader.
type ledger struct {
	core      rest.Interface
	namespace string
	read      bool // load was tried
	last      *corev1.ConfigMap
}

// recorded is an eviction in the ledger.
type recorded struct {
	Time time.Time `json:"time"`
	evictbudget.Past
}

// load reads the evictions of the last leader. A time in the future counts as now: a clock was set back.
func (l *ledger) load(ctx context.Context, now time.Time) ([]evictbudget.Past, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	l.read = true
	m, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	l.last = m
	var all []recorded
	if text := m.Data[ledgerKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("decoding the ConfigMap %s: %w", ledgerName, err)
		}
	}
	past := make([]evictbudget.Past, 0, len(all))
	for _, r := range all {
		r.Ago = max(now.Sub(r.Time), 0)
		past = append(past, r.Past)
	}
	return past, nil
}

func (l *ledger) get(ctx context.Context) (*corev1.ConfigMap, error) {
	m := &corev1.ConfigMap{}
	err := l.core.Get().Namespace(l.namespace).Resource("configmaps").Name(ledgerName).Do(ctx).Into(m)
	return m, err
}

// save replaces the evictions. Another writer's version is an error, after which the next save replaces that one.
func (l *ledger) save(ctx context.Context, now time.Time, past []evictbudget.Past) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := make([]recorded, 0, len(past))
	for _, p := range past {
		all = append(all, recorded{now.Add(-p.Ago).UTC().Truncate(time.Second), p})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encoding evictions: %w", err)
	}
	m := l.last
	if l.last = nil; m == nil {
		if m, err = l.get(ctx); err != nil {
			return err
		}
	}
	m = m.DeepCopy()
	m.Data = map[string]string{ledgerKey: string(text)}
	saved := &corev1.ConfigMap{}
	put := l.core.Put().Namespace(l.namespace).Resource("configmaps").Name(ledgerName).Body(m)
	if err := put.Do(ctx).Into(saved); err != nil {
		return err
	}
	l.last = saved
	return nil
}
