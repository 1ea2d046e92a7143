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

// Rule selects unlabelled pods to be admitted as batch, in namespaces that opted in by [v1alpha1.LabelColocation].
type Rule struct {
	Policy     string          // the name of the policy that has the rule
	Priority   int64           // of the rules that select a pod, the highest counts, then the first by the policy's name
	Selector   labels.Selector // of the pod's labels; nil selects no pod
	Namespaces labels.Selector // of the labels of its namespace; nil selects every namespace
	Percent    int             // of the owners of such pods, whose pods are batch, 0 to 100
	Tier       model.Tier      // for pods without a priority of their own; "": batch
}

// selects reports whether the rule selects a pod of a namespace. As with nodes in a policy's roll-out, an owner that is
// not in yet counts as not selected.
func (r Rule) selects(pod *corev1.Pod, namespace *corev1.Namespace) bool {
	return r.Selector != nil && r.Selector.Matches(labels.Set(pod.Labels)) &&
		(r.Namespaces == nil || r.Namespaces.Matches(labels.Set(namespace.Labels))) &&
		threshold(kube.Owner(pod), r.Policy) <= r.Percent
}

// threshold returns the percentage from which on the pods of an owner are in: 1 to 100. All pods of an owner are in or
// out, in each replica of the manager and for ever, and each policy begins with other owners.
//
// The threshold is 1 + ⌊100 × h / 2⁶⁴⌋, where h is the first eight bytes of the SHA-256 of "owner/policy", as a
// big-endian number.
func threshold(owner, policy string) int {
	sum := sha256.Sum256([]byte(owner + "/" + policy))
	place, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), 100)
	return int(place) + 1
}

// choose returns the rule that makes an unlabelled pod batch, and ByPolicy; or no rule, and the reason.
func (r Rules) choose(pod *corev1.Pod, namespace *corev1.Namespace) (Rule, Why) {
	switch {
	case len(r.Pods) == 0:
		return Rule{}, NotSelected
	case protected(pod):
		return Rule{}, Protected
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= v1alpha1.PriorityOnline:
		return Rule{}, Online
	case namespace == nil || namespace.Name != pod.Namespace:
		return Rule{}, NamespaceUnknown
	case namespace.Labels[v1alpha1.LabelColocation] != v1alpha1.ColocationEnabled:
		return Rule{}, NotOptedIn
	}
	var best *Rule
	for i := range r.Pods {
		rule := &r.Pods[i]
		if (best == nil || rank(rule, best) < 0) && rule.selects(pod, namespace) {
			best = rule
		}
	}
	if best == nil {
		return Rule{}, NotSelected
	}
	return *best, ByPolicy
}

// rank orders rules, the one that counts first.
func rank(a, b *Rule) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Policy, b.Policy))
}

// systemNamespaces hold the workloads of the cluster itself. Policies are about tenants.
var systemNamespaces = []string{
	metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease, v1alpha1.Namespace,
}

// protected reports whether a pod runs the cluster or its node. No policy may make such a pod batch: a selector that is
// too wide must not catch a DNS server, a CNI daemon or Waterline. A label on the pod can.
func protected(pod *corev1.Pod) bool {
	by := metav1.GetControllerOfNoCopy(pod)
	return slices.Contains(systemNamespaces, pod.Namespace) || by != nil && (by.Kind == "DaemonSet" || by.Kind == "Node")
}
