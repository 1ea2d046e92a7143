// Package event writes the manager's events.
package event

import (
	"context"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// Warn writes a warning about an object. A second event with the same key is not written, whichever replica
// leads. In a terminating namespace no event is needed.
func Warn(
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
