// Package admit makes batch pods ask for batch resources when they are created. A pod is batch when its label says so,
// or when a policy's rule selects it in a namespace that opted in. In doubt a pod is none, and is left exactly as it
// came.
//
// What is done to a batch pod is [Rules.Mutate], which works on values; [Webhook] carries it to the API server. It is
// called twice for a pod: in between, the API server's own admission plugins run again, and those know native CPU and
// memory. A LimitRange adds defaults for what the first call took away, and the plugin Priority fills in what belongs
// to the class that it chose. So Mutate takes defaults away again, and what it did once it does not do twice.
package admit

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// Rules says which pods are batch, and by which names they ask for resources. The zero value goes by labels alone.
type Rules struct {
	Pods        []Rule // in any order
	Koordinator bool   // batch resources have Koordinator's names, as where the policy says compat.koordinator
}

// Why says why a pod was treated as it was.
type Why string

// Why a pod is batch, or is not.
const (
	ByLabel          Why = "ByLabel"          // batch: its label says so
	ByPolicy         Why = "ByPolicy"         // batch: a policy's rule selects it
	OtherClass       Why = "OtherClass"       // not batch: its label names another class, or none that there is
	NotSelected      Why = "NotSelected"      // not batch: it has no label, and no rule selects it
	NotOptedIn       Why = "NotOptedIn"       // no rule counts: its namespace did not opt in
	NamespaceUnknown Why = "NamespaceUnknown" // no rule counts: its namespace could not be looked up
	Protected        Why = "Protected"        // no rule counts: it belongs to the node or to the cluster itself
	Online           Why = "Online"           // no rule counts: its priority is above all batch
	Mirror           Why = "Mirror"           // left alone: what runs is a file on the node, not this object
	// left alone: the API server refuses what it asks for, in words that fit the pod as it was written
	Invalid Why = "Invalid"
)

// Outcome is what was done to a pod.
type Outcome struct {
	Changed  bool
	Why      Why
	Policy   string   // that selects it, for ByPolicy
	Warnings []string // for whoever creates the pod: each names the key, the value and what to write instead
}

// Mutate returns the pod as it should be created, and what was done to it. The namespace is the pod's, nil where it
// could not be looked up. A pod that is not batch is returned as it came; the pod that is passed is never changed.
func (r Rules) Mutate(pod *corev1.Pod, namespace *corev1.Namespace) (*corev1.Pod, Outcome) {
	class, said, notices := kube.Class(pod.Labels)
	o := Outcome{Warnings: warnings(append(notices, kube.ParseAnnotations(pod.Annotations).Notices...))}
	var tier model.Tier
	switch {
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		o.Why = Mirror
	case class == model.ClassBE:
		o.Why, tier = ByLabel, model.TierBatch
	case said:
		o.Why = OtherClass
	default:
		var rule Rule
		rule, o.Why = r.choose(pod, namespace)
		o.Policy, tier = rule.Policy, rule.Tier
	}
	if o.Why != ByLabel && o.Why != ByPolicy {
		return pod, o
	}
	m := mutation{pod: pod.DeepCopy(), out: &o}
	fill(m.pod)
	if invalid(m.pod) {
		o.Why = Invalid
		return pod, o
	}
	if o.Why == ByPolicy {
		m.setLabel(v1alpha1.LabelQoS, string(model.ClassBE))
	}
	m.convert(r.names(m.setPriority(tier)))
	return m.pod, o
}

// mutation is a pod while it is changed.
type mutation struct {
	pod *corev1.Pod // ours to change
	out *Outcome
}

func (m *mutation) setLabel(key, value string) {
	if old, found := m.pod.Labels[key]; found && old == value {
		return
	}
	if m.pod.Labels == nil {
		m.pod.Labels = map[string]string{}
	}
	m.pod.Labels[key] = value
	m.out.Changed = true
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
		if m.pod.Annotations == nil {
			m.pod.Annotations = map[string]string{}
		}
		m.pod.Annotations[key] = value
	}
	m.out.Changed = true
}

func (m *mutation) warn(format string, args ...any) {
	m.out.Warnings = append(m.out.Warnings, fmt.Sprintf(format, args...))
}

// warnings writes out what is wrong with a pod's labels and annotations.
func warnings(notices []model.Reason) []string {
	var all []string
	for _, n := range notices {
		all = append(all, n.Details())
	}
	return all
}

// Keep returns the new version of a pod with the annotation that Mutate wrote as it was: it is written once, and what
// it says decides about limits.
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
	m.warn("%s is written when the pod is created and stays as it was", key)
	return m.pod, o
}
