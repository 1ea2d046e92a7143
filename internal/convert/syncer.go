package convert

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// The inputs of [CPUShareSyncer].
const (
	syncer        = "DaemonSet"
	kubeletConfig = "KubeletConfiguration"
	annotations   = "annotations"
)

// The bounds of a weight, in shares.
const minShares, maxShares = 2, 262144

// CPUShareSyncerKeys returns the table of what sets up cpu-share-syncer: its DaemonSet, the kubelet's configuration,
// and its annotation. What the flags of its program mean is not published.
func CPUShareSyncerKeys() []Key {
	return []Key{
		{annotations, []string{"iqiyi.com/cpu-share"}, Equal, "weight.max", "", anything},
		{kubeletConfig, []string{"cpuCFSQuota"}, Nearest, "weight.quota",
			"`false` is `Unlimited`, for pods with a weight only. Set it back to true when all nodes run Waterline.", boolean},
		{syncer, []string{"nodeSelector.*"}, Equal, "nodeSelector", "", words},
		{syncer, []string{"affinity"}, Nearest, "nodeSelector",
			"A required node affinity with one term becomes a selector; Gt, Lt and preferences do not.", anything},
		{syncer, []string{"tolerations"}, None, "",
			"The chart's agent tolerates all taints: see its value agent.tolerations.", anything},
		{syncer, []string{"args"}, None, "",
			"Weights follow annotations and foreign writes within milliseconds. There is no period and no path to set.",
			anything},
	}
}

// CPUShareSyncer converts cpu-share-syncer's DaemonSet and the kubelet's configuration. It checks the annotation of
// pods and of workloads' templates. The error lists everything that cannot be used.
func CPUShareSyncer(documents []Document, o Options) (*Result, error) {
	n := notes{table: CPUShareSyncerKeys()}
	most := int64(maxShares)
	p := Policy{Name: "cpu-share-syncer"}
	// It writes to the pods' own cgroups, with the quotas of all pods switched off.
	p.Spec.Weight = v1alpha1.WeightSpec{Max: &most, Quota: v1alpha1.QuotaUnlimited}
	highest := int64(0)
	for i := range documents {
		d := &documents[i]
		switch {
		case d.Kind() == syncer && strings.Contains(d.Name()+image(d), "cpu-share-syncer"):
			nodes, ok := placement(&n, d, o.labelKey())
			if joined, possible := both(p.Spec.NodeSelector, nodes); ok && possible {
				p.Spec.NodeSelector = joined
			}
		case d.Kind() == kubeletConfig:
			quota, said := d.Object["cpuCFSQuota"]
			if said {
				n.take(d.String(), kubeletConfig, map[string]any{"cpuCFSQuota": quota})
			}
			if on, isBool := quota.(bool); isBool && on {
				p.Spec.Weight.Quota = "" // quotas are in force today
			}
		default:
			highest = max(highest, n.weights(d))
		}
	}
	if err := errors.Join(n.errs...); err != nil {
		return nil, err
	}
	r := Result{Needs: []string{
		"Stop the DaemonSet of cpu-share-syncer before a node enforces: two writers fight. waterline doctor names it.",
		"With scope Node, the default, a weight counts against pods of every QoS class. cpu-share-syncer counts it among " +
			"pods of the same class: that is weight.scope: Class.",
	}}
	if highest > 0 {
		r.Needs = append(r.Needs, fmt.Sprintf("The highest weight that these pods ask for is %d. The field weight.max "+
			"allows up to %d; lower it to that.", highest, maxShares))
	}
	p.Notes = n.all
	r.Policies = []Policy{p}
	return &r, r.finish(o)
}

func image(d *Document) string {
	for _, c := range list(at(d.Object, "spec", "template", "spec", "containers")) {
		if s := text(c["image"]); strings.Contains(s, "cpu-share-syncer") {
			return s
		}
	}
	return ""
}

// placement returns the nodes on which a DaemonSet runs, and takes its other settings. A condition about the canary's
// label keeps the DaemonSet off the canary, and does not count.
func placement(n *notes, d *Document, canary string) (*v1alpha1.LabelSelector, bool) {
	pod, _ := at(d.Object, "spec", "template", "spec").(map[string]any)
	for _, f := range flagsOf(d) {
		n.add(None, syncer+" --"+f.name+": "+excerpt(f.value), find(n.table, syncer, "args").Note)
	}
	if pod["tolerations"] != nil {
		n.add(None, syncer+" tolerations", find(n.table, syncer, "tolerations").Note)
	}
	nodes, err := labelSelector(map[string]any{"matchLabels": pod["nodeSelector"]})
	if err != nil {
		n.bad(d.String(), syncer+" nodeSelector", pod["nodeSelector"], "labels with their values")
		return nil, false
	}
	if pod["affinity"] != nil {
		n.add(Nearest, syncer+" affinity", find(n.table, syncer, "affinity").sentence())
	}
	terms := list(at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
		"nodeSelectorTerms"))
	if len(terms) == 1 {
		for _, e := range list(terms[0]["matchExpressions"]) {
			if !slices.Contains([]string{"In", "NotIn", "Exists", "DoesNotExist"}, text(e["operator"])) {
				continue // noted above
			}
			if canary != "" && text(e["key"]) == canary {
				continue
			}
			term, err := labelSelector(map[string]any{"matchExpressions": []any{e}})
			if err != nil {
				n.bad(d.String(), syncer+" affinity", e, "In, NotIn, Exists or DoesNotExist with their values")
				continue
			}
			nodes.MatchExpressions = append(nodes.MatchExpressions, term.MatchExpressions...)
		}
	}
	if len(requirements(nodes)) == 0 {
		return nil, true
	}
	return nodes, true
}

// templates are the paths of metadata in pods and in workloads.
var templates = [][]string{
	{"metadata"}, {"spec", "template", "metadata"}, {"spec", "jobTemplate", "spec", "template", "metadata"},
}

// weights checks the annotations of a pod or of a workload's template, and returns the highest weight.
func (n *notes) weights(d *Document) int64 {
	const key = v1alpha1.AnnotationCPUShareAlias
	highest := int64(0)
	for _, path := range templates {
		value := at(d.Object, append(slices.Clone(path), annotations, key)...)
		if value == nil {
			continue
		}
		shares, err := strconv.ParseInt(text(value), 10, 64)
		if err != nil || shares < minShares || shares > maxShares {
			n.bad(d.String(), "annotation "+key, value, fmt.Sprintf("an integer from %d to %d as a text, where 1024 is one CPU",
				minShares, maxShares))
			continue
		}
		highest = max(highest, shares)
	}
	return highest
}
