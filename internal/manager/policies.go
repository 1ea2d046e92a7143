package manager

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/manager/table"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// storedPolicy is the known part of a ColocationPolicy.
type storedPolicy struct {
	uid        string
	generation int64
	created    time.Time
	status     v1alpha1.ColocationPolicyStatus // as in the API
	parsed     model.ClusterPolicy             // as the agents apply it: the last valid version
	usable     bool                            // parsed is set
	invalid    error                           // why the current version is invalid; nil: it is valid
	batch      []kube.BatchRule
}

// policies are the policies of the cluster. Every replica watches them, because the webhook depends on them.
type policies struct {
	*table.Table[storedPolicy]
	log   *slog.Logger
	rules atomic.Pointer[admit.Rules]
}

func newPolicies(log *slog.Logger) *policies {
	p := &policies{log: log}
	p.Table = table.New(func(obj any) storedPolicy { return p.read(obj.(*v1alpha1.ColocationPolicy)) })
	p.Changed = p.compile
	p.compile()
	return p
}

// read converts a policy. If it is invalid, the last valid version counts, as in the agents.
func (p *policies) read(o *v1alpha1.ColocationPolicy) storedPolicy {
	now := storedPolicy{
		uid: string(o.UID), generation: o.Generation, created: o.CreationTimestamp.Time, status: *o.Status.DeepCopy(),
	}
	parsed, err := kube.Policy(o)
	if err != nil {
		before, _ := p.Get(o.Name)
		if before.generation != o.Generation {
			p.log.Warn("a policy cannot be used; what it said before stays in force", "err", err)
		}
		now.parsed, now.usable, now.batch, now.invalid = before.parsed, before.usable, before.batch, err
		return now
	}
	now.parsed, now.usable, now.batch = parsed, true, kube.BatchRules(o)
	now.parsed.Generation = o.Generation
	return now
}

// usable returns the valid policies, ordered by name, and a version that differs after each change.
func (p *policies) usable() ([]model.ClusterPolicy, uint64) {
	rows, version := p.All()
	var all []model.ClusterPolicy
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if rows[name].usable {
			all = append(all, rows[name].parsed)
		}
	}
	return all, version
}

// compile turns the policies into the webhook's rules. Only policies in mode Enforce apply to new pods.
//
// Pods get Koordinator's names if a policy sells under them and none under ours. It is one choice for all pods: the
// node of a new pod is unknown, and the second call for the same pod must write the same names.
func (p *policies) compile() {
	rows, _ := p.All()
	rules := &admit.Rules{}
	ours, theirs := false, false
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		row := rows[name]
		if !row.usable || row.parsed.Policy.Mode != model.ModeEnforce {
			continue
		}
		if row.parsed.Policy.CPU.Method != "" || row.parsed.Policy.Memory.Method != "" {
			ours = ours || !row.parsed.Policy.Koordinator
			theirs = theirs || row.parsed.Policy.Koordinator
		}
		for _, rule := range row.batch {
			rules.Pods = append(rules.Pods, admit.Rule{
				Policy: name, Priority: row.parsed.Priority,
				Selector: selector(rule.Selector), Namespaces: selector(rule.Namespaces),
				Percent: rule.Percent, Tier: rule.Tier,
			})
		}
	}
	rules.Koordinator = theirs && !ours
	slices.SortStableFunc(rules.Pods, func(a, b admit.Rule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Policy, b.Policy))
	})
	p.rules.Store(rules)
}

// selector converts a selector, whose operators are those of Kubernetes. An invalid one selects nothing.
func selector(from model.Selector) labels.Selector {
	operators := map[model.SelectorOp]selection.Operator{
		model.In: selection.In, model.NotIn: selection.NotIn, model.Exists: selection.Exists,
		model.DoesNotExist: selection.DoesNotExist,
	}
	to := labels.NewSelector()
	for _, r := range from {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Op], r.Values)
		if err != nil {
			return labels.Nothing()
		}
		to = to.Add(*requirement)
	}
	return to
}
