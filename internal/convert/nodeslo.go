package convert

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// sloParts maps the parts of a NodeSLO to the sections that they are computed from.
var sloParts = map[string]string{
	"resourceUsedThresholdWithBE": threshold, "resourceQOSStrategy": qos, "cpuBurstStrategy": burst,
	"systemStrategy": system,
}

// nodeSLOs reads NodeSLOs, if there is no ConfigMap. What most nodes have becomes the cluster's strategy; other nodes
// are named by their host names.
func (k *koordinator) nodeSLOs() {
	if len(k.slos) == 0 {
		return
	}
	if len(k.cluster) > 0 {
		k.add(Nearest, "NodeSLO", "They are computed from the ConfigMap, which is used instead.")
		return
	}
	k.add(None, "NodeSLO", "They do not say what is sold. Add the ConfigMap slo-controller-config.")
	byContent := map[string][]*Document{}
	for i := range k.slos {
		encoded, err := json.Marshal(k.slos[i].Object["spec"])
		if err != nil {
			k.errs = append(k.errs, fmt.Errorf("%s: spec: %w", &k.slos[i], err))
		}
		byContent[string(encoded)] = append(byContent[string(encoded)], &k.slos[i])
	}
	contents := slices.SortedFunc(maps.Keys(byContent), func(a, b string) int {
		return cmp.Or(len(byContent[b])-len(byContent[a]), strings.Compare(a, b))
	})
	for i, content := range contents {
		same := byContent[content]
		spec, _ := same[0].Object["spec"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(spec)) {
			section := sloParts[name]
			own, _ := spec[name].(map[string]any)
			switch {
			case name == "hostApplications":
				section, own = hostApps, map[string]any{"applications": spec[name]}
			case section == "":
				k.add(None, "NodeSLO "+name, "Extensions of others have no counterpart.")
				continue
			}
			k.check(same[0].String(), section, own)
			if i == 0 {
				k.cluster[section] = &strategy{from: same[0].String(), own: own, all: own}
				continue
			}
			const most = 64 // values of a selector
			for chunk := range slices.Chunk(same, most) {
				nodes := &v1alpha1.LabelSelector{MatchExpressions: []v1alpha1.LabelRequirement{
					{Key: "kubernetes.io/hostname", Operator: "In"},
				}}
				for _, d := range chunk {
					nodes.MatchExpressions[0].Values = append(nodes.MatchExpressions[0].Values, v1alpha1.LabelValue(d.Name()))
				}
				k.nodes[section] = append(k.nodes[section], &strategy{
					from: same[0].String(), name: chunk[0].Name(), nodes: nodes, own: own, all: own,
				})
			}
		}
	}
}
