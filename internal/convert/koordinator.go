package convert

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// sections are the documents that set what holds on a node, in the order of their rank. Each has a strategy for the
// cluster, and others for nodes that a selector selects.
var sections = []string{nodeLabels, nodeLabels + " memory", colocation, threshold, qos, burst, system, hostApps,
	normalization, amplification}

// strategy is what a section says of some nodes.
type strategy struct {
	from  string // in errors
	name  string
	nodes *v1alpha1.LabelSelector // nil: all
	own   map[string]any          // what it says itself, which the notes are about
	all   map[string]any          // that, over the strategy of the cluster
}

type koordinator struct {
	notes
	canary   string // the key of the label of the canary's nodes; "": none
	cluster  map[string]*strategy
	nodes    map[string][]*strategy
	profiles []Document
	slos     []Document
	result   Result
	mid      bool // a profile uses the tier mid
}

// Koordinator converts Koordinator's ConfigMap slo-controller-config, ClusterColocationProfiles, NodeSLOs and the
// labels of Nodes. NodeSLOs are computed from the ConfigMap, and count only without it. The error lists everything that
// cannot be used.
func Koordinator(documents []Document, o Options) (*Result, error) {
	k := &koordinator{
		notes: notes{table: KoordinatorKeys()}, canary: o.labelKey(),
		cluster: map[string]*strategy{}, nodes: map[string][]*strategy{},
	}
	for i := range documents {
		d := &documents[i]
		switch d.Kind() {
		case "ConfigMap":
			k.configMap(d)
		case profile:
			k.profiles = append(k.profiles, *d)
		case "NodeSLO":
			k.slos = append(k.slos, *d)
		case "Node":
			k.node(d)
		default:
			k.add(None, d.Kind()+" "+d.Name(), "Waterline does not read objects of this kind. docs/migrate-koordinator.md "+
				"lists what to use.")
		}
	}
	k.nodeSLOs()
	if err := errors.Join(k.errs...); err != nil {
		return nil, err
	}
	outside := k.all // notes so far belong to no policy
	k.all = nil
	rules := k.readProfiles()
	about := k.all
	if err := k.policies(); err != nil {
		return nil, err
	}
	k.apply(rules)
	last := &k.result.Policies[len(k.result.Policies)-1] // that of all nodes, with the rules for pods
	last.Notes = append(about, last.Notes...)
	k.result.Notes = outside
	if err := errors.Join(k.errs...); err != nil {
		return nil, err
	}
	return &k.result, k.result.finish(o)
}

func (k *koordinator) configMap(d *Document) {
	data, _ := d.Object["data"].(map[string]any)
	for _, section := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains(sections, section) {
			k.add(None, "ConfigMap "+d.Name()+" "+section, "Waterline has nothing like this key.")
			continue
		}
		content, err := readJSON(text(data[section]))
		if err != nil {
			k.errs = append(k.errs, fmt.Errorf("%s: %s: %w", d, section, err))
			continue
		}
		k.section(d.String(), section, content)
	}
}

// section reads a section. Most have clusterStrategy and nodeStrategies; others have the cluster's keys at the top, and
// nodeConfigs.
func (k *koordinator) section(from, section string, content map[string]any) {
	cluster, nested := content["clusterStrategy"].(map[string]any)
	nodes, named := list(content["nodeStrategies"]), "nodeStrategies"
	if !nested {
		cluster = maps.Clone(content)
		nodes, named = append(nodes, list(content["nodeConfigs"])...), "nodeConfigs"
		delete(cluster, "nodeConfigs")
		delete(cluster, "nodeStrategies")
	}
	k.cluster[section] = &strategy{from: from, own: cluster, all: cluster}
	k.check(from, section, cluster)
	for i, own := range nodes {
		own = maps.Clone(own)
		where := fmt.Sprintf("%s[%d]", named, i)
		nodes, err := labelSelector(own["nodeSelector"])
		if err != nil {
			k.bad(from, section+" "+where+".nodeSelector", own["nodeSelector"], selector.what)
			continue
		}
		if nodes == nil {
			k.add(None, section+" "+where, "It has no nodeSelector, and so selects no node.")
			continue
		}
		if nodes.MatchLabels[k.canary] != "" {
			k.add(Nearest, section+" "+where, "It is about the nodes of the canary, on which Koordinator is switched off, and "+
				"is left out.")
			continue
		}
		name := text(own["name"])
		delete(own, "name")
		delete(own, "nodeSelector")
		k.check(from, section, own)
		k.nodes[section] = append(k.nodes[section], &strategy{
			from: from, name: name, nodes: nodes, own: own, all: overlay(cluster, own),
		})
	}
}

func overlay(below, above map[string]any) map[string]any {
	joined := map[string]any{}
	maps.Copy(joined, below)
	for name, value := range above {
		inner, isObject := value.(map[string]any)
		under, also := joined[name].(map[string]any)
		if isObject && also {
			joined[name] = overlay(under, inner)
		} else {
			joined[name] = value
		}
	}
	return joined
}

// node reads the labels and annotations of a Node. A label is a selector, so each of its values becomes a strategy.
func (k *koordinator) node(d *Document) {
	for _, where := range []string{"labels", "annotations"} {
		all, _ := at(d.Object, "metadata", where).(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			key := find(k.table, nodeLabels, name)
			switch {
			case key == nil:
			case key.Cover == None:
				k.add(None, nodeLabels+" "+name, key.Note)
			case where == "labels":
				k.ratio(d, name, text(all[name]))
			}
		}
	}
}

// ratio reads a label with a reclaim ratio, such as 0.65.
func (k *koordinator) ratio(d *Document, name, value string) {
	ratio, err := strconv.ParseFloat(value, 64)
	if err != nil || ratio < 0 {
		k.bad(d.String(), "label "+name, value, "a ratio, such as 0.65")
		return
	}
	section, field := nodeLabels, "cpuReclaimThresholdPercent"
	if strings.Contains(name, "memory") {
		section, field = nodeLabels+" memory", "memoryReclaimThresholdPercent"
	}
	for _, known := range k.nodes[section] {
		if string(known.nodes.MatchLabels[name]) == value {
			return
		}
	}
	says := map[string]any{field: ratio * 100}
	k.nodes[section] = append(k.nodes[section], &strategy{
		from: d.String(), name: field[:3] + " " + value, own: nil, all: says,
		nodes: &v1alpha1.LabelSelector{MatchLabels: map[string]v1alpha1.LabelValue{name: v1alpha1.LabelValue(value)}},
	})
}

// fill writes the policy of a choice.
func (k *koordinator) fill(s *v1alpha1.ColocationPolicySpec, c choice) {
	says := map[string]map[string]any{}
	for i, section := range sections {
		if c.of[i] != nil {
			says[section] = c.of[i].all
		}
	}
	policy := text(says[burst]["policy"])
	on := policy != "" && policy != "none"
	s.Protect.Burst = &on
	k.sell(s, says)
	if isOn(says[threshold]["enable"]) {
		for name := range says[threshold] {
			key := find(k.table, threshold, name)
			if key != nil && key.To == "protect.eviction" {
				s.Protect.Eviction = &v1alpha1.EvictionSpec{}
			}
		}
	}
	for _, class := range []string{"lsrClass", "lsClass", "beClass"} {
		if isOn(at(says[qos], class, "memoryQOS", "enable")) {
			s.Protect.Memory = true
		}
	}
}

// sell writes what is sold, and how batch is suppressed.
func (k *koordinator) sell(s *v1alpha1.ColocationPolicySpec, says map[string]map[string]any) {
	c := says[colocation]
	var everywhere map[string]any
	if cluster := k.cluster[colocation]; cluster != nil {
		everywhere = cluster.all
	}
	switch {
	case !isOn(everywhere["enable"]):
		k.add(Nearest, colocation+" enable", "It is not true for the cluster, so nothing is sold on any node. Koordinator "+
			"then ignores what it says of some nodes, and so does this policy.")
		return
	case !isOn(c["enable"]):
		return
	}
	s.CPU, s.Memory = &v1alpha1.CPUSpec{}, &v1alpha1.MemorySpec{}
	cpu, memory := value(c, "cpuReclaimThresholdPercent", 60), value(c, "memoryReclaimThresholdPercent", 65)
	cpu = value(says[nodeLabels], "cpuReclaimThresholdPercent", cpu)
	memory = value(says[nodeLabels+" memory"], "memoryReclaimThresholdPercent", memory)
	for name, n := range map[string]float64{"cpuReclaimThresholdPercent": cpu, "memoryReclaimThresholdPercent": memory} {
		if n < 1 || n > 100 {
			k.add(Nearest, fmt.Sprintf("%s %s: %g", colocation, name, n), "A waterline is from 1% to 100%.")
		}
	}
	s.CPU.Waterline, s.Memory.Waterline = part(cpu, 1, 100), part(memory, 1, 100)
	s.CPU.Method, s.Memory.Method = method(text(c["cpuCalculatePolicy"])), method(text(c["memoryCalculatePolicy"]))
	if _, said := c["midCPUThresholdPercent"]; said || k.mid {
		s.CPU.Mid = part(value(c, "midCPUThresholdPercent", 100), 0, 100)
	}
	if _, said := c["midMemoryThresholdPercent"]; said || k.mid {
		s.Memory.Mid = part(value(c, "midMemoryThresholdPercent", 100), 0, 100)
	}
	t := says[threshold]
	s.CPU.Suppression = v1alpha1.SuppressByArithmetic
	if !isOn(t["enable"]) {
		s.CPU.Suppression = v1alpha1.SuppressByNone
	}
	if least := value(t, "cpuSuppressMinPercent", 0); least > 0 {
		s.CPU.MinBatch = part(least, 0, 100)
	}
	coreSched := text(at(says[qos], "policies", "cpuPolicy")) == "coreSched"
	for _, class := range []string{"lsrClass", "lsClass", "beClass"} {
		if isOn(at(says[qos], class, "cpuQOS", "enable")) && !coreSched {
			s.CPU.BatchClass = v1alpha1.BatchByIdentity
		}
	}
	be, _ := at(says[qos], "beClass", "cpuQOS").(map[string]any)
	if isOn(be["enable"]) && coreSched && value(be, "schedIdle", 0) == 1 {
		s.CPU.BatchClass = v1alpha1.BatchByIdle
	}
}

// method returns the method of selling that comes near to a policy of calculation.
func method(policy string) v1alpha1.SellMethod {
	if policy == "" || policy == "usage" {
		return v1alpha1.SellRealtime
	}
	return v1alpha1.SellPredicted
}

// value returns a number of a tree, or another one if it is not there.
func value(tree map[string]any, name string, otherwise float64) float64 {
	if n, isNumber := tree[name].(float64); isNumber {
		return n
	}
	return otherwise
}

func isOn(value any) bool {
	on, _ := value.(bool)
	return on
}
