package kube

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// ParsePolicy reads a ColocationPolicy document in YAML or JSON. A field that the type does not have, a value out of range
// and another kind of document are errors, which name the field, the value and what to write instead; all that are found
// are reported together.
func ParsePolicy(document []byte) (model.Policy, error) {
	var p v1alpha1.ColocationPolicy
	if err := yaml.UnmarshalStrict(document, &p); err != nil {
		return model.Policy{}, fmt.Errorf("reading the policy: %w", err)
	}
	if p.APIVersion != v1alpha1.GroupVersion || p.Kind != "ColocationPolicy" {
		return model.Policy{}, fmt.Errorf("reading the policy: apiVersion %q and kind %q: write %s and ColocationPolicy",
			p.APIVersion, p.Kind, v1alpha1.GroupVersion)
	}
	if p.Spec.Mode == "false" {
		p.Spec.Mode = string(model.ModeOff) // what YAML 1.1 makes of an Off without quotes, and no time to be strict
	}
	return Policy(&p)
}

// Policy converts a policy and fills in its defaults. The error lists every field that cannot be used.
func Policy(p *v1alpha1.ColocationPolicy) (model.Policy, error) {
	var c checker
	w := &p.Spec.Weight
	policy := model.Policy{
		Mode: model.Mode(c.oneOf("spec.mode", p.Spec.Mode, string(model.ModeObserve), string(model.ModeEnforce), string(model.ModeOff))),
		Weight: model.WeightPolicy{
			Scope:              model.Scope(c.oneOf("spec.weight.scope", w.Scope, string(model.ScopeNode), string(model.ScopeClass))),
			Quota:              model.QuotaMode(c.oneOf("spec.weight.quota", w.Quota, string(model.QuotaKubelet), string(model.QuotaUnlimited))),
			Max:                model.MaxShares,
			OverrideGuaranteed: w.OverrideGuaranteed,
			PromoteBestEffort:  c.oneOf("spec.weight.bestEffort", w.BestEffort, "class", "promote") == "promote",
		},
	}
	policy.CPU = c.sell("spec.cpu", p.Spec.CPU, model.DefaultPolicy().CPU, 10_000)
	policy.Memory = c.sell("spec.memory", p.Spec.Memory, model.DefaultPolicy().Memory, 1000)
	if w.Max != nil {
		policy.Weight.Max = c.shares("spec.weight.max", *w.Max)
	}
	for i, ns := range w.Namespaces {
		field := fmt.Sprintf("spec.weight.namespaces[%d]", i)
		policy.Weight.Namespaces = append(policy.Weight.Namespaces, model.NamespaceMax{
			Selector: c.selector(field+".selector", &ns.Selector),
			Max:      c.shares(field+".max", ns.Max),
		})
	}
	for i, rule := range p.Spec.Pods {
		field := fmt.Sprintf("spec.pods[%d]", i)
		of := model.PodRule{Selector: c.selector(field+".selector", &rule.Selector)}
		if rule.CPUShare != nil {
			of.Shares = c.shares(field+".cpuShare", *rule.CPUShare)
		}
		if rule.CPUManager != "" {
			of.CPUs = model.CPUMode(c.oneOf(field+".cpuManager", rule.CPUManager, string(model.CPUNone), string(model.CPUShare), string(model.CPUExclusive)))
			of.Placement = model.CPUPlacement(c.oneOf(field+".cpuPlacement", rule.CPUPlacement, string(model.PlacePacked), string(model.PlaceSpread), string(model.PlaceCores)))
		}
		switch {
		case rule.CPUShare == nil && rule.CPUManager == "":
			c.bad(field, "a rule that gives nothing", "write cpuShare or cpuManager")
		case rule.CPUManager == "" && rule.CPUPlacement != "":
			c.bad(field+".cpuPlacement", fmt.Sprintf("%q", rule.CPUPlacement), "write cpuManager as well")
		}
		policy.Pods = append(policy.Pods, of)
	}
	if err := errors.Join(c.errs...); err != nil {
		return model.Policy{}, fmt.Errorf("policy %q: %w", p.Name, err)
	}
	return policy, nil
}

// checker collects what is wrong with a document.
type checker struct{ errs []error }

func (c *checker) bad(field string, value any, fix string) {
	c.errs = append(c.errs, fmt.Errorf("%s: %v cannot be used: %s", field, value, fix))
}

// oneOf returns the value, or the first of those allowed if it is empty.
func (c *checker) oneOf(field, value string, allowed ...string) string {
	if value == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, value) {
		c.bad(field, fmt.Sprintf("%q", value), "write "+strings.Join(allowed, " or "))
	}
	return value
}

// sell reads how a resource is sold, whose ratio is at most the highest.
func (c *checker) sell(field string, spec *v1alpha1.SellSpec, policy model.SellPolicy, highest int64) model.SellPolicy {
	if spec == nil {
		return policy
	}
	policy.Method = model.SellMethod(c.oneOf(field+".method", spec.Method, string(model.SellPredicted), string(model.SellRealtime), string(model.SellStatic)))
	policy.Waterline = c.percent(field+".waterline", spec.Waterline, policy.Waterline, 10, 1000)
	policy.Mid = c.percent(field+".mid", spec.Mid, 0, 0, 1000)
	policy.Ratio = c.percent(field+".ratio", spec.Ratio, 0, 0, highest)
	if static := policy.Method == model.SellStatic; static != (spec.Ratio != "") {
		c.bad(field+".ratio", fmt.Sprintf("%q", spec.Ratio), "write it with method static, and only there")
	}
	return policy
}

// percent reads a part such as "65%" in thousandths, or returns what holds without one.
func (c *checker) percent(field, text string, otherwise, low, high int64) int64 {
	if text == "" {
		return otherwise
	}
	number, found := strings.CutSuffix(text, "%")
	part, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || !(part*10 >= float64(low) && part*10 <= float64(high)) {
		c.bad(field, fmt.Sprintf("%.64q", text), fmt.Sprintf("write a percentage from %g%% to %g%%", float64(low)/10, float64(high)/10))
		return otherwise
	}
	return int64(math.Round(part * 10))
}

func (c *checker) shares(field string, value int64) int64 {
	if value < model.MinShares || value > model.MaxShares {
		c.bad(field, value, fmt.Sprintf("write shares from %d to %d", model.MinShares, model.MaxShares))
	}
	return value
}

func (c *checker) selector(field string, s *metav1.LabelSelector) model.Selector {
	var selector model.Selector
	for key, value := range s.MatchLabels {
		selector = append(selector, model.Requirement{Key: key, Op: model.In, Values: []string{value}})
	}
	slices.SortFunc(selector, func(a, b model.Requirement) int { return strings.Compare(a.Key, b.Key) })
	for _, e := range s.MatchExpressions {
		op := model.SelectorOp(e.Operator)
		needsValues := op == model.In || op == model.NotIn
		switch {
		case !needsValues && op != model.Exists && op != model.DoesNotExist:
			c.bad(field, fmt.Sprintf("operator %q", e.Operator), "write In, NotIn, Exists or DoesNotExist")
		case needsValues != (len(e.Values) > 0):
			c.bad(field, fmt.Sprintf("%s with %d values", e.Operator, len(e.Values)), "In and NotIn need values, the others take none")
		}
		selector = append(selector, model.Requirement{Key: e.Key, Op: op, Values: e.Values})
	}
	return selector
}
