// Package kube is the agent's only writer to the Kubernetes API. The manager shares what both write.
package kube

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Reporter is the program that an event comes from.
type Reporter struct{ program, instance, host string }

// Manager returns the manager as a reporter; identity is that of the replica.
func Manager(identity string) Reporter { return Reporter{"manager", identity, ""} }

// Warn writes a warning about an object. Its name follows from the key, so a second event about the object with the
// same key is not written, also after a restart or by another replica. In a terminating namespace no event is needed.
func Warn(
	ctx context.Context, core rest.Interface, by Reporter, about corev1.ObjectReference, reason, message, key string,
) error {
	sum := fnv.New64a()
	fmt.Fprint(sum, key)
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),               // of an object without one
			Name:      fmt.Sprintf("%.200s.waterline.%016x", about.Name, sum.Sum64()), // 253 at most
		},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              corev1.EventSource{Component: "waterline-" + by.program, Host: by.host},
		ReportingController: v1alpha1.Group + "/" + by.program, ReportingInstance: by.instance,
	}
	err := core.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("writing event %s for %s %s/%s: %w", reason, about.Kind, about.Namespace, about.Name, err)
	}
	return nil
}

// Events writes notices as events on their pod or node.
type Events struct {
	client   *rest.RESTClient
	nodeName string
}

// NewEvents returns a writer for the agent of this node.
func NewEvents(client *rest.RESTClient, nodeName string) *Events {
	return &Events{client: client, nodeName: nodeName}
}

// Send writes one notice. The same notice about the same pod is one event, however often it is sent.
func (e *Events) Send(ctx context.Context, n model.Notice) error {
	about := corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: n.Namespace, Name: n.Name, UID: types.UID(n.UID),
	}
	if n.UID == "" {
		about = corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: e.nodeName, UID: types.UID(e.nodeName)}
	}
	text := n.Reason.String()
	by := Reporter{"agent", e.nodeName, e.nodeName}
	return Warn(ctx, e.client, by, about, string(n.Reason.Code), text, string(about.UID)+text)
}
