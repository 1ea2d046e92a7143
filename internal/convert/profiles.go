package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// podRules are the rules for pods, from profiles.
type podRules struct {
	batch      []v1alpha1.BatchPodsSpec
	defaults   []v1alpha1.PodDefaultsSpec
	privileges []v1alpha1.PrivilegeSpec
}

// partOf reads a percentage, which is a number or a text.
func partOf(v any) (int32, error) {
	s, isText := strings.CutSuffix(text(v), "%")
	if n, isNumber := v.(float64); isNumber {
		s, isText = strconv.FormatFloat(n, 'f', -1, 64), true
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || !isText || n < 0 || n > 100 {
		return 0, fmt.Errorf("%s is no percentage", excerpt(v))
	}
	return int32(n), nil
}

// readProfiles converts ClusterColocationProfiles, by their names, in which order Koordinator applies them.
func (k *koordinator) readProfiles() podRules {
	var rules podRules
	slices.SortStableFunc(k.profiles, func(a, b Document) int { return strings.Compare(a.Name(), b.Name()) })
	for i := range k.profiles {
		d := &k.profiles[i]
		spec, _ := d.Object["spec"].(map[string]any)
		before := len(k.errs)
		k.take(d.String(), profile, spec)
		if len(k.errs) > before {
			continue
		}
		pods, _ := labelSelector(spec["selector"])
		namespaces, _ := labelSelector(spec["namespaceSelector"])
		pods = cmp.Or(pods, &v1alpha1.LabelSelector{})
		switch class := text(spec["qosClass"]); class {
		case "BE":
			rule := v1alpha1.BatchPodsSpec{Selector: pods, NamespaceSelector: namespaces}
			if n, err := partOf(spec["probability"]); err == nil && n != 100 {
				rule.Owners = fmt.Sprintf("%d%%", n)
			}
			if text(spec["priorityClassName"]) == "koord-mid" {
				rule.Tier, k.mid = v1alpha1.TierMid, true
			}
			rules.batch = appendNew(rules.batch, rule)
			k.optIn(namespaces)
		case "LSE", "LSR":
			mode := map[string]v1alpha1.CPUManagerMode{"LSE": v1alpha1.CPUExclusive, "LSR": v1alpha1.CPUShare}[class]
			rules.defaults = appendNew(rules.defaults, v1alpha1.PodDefaultsSpec{
				Selector: pods, NamespaceSelector: namespaces, CPUManager: mode,
			})
			k.allow(&rules, namespaces, class)
		case "SYSTEM":
			k.allow(&rules, namespaces, class)
			k.need("Label the templates of the pods that profile " + d.Name() + " selects: waterline.io/qos: SYSTEM.")
		case "":
			k.add(None, profile+" "+d.Name(), "It names no qosClass, so its pods stay as they are.")
		}
	}
	k.need("Pods with the label koordinator.sh/qosClass keep their class. LSE, LSR and SYSTEM need a privilege of their " +
		"namespace: see the field privileges in docs/policy.md.")
	k.need("Priority classes: koord-prod is waterline-prod, koord-mid is waterline-mid, koord-batch and koord-free are " +
		"waterline-batch. Pods with koord-mid or koord-batch keep them where they request Koordinator's resource names.")
	return rules
}

// optIn notes that rules for batch pods count only in labelled namespaces.
func (k *koordinator) optIn(namespaces *v1alpha1.LabelSelector) {
	var terms []string
	if namespaces != nil {
		for _, key := range slices.Sorted(maps.Keys(namespaces.MatchLabels)) {
			terms = append(terms, key+"="+string(namespaces.MatchLabels[key]))
		}
	}
	if len(terms) == 0 || len(namespaces.MatchExpressions) > 0 {
		k.need("Label each namespace in which rules of batchPods may make pods batch: " +
			"kubectl label namespace NAME waterline.io/colocation=enabled")
		return
	}
	k.need("kubectl label namespaces -l " + strings.Join(terms, ",") + " waterline.io/colocation=enabled")
}

func (k *koordinator) allow(rules *podRules, namespaces *v1alpha1.LabelSelector, class string) {
	rules.privileges = appendNew(rules.privileges, v1alpha1.PrivilegeSpec{
		NamespaceSelector: cmp.Or(namespaces, &v1alpha1.LabelSelector{}),
		Allow:             []v1alpha1.PrivilegeName{v1alpha1.PrivilegeName(class)},
	})
}

func (k *koordinator) need(sentence string) {
	if !slices.Contains(k.result.Needs, sentence) {
		k.result.Needs = append(k.result.Needs, sentence)
	}
}

// apply adds the rules for pods. One policy governs a node as a whole, so each has those that the agent follows. Rules
// for batch pods count for the whole cluster, and stand in the last policy.
func (k *koordinator) apply(rules podRules) {
	for i := range k.result.Policies {
		s := &k.result.Policies[i].Spec
		s.PodDefaults, s.Privileges = rules.defaults, rules.privileges
		if i == len(k.result.Policies)-1 {
			s.BatchPods = rules.batch
		}
	}
}
