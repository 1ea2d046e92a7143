// Package admit makes batch pods request batch resources when they are created. A pod is batch if its label says so, or
// if a rule of a policy selects it in a namespace that opted in. In doubt a pod is not batch, and stays exactly as it
// was.
//
// [Rules.Mutate] changes a batch pod, and works on values; [Webhook] connects it to the API server. It is called twice
// for a pod: in between, the API server's own admission plugins run again, and those know native CPU and memory. A
// LimitRange adds defaults for the resources that the first call removed, and the plugin Priority fills in the fields
// of the class that Mutate chose. So Mutate removes defaults again, and a second call changes nothing else.
package admit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Rules select batch pods, and have the names of the resources that these may request. The zero value changes no pod:
// where nothing is sold, a batch pod would never be placed.
type Rules struct {
	Pods        []Rule // in any order
	Ours        bool   // something is sold under Waterline's names
	Koordinator bool   // something is sold under Koordinator's names
}

// Why is the reason why a pod is batch, or is not.
type Why string

// The reasons.
const (
	ByLabel          Why = "ByLabel"          // batch: by its label
	ByPolicy         Why = "ByPolicy"         // batch: a rule of a policy selects it
	OtherClass       Why = "OtherClass"       // not batch: its label names another class, or an unknown one
	NotSelected      Why = "NotSelected"      // not batch: it has no label, and no rule selects it
	NotOptedIn       Why = "NotOptedIn"       // no rule counts: its namespace did not opt in
	NamespaceUnknown Why = "NamespaceUnknown" // no rule counts: its namespace could not be read
	Protected        Why = "Protected"        // no rule counts: it belongs to the node or to the cluster itself
	Online           Why = "Online"           // no rule counts: its priority is that of online pods
	NothingSold      Why = "NothingSold"      // unchanged: no enforcing policy sells CPU or memory
	OtherNames       Why = "OtherNames"       // its requests stay: nothing is sold under their names
	Mirror           Why = "Mirror"           // unchanged: a file on the node defines the pod, not this object
	Invalid          Why = "Invalid"          // unchanged: the API server refuses it, with an error about the original
)

// Outcome is the result of [Rules.Mutate] or [Keep].
type Outcome struct {
	Changed  bool
	Why      Why
	Policy   string   // the policy whose rule selects the pod, for ByPolicy
	Warnings []string // for the creator of the pod: each names the key, the value and what to write instead
}

// Mutate returns the pod as it should be created, and the outcome. The namespace is the pod's, nil if it could not be
// read. A pod that is not batch is returned unchanged. The pod that is passed is never changed.
func (r Rules) Mutate(pod *corev1.Pod, namespace *corev1.Namespace) (*corev1.Pod, Outcome) {
	class, labelled, notices := kube.Class(pod.Labels)
	var o Outcome
	for _, n := range append(notices, kube.ParseAnnotations(pod.Annotations).Notices...) {
		o.Warnings = append(o.Warnings, n.Details())
	}
	var tier model.Tier
	switch {
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		o.Why = Mirror
	case class == model.ClassBE:
		o.Why, tier = ByLabel, model.TierBatch
	case labelled:
		o.Why = OtherClass
	default:
		var rule Rule
		rule, o.Why = r.choose(pod, namespace)
		o.Policy, tier = rule.Policy, rule.Tier
	}
	if o.Why != ByLabel && o.Why != ByPolicy {
		return pod, o
	}
	koordinator, sold := r.market(pod)
	if !sold {
		o.Why = NothingSold
		if r.Ours || r.Koordinator {
			o.Why = OtherNames
		}
		o.Warnings = append(o.Warnings, unsold(pod, o.Why)...)
		if o.Why == NothingSold || pod.Labels[v1alpha1.LabelQoS] == "" {
			return pod, o // another system may have meant the pod for itself
		}
		m := mutation{pod: pod.DeepCopy(), out: &o}
		m.setPriority(tier, false)
		return m.pod, o
	}
	m := mutation{pod: pod.DeepCopy(), out: &o}
	fill(m.pod)
	if invalid(m.pod) {
		o.Why = Invalid
		return pod, o
	}
	if o.Why == ByPolicy {
		metav1.SetMetaDataLabel(&m.pod.ObjectMeta, v1alpha1.LabelQoS, string(model.ClassBE))
		o.Changed = true
	}
	m.convert(namesOf(m.setPriority(tier, koordinator), koordinator))
	return m.pod, o
}

// mutation is a pod that is being changed.
type mutation struct {
	pod *corev1.Pod // a copy of our own
	out *Outcome
}

// setAnnotation sets an annotation, or removes it where the value is "".
func (m *mutation) setAnnotation(key, value string) {
	old, found := m.pod.Annotations[key]
	switch {
	case found && old == value, !found && value == "":
		return
	case value == "":
		delete(m.pod.Annotations, key)
	default:
		metav1.SetMetaDataAnnotation(&m.pod.ObjectMeta, key, value)
	}
	m.out.Changed = true
}

func (m *mutation) warn(format string, args ...any) {
	m.out.Warnings = append(m.out.Warnings, fmt.Sprintf(format, args...))
}

// unsold returns the warning for a batch pod that stays as it is. A pod without Waterline's own label has none: it
// may be meant for another system.
func unsold(pod *corev1.Pod, why Why) []string {
	switch {
	case pod.Labels[v1alpha1.LabelQoS] == "":
		return nil
	case why == OtherNames:
		return []string{fmt.Sprintf("%s: Waterline sells nothing under this name, so the request stays as it is; "+
			"remove the request, or set resourceNames: Koordinator in Waterline's chart", koordinators(pod))}
	}
	return []string{fmt.Sprintf("%s: %s: no policy in mode Enforce sells CPU or memory, so the pod stays an online pod; "+
		"set mode: Enforce in a policy that has cpu or memory, and create the pod again",
		v1alpha1.LabelQoS, pod.Labels[v1alpha1.LabelQoS])}
}

// Keep returns the new version of a pod with the annotation of the old one: Mutate writes the annotation once, and
// limits depend on it.
func Keep(before, now *corev1.Pod) (*corev1.Pod, Outcome) {
	const key = v1alpha1.AnnotationBatchResources
	old, had := before.Annotations[key]
	value, has := now.Annotations[key]
	if had == has && old == value {
		return now, Outcome{}
	}
	var o Outcome
	m := mutation{pod: now.DeepCopy(), out: &o}
	m.setAnnotation(key, old)
	m.warn("%s is written when the pod is created, and cannot be changed: its old value stays", key)
	return m.pod, o
}
