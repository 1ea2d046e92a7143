package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// writeEvent writes a warning about an object. A second event with the same key is not written, whichever replica
// leads. In a terminating namespace no event is needed.
func writeEvent(
	ctx context.Context, core rest.Interface, identity string, about corev1.ObjectReference, reason, message, key string,
) error {
	sum := fnv.New64a()
	fmt.Fprint(sum, key)
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: about.Namespace, Name: fmt.Sprintf("%.200s.waterline.%016x", about.Name, sum.Sum64()),
		},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "waterline-manager"}, ReportingController: v1alpha1.Group + "/manager",
		ReportingInstance: identity,
	}
	err := core.Post().Namespace(about.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("writing event %s for %s %s/%s: %w", reason, about.Kind, about.Namespace, about.Name, err)
	}
	return nil
}

// applyCondition sets one condition of a node's report by server-side apply, without naming any other field. Each owner
// has one condition, because the API server removes conditions that their owner does not name.
func applyCondition(ctx context.Context, custom rest.Interface, node, owner string, c metav1.Condition) error {
	c.LastTransitionTime = metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion, "kind": "NodeReport", "metadata": map[string]any{"name": node},
		"status": map[string]any{"conditions": []metav1.Condition{c}},
	})
	if err != nil {
		return fmt.Errorf("encoding condition %s of the report of node %s: %w", c.Type, node, err)
	}
	err = custom.Patch(types.ApplyPatchType).Resource("nodereports").Name(node).SubResource("status").
		Param("fieldManager", owner).Param("force", "true").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("setting condition %s of the report of node %s: %w", c.Type, node, err)
	}
	return nil
}
