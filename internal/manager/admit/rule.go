package admit

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Rule selects unlabelled pods to admit as batch, in namespaces that opted in by [v1alpha1.LabelColocation].
type Rule struct {
	Policy     string          // name of the policy that has the rule
	Priority   int64           // of rules that select a pod the highest priority counts, then the first policy by name
	Selector   labels.Selector // by the pod's labels; nil selects none
	Namespaces labels.Selector // by the labels of the pod's namespace; nil selects all
	Percent    int             // of the owners of such pods whose pods are batch, 0 to 100
	Tier       model.Tier      // of pods without a priority of their own; "": batch
}

// selects reports whether the rule selects a pod of a namespace. As with nodes in a policy's roll-out, an owner that is
// not in yet counts as not selected.
func (r Rule) selects(pod *corev1.Pod, namespace *corev1.Namespace) bool {
	return r.Selector != nil && r.Selector.Matches(labels.Set(pod.Labels)) &&
		(r.Namespaces == nil || r.Namespaces.Matches(labels.Set(namespace.Labels))) &&
		threshold(kube.Owner(pod), r.Policy) <= r.Percent
}

// threshold is from which percentage on the pods of an owner are in: 1 to 100. All pods of one owner are in or out, in
// each replica of the manager and for ever, and each policy begins with other owners.
//
// It is 1 + ⌊100 × h / 2⁶⁴⌋, where h is the first eight bytes of the SHA-256 of "owner/policy", as a big-endian number.
func threshold(owner, policy string) int {
	sum := sha256.Sum256([]byte(owner + "/" + policy))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), 100)
	return int(place) + 1
}

// choose finds the rule that makes a batch pod of a pod without a label, and says ByPolicy; or why there is none.
func (r Rules) choose(pod *corev1.Pod, namespace *corev1.Namespace) (Rule, Why) {
	switch {
	case len(r.Pods) == 0:
		return Rule{}, NotSelected
	case protected(pod):
		return Rule{}, Protected
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= v1alpha1.PriorityMid+v1alpha1.PriorityBand:
		return Rule{}, Online
	case namespace == nil || namespace.Name != pod.Namespace:
		return Rule{}, NamespaceUnknown
	case namespace.Labels[v1alpha1.LabelColocation] != v1alpha1.ColocationEnabled:
		return Rule{}, NotOptedIn
	}
	var best *Rule
	for i := range r.Pods {
		rule := &r.Pods[i]
		if (best == nil || before(rule, best)) && rule.selects(pod, namespace) {
			best = rule
		}
	}
	if best == nil {
		return Rule{}, NotSelected
	}
	return *best, ByPolicy
}

// before reports whether a rule ranks higher than another.
func before(a, b *Rule) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Policy, b.Policy)) < 0
}

// systemNamespaces hold what runs the cluster. A policy is about tenants.
var systemNamespaces = []string{
	metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, v1alpha1.Namespace,
}

// protected reports whether a pod runs the cluster or its node, which no policy may make batch: what a selector catches
// by mistake must not be a DNS server, a CNI daemon or ourselves. A label on the pod can.
func protected(pod *corev1.Pod) bool {
	by := metav1.GetControllerOfNoCopy(pod)
	return slices.Contains(systemNamespaces, pod.Namespace) || by != nil && (by.Kind == "DaemonSet" || by.Kind == "Node")
}
