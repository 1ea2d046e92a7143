package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/manager/admit"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// whyBatch says whether a pod is batch, and why or why not.
func whyBatch(ctx context.Context, a *apis, pod *corev1.Pod) string {
	var policies v1alpha1.ColocationPolicyList
	if err := list(ctx, a.custom, "colocationpolicies", "", &policies); err != nil {
		return fmt.Sprintf("whether a policy makes it batch is not known: %v", err)
	}
	namespace := &corev1.Namespace{}
	if a.core.Get().Resource("namespaces").Name(pod.Namespace).Do(ctx).Into(namespace) != nil {
		namespace = nil
	}
	return judgeBatch(pod, namespace, policies.Items)
}

// judgeBatch is whyBatch of what was read. The namespace is nil if it could not be read.
func judgeBatch(pod *corev1.Pod, namespace *corev1.Namespace, policies []v1alpha1.ColocationPolicy) string {
	var sources []admit.Source
	var idle []string // policies whose rules do not count
	for _, o := range policies {
		p, err := kube.Policy(&o)
		switch {
		case err != nil:
			idle = append(idle, o.Name+" (its current version is invalid)")
		case len(o.Spec.BatchPods) > 0 && p.Policy.Mode != model.ModeEnforce:
			idle = append(idle, fmt.Sprintf("%s (mode %s)", o.Name, p.Policy.Mode))
		default:
			sources = append(sources, admit.Source{Policy: p, Pods: kube.BatchRules(&o)})
		}
	}
	_, o := admit.Compile(sources, false).Mutate(pod, namespace) // under which names slack is sold, only the agents know
	return sayBatch(pod, &o, idle)
}

// sayBatch puts into words whether a pod is batch. The outcome is that of the same pod if it were created now.
func sayBatch(pod *corev1.Pod, o *admit.Outcome, idle []string) string {
	batch, _ := kube.Pod(pod, "")
	batch = cmp.Or(batch, &model.Pod{}) // nil: the UID is none that an API server assigns
	tier := cmp.Or(batch.Tier, model.TierBatch)
	class, _, _ := kube.Class(pod.Labels)
	slipped := ", but it was admitted without batch requests: the webhook was unreachable, nothing was sold, or the pod " +
		"was not batch yet. The scheduler counts it as online. Delete it, so that its owner creates it again"
	requests := batch.Batch != model.Amount{} || batch.Mid != model.Amount{}
	switch {
	case o.Why == admit.OtherNames:
		return fmt.Sprintf("batch, tier %s, because it requests resources under Koordinator's names. Waterline sells "+
			"under them with the value resourceNames: Koordinator of its chart. Otherwise another system offers them, or the "+
			"pod stays Pending: set that value, or remove the request", tier) + notCounted(idle)
	case o.Why == admit.NothingSold && requests:
		return fmt.Sprintf("batch, tier %s, because it requests batch resources. No policy in mode Enforce sells any now: "+
			"if the pod has no node yet, it stays Pending, unless another system offers them", tier) + notCounted(idle)
	case o.Why == admit.NothingSold:
		return "marked as batch, but no policy in mode Enforce sells CPU or memory, so the webhook leaves such a pod as it " +
			"is, and the scheduler counts it as online. Set mode: Enforce in a policy that has cpu or memory, and then delete " +
			"the pod, so that its owner creates it again" + notCounted(idle)
	}
	if o.Why != admit.ByLabel && batch.Class == model.ClassBE {
		return fmt.Sprintf("batch, tier %s, because it requests batch resources", tier)
	}
	switch o.Why {
	case admit.ByLabel:
		text := fmt.Sprintf("batch, tier %s, by its label %s", tier, v1alpha1.LabelQoS)
		if admit.RequestsNative(pod) {
			text += slipped
		}
		return text
	case admit.ByPolicy:
		return fmt.Sprintf("not batch: policy %s selects it, but the pod is older than that, or the webhook was unreachable "+
			"or nothing was sold when it was created. Delete it, so that its owner creates it again", o.Policy)
	case admit.Mirror:
		return "not batch: it is a static pod, and its manifest on the node would have to say so"
	case admit.Invalid:
		return "it should be batch, and its resources are invalid, so nothing was changed"
	case admit.OtherClass:
		return fmt.Sprintf("not batch: its label says class %s. Only %s: BE makes a pod batch", class, v1alpha1.LabelQoS)
	}
	return "not batch: " + becauseOf[o.Why] + notCounted(idle)
}

// becauseOf says why no rule of a policy makes a pod without a label batch.
var becauseOf = map[admit.Why]string{
	admit.NotSelected: "it has no label " + v1alpha1.LabelQoS + ": BE, and no batchPods rule of a policy in mode " +
		"Enforce selects it; a rule with a percent selects only a part of the owners",
	admit.NotOptedIn: "it has no label " + v1alpha1.LabelQoS + ": BE, and rules of policies do not count in its " +
		"namespace, which lacks the label " + v1alpha1.LabelColocation + ": " + v1alpha1.ColocationEnabled,
	admit.NamespaceUnknown: "it has no label " + v1alpha1.LabelQoS + ": BE. Whether a rule of a policy selects it is " +
		"not known, because its namespace cannot be read",
	admit.Protected: "it belongs to the node or to the cluster itself (a DaemonSet, or a system namespace), and rules " +
		"of policies do not count there. A label " + v1alpha1.LabelQoS + ": BE would",
	admit.Online: "its priority is 8000 or more, and rules of policies do not count for such pods",
}

// notCounted names policies whose rules do not count.
func notCounted(idle []string) string {
	if len(idle) == 0 {
		return ""
	}
	return ". Not counted: " + strings.Join(idle, ", ")
}
