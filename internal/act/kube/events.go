// Package kube is the agent's only writer to the Kubernetes API.
package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// Events writes notices as events on their pod or node.
type Events struct {
	client   *rest.RESTClient
	nodeName string
}

// NewEvents returns a writer for the agent of this node.
func NewEvents(client *rest.RESTClient, nodeName string) *Events {
	return &Events{client: client, nodeName: nodeName}
}

// Send writes one notice as a Warning event. Its name follows from its content, so the same notice about the same pod
// is one event however often it is sent, also after a restart.
func (e *Events) Send(ctx context.Context, n model.Notice) error {
	now := metav1.Time{Time: time.Now()}
	about := corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: n.Namespace, Name: n.Name, UID: types.UID(n.UID),
	}
	if n.UID == "" {
		about = corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: e.nodeName, UID: types.UID(e.nodeName)}
		n.Namespace = metav1.NamespaceDefault
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, about.UID, n.Reason)
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: n.Namespace,
			Name:      fmt.Sprintf("%.200s.waterline.%016x", about.Name, sum.Sum64()), // 253 at most
		},
		InvolvedObject:      about,
		Type:                corev1.EventTypeWarning,
		Reason:              string(n.Reason.Code),
		Message:             n.Reason.String(),
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
		Source:              corev1.EventSource{Component: "waterline-agent", Host: e.nodeName},
		ReportingController: v1alpha1.Group + "/agent",
		ReportingInstance:   e.nodeName,
	}
	err := e.client.Post().Namespace(n.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing event %s for %s/%s: %w", event.Reason, n.Namespace, n.Name, err)
	}
	return nil
}
