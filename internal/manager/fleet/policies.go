package fleet

import (
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/cache"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Policy is the known part of a ColocationPolicy.
type Policy struct {
	UID        string
	Generation int64
	Created    time.Time
	Status     v1alpha1.ColocationPolicyStatus // as in the API
	Invalid    error                           // why the current version is invalid; nil: it is valid

	parsed model.ClusterPolicy // as the agents apply it: the last valid version
	usable bool                // parsed is set
	batch  []kube.BatchRule
}

// Policies are the policies of the cluster. Every replica watches them, because the webhook depends on them.
type Policies struct {
	*cache.Table[Policy]
	log         *slog.Logger
	koordinator bool // slack is sold under Koordinator's resource names
	rules       atomic.Pointer[admit.Rules]
}

// NewPolicies returns a table that knows no policy. It says whether slack is sold under Koordinator's resource names.
func NewPolicies(log *slog.Logger, koordinator bool) *Policies {
	p := &Policies{log: log, koordinator: koordinator}
	p.Table = cache.New(func(obj any) Policy { return p.read(obj.(*v1alpha1.ColocationPolicy)) })
	p.Changed = p.compile
	p.compile()
	return p
}

// read converts a policy. If it is invalid, the last valid version counts, as in the agents.
func (p *Policies) read(o *v1alpha1.ColocationPolicy) Policy {
	now := Policy{
		UID: string(o.UID), Generation: o.Generation, Created: o.CreationTimestamp.Time, Status: *o.Status.DeepCopy(),
	}
	parsed, err := kube.Policy(o)
	if err != nil {
		before, _ := p.Get(o.Name)
		if before.Generation != o.Generation {
			p.log.Warn("a policy cannot be used; what it said before stays in force", "err", err)
		}
		now.parsed, now.usable, now.batch, now.Invalid = before.parsed, before.usable, before.batch, err
		now.parsed.Paused = kube.Paused(o)
		return now
	}
	now.parsed, now.usable, now.batch = parsed, true, kube.BatchRules(o)
	now.parsed.Generation = o.Generation
	return now
}

// Usable returns the valid policies, ordered by name, and a version that differs after each change.
func (p *Policies) Usable() ([]model.ClusterPolicy, uint64) {
	rows, version := p.All()
	var all []model.ClusterPolicy
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if rows[name].usable {
			all = append(all, rows[name].parsed)
		}
	}
	return all, version
}

// compile turns the policies into the webhook's rules.
func (p *Policies) compile() {
	rows, _ := p.All()
	var sources []admit.Source
	for _, row := range rows {
		if row.usable {
			sources = append(sources, admit.Source{Policy: row.parsed, Pods: row.batch})
		}
	}
	rules := admit.Compile(sources, p.koordinator)
	p.rules.Store(&rules)
}

// Rules returns the rules of the webhook, by the policies that are known now.
func (p *Policies) Rules() admit.Rules { return *p.rules.Load() }
