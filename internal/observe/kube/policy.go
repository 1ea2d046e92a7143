package kube

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// How a policy spells what annotations and resource names spell in lower case.
var (
	tiers      = []spelling[model.Tier]{{"Batch", model.TierBatch}, {"Mid", model.TierMid}}
	quotaModes = []spelling[model.QuotaMode]{{"Kubelet", model.QuotaKubelet}, {"Unlimited", model.QuotaUnlimited}}
	cpuModes   = []spelling[model.CPUMode]{
		{"None", model.CPUNone}, {"Share", model.CPUShare}, {"Exclusive", model.CPUExclusive},
	}
	placements = []spelling[model.CPUPlacement]{
		{"Packed", model.PlacePacked}, {"Spread", model.PlaceSpread}, {"PhysicalCores", model.PlaceCores},
	}
)

// ParsePolicy reads a ColocationPolicy document in YAML or JSON. A field that the type does not have, a value out of
// range and another kind of document are errors, which name the field, the value and what to write instead; all that
// are found are reported together.
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
		return nil, fmt.Errorf("apiVersion %q and kind %q: write %s and ColocationPolicy", p.APIVersion, p.Kind,
			v1alpha1.GroupVersion)
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
		Paused:   Paused(p),
		Policy: model.Policy{
			Mode:        chosen(&c, "spec.mode", s.Mode, model.ModeObserve, model.ModeEnforce, model.ModeDisabled),
			UseIsolated: chosen(&c, "spec.isolatedCPUs", s.IsolatedCPUs, "Unused", "Used") == "Used",
			Weight:      c.weight("spec.weight", &s.Weight),
			Pods:        c.podDefaults("spec.podDefaults", s.PodDefaults),
			Privileges:  c.privileges("spec.privileges", s.Privileges),
			Services:    c.services("spec.protect.services", s.Protect.Services),
		},
	}
	if s.Rollout != nil {
		policy.Rollout = c.whole("spec.rollout.nodes", s.Rollout.Nodes)
	}
	c.batchPods("spec.batchPods", s.BatchPods)
	c.sell(&policy.Policy, s)
	c.protect(&policy.Policy.Protect, s)
	if err := errors.Join(c.errs...); err != nil {
		return model.ClusterPolicy{}, fmt.Errorf("policy %q: %w", p.Name, err)
	}
	return policy, nil
}

// Paused reports whether a policy has the annotation that disables it. That also counts while its spec has a mistake,
// and its last valid version is in force.
func Paused(p *v1alpha1.ColocationPolicy) bool {
	return set(p.Annotations, v1alpha1.AnnotationPause)
}

// OptedOut returns the annotation or the label of a node that keeps Waterline off it; "" if it has neither. Both mean
// the same. The annotation is for the people who operate the node; the label is what a pool of nodes can be made with.
func OptedOut(n *model.NodeInfo) string {
	switch {
	case n.Paused:
		return v1alpha1.AnnotationPause
	case set(n.Labels, v1alpha1.LabelOptOut):
		return v1alpha1.LabelOptOut
	}
	return ""
}

// set reports whether a label or annotation is there. Every value counts but "false".
func set(all map[string]string, key string) bool {
	value, found := all[key]
	return found && value != "false"
}

// BatchRule selects pods to admit as batch.
type BatchRule struct {
	Selector   model.Selector
	Namespaces model.Selector
	Percent    int // of the owners of such pods, 0 to 100
	Tier       model.Tier
}

// BatchRules converts the rules of a policy that select batch pods. They are valid if [Policy] returns no error.
func BatchRules(p *v1alpha1.ColocationPolicy) []BatchRule {
	var c checker
	return c.batchPods("spec.batchPods", p.Spec.BatchPods)
}

func (c *checker) batchPods(field string, specs []v1alpha1.BatchPodsSpec) []BatchRule {
	var rules []BatchRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := BatchRule{
			Selector:   c.required(field+".selector", spec.Selector),
			Namespaces: c.selector(field+".namespaceSelector", spec.NamespaceSelector),
			Percent:    100,
			Tier:       named(c, field+".tier", spec.Tier, tiers...),
		}
		if spec.Owners != "" {
			rule.Percent = int(c.whole(field+".owners", spec.Owners))
		}
		rules = append(rules, rule)
	}
	return rules
}

// sell reads how CPU and memory are sold, and how batch is suppressed.
func (c *checker) sell(policy *model.Policy, s *v1alpha1.ColocationPolicySpec) {
	defaults := model.DefaultPolicy()
	policy.CPU, policy.Memory = defaults.CPU, defaults.Memory
	if cpu := s.CPU; cpu != nil {
		policy.CPU = c.sale("spec.cpu", sale{cpu.Waterline, cpu.Method, cpu.Ratio, cpu.Mid}, defaults.CPU.Waterline, 10_000)
		policy.Suppress = model.SuppressPolicy{
			By: chosen(c, "spec.cpu.suppression", cpu.Suppression, model.SuppressOnHarm, model.SuppressByArithmetic,
				model.SuppressByNone),
			MinBatch: c.percent("spec.cpu.minBatch", cpu.MinBatch, 0, 0, 1000),
		}
		policy.Weight.Batch = chosen(c, "spec.cpu.batchClass", cpu.BatchClass, model.BatchByWeight, model.BatchByIdle,
			model.BatchByIdentity)
	}
	if memory := s.Memory; memory != nil {
		policy.Memory = c.sale("spec.memory", sale{
			memory.Waterline, memory.Method, memory.Ratio, memory.Mid,
		}, defaults.Memory.Waterline, 1000)
	}
}

// sale has the fields of a policy about selling one resource.
type sale struct {
	waterline  string
	method     v1alpha1.SellMethod
	ratio, mid string
}

// sale reads how a resource is sold. waterline is the default, in thousandths, and highest the highest ratio.
func (c *checker) sale(field string, s sale, waterline, highest int64) model.SellPolicy {
	policy := model.SellPolicy{
		Method:    chosen(c, field+".method", s.method, model.SellPredicted, model.SellRealtime, model.SellStatic),
		Waterline: c.percent(field+".waterline", s.waterline, waterline, 10, 1000),
		Mid:       c.percent(field+".mid", s.mid, 0, 0, 1000),
		Ratio:     c.percent(field+".ratio", s.ratio, 0, 0, highest),
	}
	if static := policy.Method == model.SellStatic; static != (s.ratio != "") {
		c.bad(field+".ratio", fmt.Sprintf("%.64q", s.ratio), "write it with method Static, and only there")
	}
	return policy
}

// protect reads the protection of online pods. In a policy with cpu they may burst, unless protect.burst is false.
func (c *checker) protect(policy *model.ProtectPolicy, s *v1alpha1.ColocationPolicySpec) {
	*policy = model.ProtectPolicy{Burst: s.CPU != nil}
	if s.Protect.Burst != nil {
		policy.Burst = *s.Protect.Burst
	}
	policy.Memory, policy.Interference = s.Protect.Memory, s.Protect.Interference
	if evict := s.Protect.Eviction; evict != nil {
		policy.EvictPerHour = model.DefaultEvictPerHour
		if n := evict.PerNodePerHour; n != nil {
			policy.EvictPerHour = c.within("spec.protect.eviction.perNodePerHour", int64(*n), 0, 600, "a whole number")
		}
	}
}

func (c *checker) weight(field string, w *v1alpha1.WeightSpec) model.WeightPolicy {
	policy := model.WeightPolicy{
		Scope:              chosen(c, field+".scope", w.Scope, model.ScopeNode, model.ScopeClass),
		Quota:              named(c, field+".quota", w.Quota, quotaModes...),
		OverrideGuaranteed: w.OverrideGuaranteed,
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

func (c *checker) privileges(field string, specs []v1alpha1.PrivilegeSpec) []model.PrivilegeRule {
	var rules []model.PrivilegeRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := model.PrivilegeRule{Namespaces: c.required(field+".namespaceSelector", spec.NamespaceSelector)}
		if len(spec.Allow) == 0 {
			c.bad(field+".allow", "an empty list", "write what the pods may request")
		}
		for j, name := range spec.Allow {
			field := fmt.Sprintf("%s.allow[%d]", field, j)
			if name == "" {
				c.bad(field, `""`, "write what the pods may request")
			}
			rule.Allow = append(rule.Allow, chosen(c, field, string(name), model.Privileges()...))
		}
		rules = append(rules, rule)
	}
	return rules
}

func (c *checker) podDefaults(field string, specs []v1alpha1.PodDefaultsSpec) []model.PodRule {
	var rules []model.PodRule
	for i, spec := range specs {
		field := fmt.Sprintf("%s[%d]", field, i)
		rule := model.PodRule{
			Selector:   c.required(field+".selector", spec.Selector),
			Namespaces: c.selector(field+".namespaceSelector", spec.NamespaceSelector),
		}
		if spec.CPUShare != nil {
			rule.Shares = c.shares(field+".cpuShare", *spec.CPUShare)
		}
		if spec.CPUManager != "" {
			rule.CPUs = named(c, field+".cpuManager", spec.CPUManager, cpuModes...)
			rule.Placement = named(c, field+".cpuPlacement", spec.CPUPlacement, placements...)
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
