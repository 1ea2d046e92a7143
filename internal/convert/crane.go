package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

type crane struct {
	notes
	rules    []*Document
	pods     []*Document
	actions  map[string]map[string]any
	reserved map[string]float64 // by resource, in percent
	outside  notes              // that belong to no policy
	result   Result
}

// Crane converts Crane's NodeQOS, PodQOS and AvoidanceActions, the flags of its agent, and annotations of Nodes. The
// error lists everything that cannot be used.
func Crane(documents []Document, o Options) (*Result, error) {
	c := &crane{
		notes: notes{table: CraneKeys()}, actions: map[string]map[string]any{}, reserved: map[string]float64{},
		outside: notes{table: CraneKeys()},
	}
	for i := range documents {
		c.read(&documents[i])
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	c.policies()
	c.podRules()
	c.result.Needs = append(c.result.Needs,
		"Pods that request gocrane.io/cpu and gocrane.io/memory: remove these requests, label the pods "+
			"waterline.io/qos: BE, and request cpu and memory as usual. The webhook turns them into batch requests.",
		"Pods with the annotation qos.gocrane.io/cpu-manager keep it. Their namespaces, and those of pods with "+
			"waterline.io/cpu-manager, need the privileges ShareCPUs or ExclusiveCPUs: see docs/policy.md.",
		"Label each namespace in which rules of batchPods may make pods batch: "+
			"kubectl label namespace NAME waterline.io/colocation=enabled")
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	c.result.Notes = c.outside.all
	return &c.result, c.result.finish(o)
}

func (c *crane) read(d *Document) {
	spec, _ := d.Object["spec"].(map[string]any)
	switch kind := d.Kind(); kind {
	case nodeQOS:
		c.rules = append(c.rules, d)
		c.check(d.String(), kind, spec)
	case podQOS:
		c.pods = append(c.pods, d)
		c.check(d.String(), kind, spec)
	case avoidance:
		c.actions[d.Name()] = spec
		c.check(d.String(), kind, spec)
	case "DaemonSet":
		c.flags(d)
	case "Node":
		all, _ := at(d.Object, "metadata", "annotations").(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if key := find(c.table, nodeLabels, name); key != nil {
				c.outside.add(key.Cover, nodeLabels+" "+name+": "+excerpt(all[name]), key.sentence())
			}
		}
	case "TimeSeriesPrediction", "ClusterNodePrediction":
		c.outside.add(Nearest, kind, "To cpu.method. Predicted predicts the peak of online pods on the node itself, and "+
			"needs no history elsewhere.")
	case "NodeQOSEnsurancePolicy", "PodQOSEnsurancePolicy":
		c.bad(d.String(), "kind", kind, "NodeQOS or PodQOS, as Crane has called it since v0.6")
	default:
		c.outside.add(None, kind+" "+d.Name(), "Waterline does not read objects of this kind. docs/migrate-crane.md "+
			"lists what to use.")
	}
}

func (c *crane) flags(d *Document) {
	n := &c.outside
	for _, f := range flagsOf(d) {
		n.take(d.String(), craneFlags, map[string]any{f.name: f.value})
		if f.name != "node-resource-reserved" {
			continue
		}
		for pair := range strings.SplitSeq(f.value, ",") {
			name, text, _ := strings.Cut(strings.TrimSpace(pair), "=")
			share, hasSign := strings.CutSuffix(text, "%")
			reserved, err := strconv.ParseFloat(share, 64)
			if err != nil || !hasSign || reserved < 0 || reserved > 99 || name != "cpu" && name != "memory" {
				n.bad(d.String(), craneFlags+" --"+f.name, pair, "cpu or memory and a percentage, such as cpu=40%,memory=40%")
				continue
			}
			c.reserved[name] = reserved
		}
	}
	c.errs, n.errs = append(c.errs, n.errs...), nil
}

// flagOf is a flag of a program with its value.
type flagOf struct{ name, value string }

// flagsOf returns the flags of the first container of a workload.
func flagsOf(d *Document) []flagOf {
	containers := list(at(d.Object, "spec", "template", "spec", "containers"))
	if len(containers) == 0 {
		return nil
	}
	var words []string
	for _, field := range []string{"command", "args"} {
		items, _ := containers[0][field].([]any)
		for _, item := range items {
			words = append(words, text(item))
		}
	}
	var all []flagOf
	for i, word := range words {
		name, isFlag := strings.CutPrefix(word, "-")
		if !isFlag {
			continue
		}
		name, value, has := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !has {
			value = "true"
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") {
				value = words[i+1]
			}
		}
		all = append(all, flagOf{name, value})
	}
	return all
}

// policies makes a policy for each selector of NodeQOS, and one for all nodes. All NodeQOS that select a node count for
// it, so those of all nodes are a part of each policy.
func (c *crane) policies() {
	type group struct {
		nodes *v1alpha1.LabelSelector
		of    []*Document
	}
	groups := []*group{{}}
	for _, d := range c.rules {
		nodes, _ := labelSelector(at(d.Object, "spec", "selector"))
		i := slices.IndexFunc(groups, func(g *group) bool { // the first one has no requirements
			return requirements(g.nodes).Equal(requirements(nodes))
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{nodes: nodes})
		}
		groups[i].of = append(groups[i].of, d)
	}
	for i := len(groups) - 1; i >= 0; i-- {
		g := groups[i]
		c.all = nil
		p := Policy{Name: "crane", Priority: int32(i)}
		p.Spec.NodeSelector = g.nodes
		of := g.of
		if i > 0 {
			p.Name = policyName("crane", g.of[0].Name())
			of = append(slices.Clone(g.of), groups[0].of...)
			if len(groups) > 2 {
				c.add(Nearest, "NodeQOS "+g.of[0].Name(), "One policy governs a node. For nodes that several selectors match, the "+
					"one with the highest priority counts; with Crane, all of them do.")
			}
		}
		for _, d := range g.of {
			spec, _ := d.Object["spec"].(map[string]any)
			c.take(d.String(), nodeQOS, spec)
		}
		c.fill(&p.Spec, of)
		p.Notes = c.all
		c.result.Policies = append(c.result.Policies, p)
	}
}

// fill writes a policy from all NodeQOS that count for its nodes. Limits of the CPU that batch uses become the
// waterline with suppression Arithmetic, which keeps batch below it. A reservation limits only what is offered.
func (c *crane) fill(s *v1alpha1.ColocationPolicySpec, of []*Document) {
	used, cpu, memory := 100.0, 100-c.reserved["cpu"], 100-c.reserved["memory"]
	s.CPU = &v1alpha1.CPUSpec{Method: v1alpha1.SellPredicted, Suppression: v1alpha1.SuppressOnHarm}
	s.Memory = &v1alpha1.MemorySpec{Method: v1alpha1.SellPredicted}
	for _, d := range of {
		limit, _ := at(d.Object, "spec", "elasticCpuLimit", "elasticNodeCpuLimit").(map[string]any)
		if n := value(limit, "percent", 0); n > 0 {
			used = min(used, n)
		}
		for _, rule := range list(at(d.Object, "spec", "rules")) {
			switch text(at(rule, "metricRule", "name")) {
			case "cpu_total_utilization":
				used = min(used, c.threshold(d, rule))
			case "memory_total_utilization":
				memory = min(memory, c.threshold(d, rule))
			case "container_sched_run_queue_time":
				s.Protect.Interference = true
			}
			action, known := c.actions[text(rule["actionName"])]
			if !known {
				c.add(Nearest, nodeQOS+" rules[].actionName: "+excerpt(rule["actionName"]),
					"There is no such AvoidanceAction in the input, so it counts as one that keeps new pods away.")
				continue
			}
			c.take(d.String(), avoidance, action)
			if action["eviction"] != nil {
				s.Protect.Eviction = &v1alpha1.EvictionSpec{}
			}
			if isOn(at(action, "throttle", "memoryThrottle", "forceGC")) {
				s.Protect.Memory = true
			}
		}
	}
	if used < 100 {
		s.CPU.Suppression = v1alpha1.SuppressByArithmetic
	}
	if cpu = min(cpu, used); cpu < 100 {
		s.CPU.Waterline = part(cpu, 1, 100)
	}
	if memory < 100 {
		s.Memory.Waterline = part(memory, 1, 100)
	}
}

// threshold returns the value of a rule in percent. It is a quantity, whose unit depends on the metric.
func (c *crane) threshold(d *Document, rule map[string]any) float64 {
	v := at(rule, "metricRule", "value")
	written := text(v)
	if n, isNumber := v.(float64); isNumber {
		written = strconv.FormatFloat(n, 'f', -1, 64)
	}
	q, err := resource.ParseQuantity(written)
	if err != nil {
		c.bad(d.String(), nodeQOS+" rules[].metricRule.value", v, "a quantity, such as 75")
		return 100
	}
	return q.AsApproximateFloat64()
}

// podRules makes rules for pods of PodQOS, in each policy; those for batch pods in the last.
func (c *crane) podRules() {
	slices.SortStableFunc(c.pods, func(a, b *Document) int { return strings.Compare(a.Name(), b.Name()) })
	c.all = nil
	var batch []v1alpha1.BatchPodsSpec
	var defaults []v1alpha1.PodDefaultsSpec
	var burst, memory bool
	for _, d := range c.pods {
		spec, _ := d.Object["spec"].(map[string]any)
		c.take(d.String(), podQOS, spec)
		pods, _ := labelSelector(spec["labelSelector"])
		pods = cmp.Or(pods, &v1alpha1.LabelSelector{})
		namespaces, others := c.scope(d, spec)
		actions, _ := spec["allowedActions"].([]any)
		switch {
		case len(actions) > 0 && len(requirements(pods)) == 0 && namespaces == nil && !others:
			c.result.Needs = append(c.result.Needs, fmt.Sprintf("PodQOS %s allows actions on every pod of the cluster. Choose "+
				"the pods that are batch: label them waterline.io/qos: BE, or write a rule of batchPods.", d.Name()))
		case len(actions) > 0 && others:
			c.result.Needs = append(c.result.Needs, fmt.Sprintf("Label the pods that PodQOS %s selects waterline.io/qos: BE: "+
				"a rule cannot select by their QoS class or priority.", d.Name()))
		case len(actions) > 0:
			batch = appendNew(batch, v1alpha1.BatchPodsSpec{Selector: pods, NamespaceSelector: namespaces})
		}
		set := text(at(spec, "resourceQOS", "cpuQOS", "cpuSet", "cpuSet"))
		mode := map[string]v1alpha1.CPUManagerMode{
			"none": v1alpha1.CPUNone, "share": v1alpha1.CPUShare, "exclusive": v1alpha1.CPUExclusive,
		}[set]
		switch {
		case mode != "" && others:
			c.result.Needs = append(c.result.Needs, fmt.Sprintf("Annotate the pods that PodQOS %s selects "+
				"waterline.io/cpu-manager: %s: a rule cannot select by their QoS class or priority.", d.Name(), set))
		case mode != "":
			defaults = appendNew(defaults, v1alpha1.PodDefaultsSpec{
				Selector: pods, NamespaceSelector: namespaces, CPUManager: mode,
			})
		}
		burst = burst || at(spec, "resourceQOS", "cpuQOS", "cpuBurst") != nil
		memory = memory || at(spec, "resourceQOS", "memoryQOS", "memPriority") != nil
	}
	for i := range c.result.Policies {
		s := &c.result.Policies[i].Spec
		s.PodDefaults, s.Protect.Memory = defaults, s.Protect.Memory || memory
		if burst {
			s.Protect.Burst = &burst
		}
	}
	last := &c.result.Policies[len(c.result.Policies)-1]
	last.Spec.BatchPods, last.Notes = batch, append(c.all, last.Notes...)
}

// scope returns the namespaces of a scope selector, and whether it selects by something else too.
func (c *crane) scope(d *Document, spec map[string]any) (namespaces *v1alpha1.LabelSelector, others bool) {
	for _, e := range list(at(spec, "scopeSelector", "matchExpressions")) {
		if text(e["scopeName"]) != "Namespace" {
			others = true
			continue
		}
		operator := text(e["operator"])
		if operator != "In" && operator != "NotIn" {
			c.bad(d.String(), podQOS+" scopeSelector.matchExpressions[].operator", e["operator"], "In or NotIn")
		}
		requirement := v1alpha1.LabelRequirement{Key: "kubernetes.io/metadata.name", Operator: operator}
		values, _ := e["values"].([]any)
		for _, v := range values {
			requirement.Values = append(requirement.Values, v1alpha1.LabelValue(text(v)))
		}
		if err := label(requirement.Key, requirement.Values...); err != nil || len(values) == 0 {
			c.bad(d.String(), podQOS+" scopeSelector.matchExpressions[].values", e["values"], "names of namespaces")
		}
		namespaces = cmp.Or(namespaces, &v1alpha1.LabelSelector{})
		namespaces.MatchExpressions = append(namespaces.MatchExpressions, requirement)
	}
	return namespaces, others
}
