package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// fieldManager owns what the controller applies.
const fieldManager = "waterline-manager-pools"

// apiWithin bounds one request to the API server. One that hangs must not delay what has to stop.
const apiWithin = 10 * time.Second

// prepare makes the objects that the pods need: the Service that names them, their configuration, and the
// PodDisruptionBudget that keeps others from evicting them.
func (r *round) prepare(ctx context.Context) {
	site := yarnSite(r.p.Spec.YARN)
	r.applyObjects(ctx, map[string]string{"yarn-site.xml": site}, nmPort)
}

// applyObjects makes the objects that the pods need, with these files of their configuration, and a port of theirs.
func (r *round) applyObjects(ctx context.Context, files map[string]string, port int32) {
	k, p := r.k, r.p
	from := fmt.Sprintf("%s %d %s", p.UID, p.Generation, files)
	if k.applied == from {
		return
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelPool: p.Name},
			OwnerReferences: []metav1.OwnerReference{owner(p)},
		}
	}
	selector := map[string]string{v1alpha1.LabelPool: p.Name}
	// Pods without a controller that Kubernetes knows can only have a minimum.
	all := intstr.FromInt32(math.MaxInt32)
	for _, o := range []struct {
		client   rest.Interface
		resource string
		name     string
		object   any
	}{
		{k.c.o.Core, "services", p.Name, &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta(p.Name),
			Spec: corev1.ServiceSpec{
				ClusterIP: corev1.ClusterIPNone, Selector: selector, PublishNotReadyAddresses: true,
				Ports: []corev1.ServicePort{{Name: "nm", Port: port, Protocol: corev1.ProtocolTCP}},
			},
		}},
		{k.c.o.Core, "configmaps", objectName(p), &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(objectName(p)),
			Data: files,
		}},
		{k.c.o.Policy, "poddisruptionbudgets", objectName(p), &policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: meta(objectName(p)),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: selector},
			},
		}},
	} {
		if err := apply(ctx, o.client, o.resource, p.Namespace, o.name, o.object); err != nil {
			r.t.add(v1alpha1.ConditionStepsFailed, "ApplyFailed", err)
			return
		}
	}
	k.applied = from
}

// apply brings an object to a state by server-side apply.
func apply(ctx context.Context, client rest.Interface, resource, namespace, name string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding %s %s/%s: %w", resource, namespace, name, err)
	}
	err = client.Patch(types.ApplyPatchType).Namespace(namespace).Resource(resource).Name(name).
		Param("fieldManager", fieldManager).Param("force", "true").Timeout(apiWithin).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", resource, namespace, name, err)
	}
	return nil
}

// setFinalizers replaces the finalizers of a pool, unless it changed meanwhile.
func (k *keeper) setFinalizers(ctx context.Context, p *v1alpha1.WorkerPool, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "resourceVersion": p.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("encoding the finalizers: %w", err)
	}
	err = k.c.o.Custom.Patch(types.MergePatchType).Namespace(p.Namespace).Resource("workerpools").Name(p.Name).
		Timeout(apiWithin).Body(patch).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("setting the finalizers of the pool: %w", err)
	}
	return nil
}

// release lets a deleted pool go.
func (k *keeper) release(ctx context.Context, p *v1alpha1.WorkerPool) error {
	left := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerPool })
	return k.setFinalizers(ctx, p, left)
}

// createPod makes the pod of a worker. One of the same name that is still going is no error.
func (k *keeper) createPod(ctx context.Context, p *corev1.Pod) error {
	err := k.c.o.Core.Post().Namespace(p.Namespace).Resource("pods").Timeout(apiWithin).Body(p).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s: %w", p.Name, err)
	}
	return nil
}

// deletePod deletes a pod with a number of seconds for its processes to end.
func (k *keeper) deletePod(ctx context.Context, pod *podRow, seconds int64) error {
	uid := types.UID(pod.uid)
	options := &metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &uid}}
	err := k.c.o.Core.Delete().Namespace(k.namespace).Resource("pods").Name(pod.name).
		Timeout(apiWithin).Body(options).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", pod.name, err)
	}
	return nil
}

// markPod writes the marks of a pod, the memory in bytes that it holds, and what it may use.
func (k *keeper) markPod(ctx context.Context, pod *podRow, marks string, held int64, allowance string) error {
	annotations := map[string]any{v1alpha1.AnnotationPoolMarks: marks, v1alpha1.AnnotationPoolHeld: nil}
	if held > 0 {
		annotations[v1alpha1.AnnotationPoolHeld] = strconv.FormatInt(held, 10)
	}
	if pod.guarded {
		annotations[v1alpha1.AnnotationPoolAllowance] = allowance
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.uid, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the marks of pod %s: %w", pod.name, err)
	}
	err = k.c.o.Core.Patch(types.MergePatchType).Namespace(k.namespace).Resource("pods").Name(pod.name).
		Timeout(apiWithin).Body(patch).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("marking pod %s: %w", pod.name, err)
	}
	return nil
}
