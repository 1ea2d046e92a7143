package kube

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// ParsePolicy reads a ColocationPolicy document in YAML or JSON. A field that the type does not have, a value out of range
// and another kind of document are errors, which name the field, the value and what to write instead; all that are found
// are reported together.
func ParsePolicy(document []byte) (model.ClusterPolicy, error) {
	p, err := readPolicy(document)
	if err != nil {
		return model.ClusterPolicy{}, fmt.Errorf("reading the policy: %w", err)
	}
	return Policy(p)
}

func readPolicy(document []byte) (*v1alpha1.ColocationPolicy, error) {
	var p v1alpha1.ColocationPolicy
	if err := yaml.UnmarshalStrict(document, &p); err != nil {
		return nil, err
	}
	if p.APIVersion != v1alpha1.GroupVersion || p.Kind != "ColocationPolicy" {
		return nil, fmt.Errorf("apiVersion %q and kind %q: write %s and ColocationPolicy", p.APIVersion, p.Kind, v1alpha1.GroupVersion)
	}
	if p.Spec.Mode == "false" {
		p.Spec.Mode = string(model.ModeDisabled) // what YAML 1.1 makes of an Off without quotes, and no time to be strict
	}
	return &p, nil
}

// Policy converts a policy and fills in its defaults. The error lists every field that cannot be used.
func Policy(p *v1alpha1.ColocationPolicy) (model.ClusterPolicy, error) {
	var c checker
	s := &p.Spec
	policy := model.ClusterPolicy{
		Name:     p.Name,
		Priority: int64(s.Priority),
		Nodes:    c.selector("spec.nodeSelector", s.NodeSelector),
		Rollout:  model.DefaultRollout,
		Windows:  c.windows("spec.windows", s.Windows),
		Policy: model.Policy{
			Mode:        chosen(&c, "spec.mode", s.Mode, model.ModeObserve, model.ModeEnforce, model.ModeDisabled),
			Koordinator: s.Compat.Koordinator,
			Weight:      c.weight("spec.weight", &s.Weight),
			Pods:        c.pods("spec.pods", s.Pods),
		},
	}
	switch {
	case s.Rollout == nil:
	case s.Rollout.Percent == nil:
		c.bad("spec.rollout", "no percent", "write one")
	default:
		policy.Rollout = c.within("spec.rollout.percent", int64(*s.Rollout.Percent), 0, 100, "a whole number")
	}
	c.batch("spec.batch", s.Batch)
	c.sell(&policy.Policy, s)
	c.protect(&policy.Policy.Protect, s)
	if err := errors.Join(c.errs...); err != nil {
		return model.ClusterPolicy{}, fmt.Errorf("policy %q: %w", p.Name, err)
	}
	return policy, nil
}

// BatchRule makes batch pods of pods that it selects.
type BatchRule struct {
	Selector model.Selector
	Percent  int // of the owners of such pods, 0 to 100
	Tier     model.Tier
}

// BatchRules converts a policy's rules about which pods are batch. Where [Policy] finds nothing wrong they can be used.
func BatchRules(p *v1alpha1.ColocationPolicy) []BatchRule {
	var c checker
	return c.batch("spec.batch", p.Spec.Batch)
}

func (c *checker) batch(field string, specs []v1alpha1.BatchRuleSpec) []BatchRule {
	var rules []BatchRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := BatchRule{
			Selector: c.required(field+".selector", spec.Selector),
			Percent:  100,
			Tier:     chosen(c, field+".tier", spec.Tier, model.TierBatch, model.TierMid),
		}
		if spec.Percent != nil {
			rule.Percent = int(c.within(field+".percent", int64(*spec.Percent), 0, 100, "a whole number"))
		}
		rules = append(rules, rule)
	}
	return rules
}

// OptedOut reports whether the labels of a node keep Waterline off it.
func OptedOut(labels map[string]string) bool {
	value, labelled := labels[v1alpha1.LabelOptOut]
	return labelled && value != "false"
}

// sell reads how CPU and memory are sold, and how CPU is taken back.
func (c *checker) sell(policy *model.Policy, s *v1alpha1.ColocationPolicySpec) {
	defaults := model.DefaultPolicy()
	policy.CPU, policy.Memory = defaults.CPU, defaults.Memory
	if cpu := s.CPU; cpu != nil {
		policy.CPU = c.sale("spec.cpu", sale{cpu.Waterline, cpu.Method, cpu.Ratio, cpu.Mid}, defaults.CPU.Waterline, 10_000)
		policy.Suppress = model.SuppressPolicy{
			By:       chosen(c, "spec.cpu.suppressBy", cpu.SuppressBy, model.SuppressByCpuset, model.SuppressByQuota, model.SuppressByBoth, model.SuppressByNone),
			MinBatch: c.percent("spec.cpu.floor", cpu.Floor, 0, 0, 1000),
		}
		policy.Weight.IdleBatch = cpu.Idle
		policy.Weight.Identity = cpu.GroupIdentity
	}
	if memory := s.Memory; memory != nil {
		policy.Memory = c.sale("spec.memory", sale{memory.Waterline, memory.Method, memory.Ratio, memory.Mid}, defaults.Memory.Waterline, 1000)
	}
}

// sale is what a policy says about selling one resource.
type sale struct{ waterline, method, ratio, mid string }

// sale reads how a resource is sold, whose ratio is at most the highest.
func (c *checker) sale(field string, s sale, waterline, highest int64) model.SellPolicy {
	policy := model.SellPolicy{
		Method:    chosen(c, field+".method", s.method, model.SellPredicted, model.SellRealtime, model.SellStatic),
		Waterline: c.percent(field+".waterline", s.waterline, waterline, 10, 1000),
		Mid:       c.percent(field+".mid", s.mid, 0, 0, 1000),
		Ratio:     c.percent(field+".ratio", s.ratio, 0, 0, highest),
	}
	if static := policy.Method == model.SellStatic; static != (s.ratio != "") {
		c.bad(field+".ratio", fmt.Sprintf("%.64q", s.ratio), "write it with method static, and only there")
	}
	return policy
}

// protect reads what is done for online pods. Where batch is let in they may burst unless the policy says otherwise.
func (c *checker) protect(policy *model.ProtectPolicy, s *v1alpha1.ColocationPolicySpec) {
	*policy = model.ProtectPolicy{Burst: s.CPU != nil}
	if s.Protect.Burst != nil {
		policy.Burst = *s.Protect.Burst
	}
	if s.Protect.Memory != nil {
		policy.Memory = *s.Protect.Memory
	}
	policy.Interference = s.Protect.Culprit
	if evict := s.Protect.Evict; evict != nil {
		policy.EvictPerHour = model.DefaultEvictPerHour
		policy.Freeze = evict.Freeze
		if policy.Freeze && !policy.Memory {
			c.bad("spec.protect.evict.freeze", true, "write it with protect.memory: true, and only there")
		}
		if n := evict.PerNodePerHour; n != nil {
			policy.EvictPerHour = c.within("spec.protect.evict.perNodePerHour", int64(*n), 0, 600, "a whole number")
		}
	}
}

func (c *checker) weight(field string, w *v1alpha1.WeightSpec) model.WeightPolicy {
	policy := model.WeightPolicy{
		Scope:              chosen(c, field+".scope", w.Scope, model.ScopeNode, model.ScopeClass),
		Quota:              chosen(c, field+".quota", w.Quota, model.QuotaKubelet, model.QuotaUnlimited),
		Max:                model.MaxShares,
		OverrideGuaranteed: w.OverrideGuaranteed,
		PromoteBestEffort:  chosen(c, field+".bestEffort", w.BestEffort, "class", "promote") == "promote",
	}
	if w.Max != nil {
		policy.Max = c.shares(field+".max", *w.Max)
	}
	for i, ns := range w.Namespaces {
		field := fmt.Sprintf("%s.namespaces[%d]", field, i)
		policy.Namespaces = append(policy.Namespaces, model.NamespaceMax{
			Selector: c.required(field+".selector", ns.Selector),
			Max:      c.shares(field+".max", ns.Max),
		})
	}
	return policy
}

func (c *checker) pods(field string, specs []v1alpha1.PodRuleSpec) []model.PodRule {
	var rules []model.PodRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := model.PodRule{Selector: c.required(field+".selector", spec.Selector)}
		if spec.CPUShare != nil {
			rule.Shares = c.shares(field+".cpuShare", *spec.CPUShare)
		}
		if spec.CPUManager != "" {
			rule.CPUs = chosen(c, field+".cpuManager", spec.CPUManager, model.CPUNone, model.CPUShare, model.CPUExclusive)
			rule.Placement = chosen(c, field+".cpuPlacement", spec.CPUPlacement, model.PlacePacked, model.PlaceSpread, model.PlaceCores)
		}
		switch {
		case spec.CPUShare == nil && spec.CPUManager == "":
			c.bad(field, "a rule that gives nothing", "write cpuShare or cpuManager")
		case spec.CPUManager == "" && spec.CPUPlacement != "":
			c.bad(field+".cpuPlacement", fmt.Sprintf("%.64q", spec.CPUPlacement), "write cpuManager as well")
		}
		rules = append(rules, rule)
	}
	return rules
}
