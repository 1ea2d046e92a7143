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
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// storedPolicy is what is known of a ColocationPolicy.
type storedPolicy struct {
	uid        string
	generation int64
	created    time.Time
	status     v1alpha1.ColocationPolicyStatus // as it stands there
	parsed     model.ClusterPolicy             // as the agents go by it: where it cannot be used, as it was before
	usable     bool                            // parsed is something
	invalid    error                           // why what it says now cannot be used
	batch      []kube.BatchRule
}

// policies are those of the cluster. Every replica follows them, because what is made batch depends on them.
type policies struct {
	*table[storedPolicy]
	log   *slog.Logger
	rules atomic.Pointer[admit.Rules]
}

func newPolicies(log *slog.Logger) *policies {
	p := &policies{log: log}
	p.table = newTable(func(obj any) storedPolicy { return p.read(obj.(*v1alpha1.ColocationPolicy)) })
	p.changed = p.compile
	p.compile()
	return p
}

// read converts a policy. As with agents, of one that cannot be used what it said before counts.
func (p *policies) read(o *v1alpha1.ColocationPolicy) storedPolicy {
	now := storedPolicy{
		uid: string(o.UID), generation: o.Generation, created: o.CreationTimestamp.Time, status: *o.Status.DeepCopy(),
	}
	parsed, err := kube.Policy(o)
	if err != nil {
		before, _ := p.get(o.Name)
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

// usable returns the policies that can be used, ordered by name, and a version that is another after each change.
func (p *policies) usable() ([]model.ClusterPolicy, uint64) {
	rows, version := p.all()
	var all []model.ClusterPolicy
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if rows[name].usable {
			all = append(all, rows[name].parsed)
		}
	}
	return all, version
}

// compile turns the policies into the webhook's rules. Only those in mode Enforce say anything about new pods.
//
// Pods ask by Koordinator's names where a policy sells under them and none sells under ours. It is one answer for all
// pods: on which node a pod will be is not known when it is created, and what was written once must be written again by
// the second call for the same pod.
func (p *policies) compile() {
	rows, _ := p.all()
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

// selector converts a selector, whose operators are those of Kubernetes. One that Kubernetes does not take selects
// nothing.
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
