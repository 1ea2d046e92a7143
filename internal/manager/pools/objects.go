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
	actkube "github.com/waterline-io/waterline/internal/act/kube"
	"github.com/waterline-io/waterline/internal/manager/pools/hadoop"
)

// fieldManager owns what the controller applies.
const fieldManager = "waterline-manager-pools"

// apiTimeout bounds one request to the API server. One that hangs must not delay what has to stop.
const apiTimeout = 10 * time.Second

// prepare makes the objects that the pods need: the Service that names them, their configuration, and the
// PodDisruptionBudget that keeps others from evicting those that run something.
func (r *round) prepare(ctx context.Context) {
	files := hadoop.ShuffleFiles(r.p.Spec.YARN.Shuffle)
	files["yarn-site.xml"] = hadoop.Site(r.p.Spec.YARN)
	r.applyObjects(ctx, files, hadoop.Port)
}

// applyObjects makes the objects that the pods need, with these files of their configuration, and a port of theirs.
func (r *round) applyObjects(ctx context.Context, files map[string]string, port int32) {
	k, p := r.k, r.p
	from := fmt.Sprintf("%s %d %s", p.UID, p.Generation, files)
	if k.applied == from {
		return
	}
	selector := map[string]string{v1alpha1.LabelPool: p.Name}
	// Pods without a controller that Kubernetes knows can only have a minimum.
	all := intstr.FromInt32(math.MaxInt32)
	for _, o := range []struct {
		client   rest.Interface
		resource string
		object   metav1.Object
	}{
		{k.c.o.Core, "services", &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metaOf(p, p.Name, v1alpha1.LabelPool),
			Spec: corev1.ServiceSpec{
				ClusterIP: corev1.ClusterIPNone, Selector: selector, PublishNotReadyAddresses: true,
				Ports: []corev1.ServicePort{{Name: "nm", Port: port, Protocol: corev1.ProtocolTCP}},
			},
		}},
		{k.c.o.Core, "configmaps", configMap(p, objectName(p), v1alpha1.LabelPool, files)},
		{k.c.o.Policy, "poddisruptionbudgets", &policyv1.PodDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
			ObjectMeta: metaOf(p, objectName(p), v1alpha1.LabelPool),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
					v1alpha1.LabelPool: p.Name, v1alpha1.LabelPoolBusy: "true",
				}},
			},
		}},
	} {
		if k.unprepared = k.apply(ctx, p, o.client, o.resource, o.object); k.unprepared != nil {
			r.t.add(v1alpha1.ConditionStepsFailed, "ApplyFailed", k.unprepared)
			return
		}
	}
	k.applied = from
}

// objectName is the name of the ConfigMap and the PodDisruptionBudget of a pool.
func objectName(p *v1alpha1.WorkerPool) string { return p.Name + "-workers" }

// metaOf returns the metadata of an object of a pool. The label names the pool.
func metaOf(p *v1alpha1.WorkerPool, name, label string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.Namespace, Name: name, Labels: map[string]string{label: p.Name},
		OwnerReferences: []metav1.OwnerReference{owner(p)},
	}
}

func configMap(p *v1alpha1.WorkerPool, name, label string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metaOf(p, name, label), Data: data,
	}
}

// apply brings an object of a pool to a state by server-side apply. An object of that name that the pool does not
// control belongs to somebody else: it is left alone.
func (k *keeper) apply(
	ctx context.Context, p *v1alpha1.WorkerPool, client rest.Interface, resource string, object metav1.Object,
) error {
	name := object.GetName()
	have, err := metadata(ctx, client, p.Namespace, resource, name)
	if err != nil {
		return err
	}
	if have != nil && !controls(p, have) {
		return nameTaken(p, resource, have)
	}
	force := "false" // somebody may make one at this moment
	if have != nil {
		force = "true"
		object.SetUID(have.UID) // still this one
	}
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding %s %s/%s: %w", resource, p.Namespace, name, err)
	}
	err = client.Patch(types.ApplyPatchType).Namespace(p.Namespace).Resource(resource).Name(name).
		Param("fieldManager", fieldManager).Param("force", force).Timeout(apiTimeout).Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", resource, p.Namespace, name, err)
	}
	return nil
}

// metadata returns the metadata of an object; nil if there is none of that name.
func metadata(
	ctx context.Context, client rest.Interface, namespace, resource, name string,
) (*metav1.ObjectMeta, error) {
	content, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).
		Timeout(apiTimeout).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err == nil {
		err = json.Unmarshal(content, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", resource, namespace, name, err)
	}
	return &o.Metadata, nil
}

// controls reports whether a pool made an object.
func controls(p *v1alpha1.WorkerPool, o *metav1.ObjectMeta) bool {
	by := metav1.GetControllerOf(o)
	return by != nil && by.UID == p.UID
}

// nameTaken is the error of a name that another object has.
func nameTaken(p *v1alpha1.WorkerPool, resource string, o *metav1.ObjectMeta) error {
	whose := "nobody controls it"
	if by := metav1.GetControllerOf(o); by != nil {
		whose = fmt.Sprintf("%s %s controls it", by.Kind, by.Name)
	}
	return fmt.Errorf("%s %s/%s exists, and is not of the pool %s: %s; it is left alone, and no pod is made beside it; "+
		"delete it, or give the pool another name", resource, o.Namespace, o.Name, p.Name, whose)
}

// releaseWithNamespace removes the finalizer of a deleted pool whose namespace is being deleted, when its pods are
// gone. The manager's rights in the namespace may have gone with it; these requests need none.
func (k *keeper) releaseWithNamespace(ctx context.Context, p *v1alpha1.WorkerPool) error {
	namespace, err := metadata(ctx, k.c.o.Core, "", "namespaces", p.Namespace)
	if err != nil || namespace != nil && namespace.DeletionTimestamp == nil {
		return err
	}
	var pods corev1.PodList
	err = k.c.o.Core.Get().Namespace(p.Namespace).Resource("pods").Timeout(apiTimeout).
		Param("labelSelector", v1alpha1.LabelPool+"="+p.Name).Do(ctx).Into(&pods)
	if err != nil {
		return fmt.Errorf("listing the pods of the pool: %w", err)
	}
	for i := range pods.Items {
		if controls(p, &pods.Items[i].ObjectMeta) {
			return nil // the namespace's end deletes it, and it drains
		}
	}
	return k.release(ctx, p)
}

// setFinalizers replaces the finalizers of a pool, unless it changed meanwhile.
func (k *keeper) setFinalizers(ctx context.Context, p *v1alpha1.WorkerPool, finalizers []string) error {
	return k.patch(ctx, k.c.o.Custom, "setting the finalizers of the pool", "workerpools", p.Name, map[string]any{
		"metadata": map[string]any{"uid": p.UID, "resourceVersion": p.ResourceVersion, "finalizers": finalizers},
	})
}

// patch changes an object, or its status, by a merge patch. It is no error if the object is gone, is another one of
// that name, or changed meanwhile. doing says what for.
func (k *keeper) patch(
	ctx context.Context, client rest.Interface, doing, resource, name string, document any, sub ...string,
) error {
	return actkube.Send(ctx, client.Patch(types.MergePatchType).Namespace(k.namespace).Resource(resource).Name(name).
		SubResource(sub...).Timeout(apiTimeout), doing, document)
}

// release removes the finalizer of a deleted pool.
func (k *keeper) release(ctx context.Context, p *v1alpha1.WorkerPool) error {
	left := slices.DeleteFunc(slices.Clone(p.Finalizers), func(f string) bool { return f == v1alpha1.FinalizerPool })
	return k.setFinalizers(ctx, p, left)
}

// createPod creates the pod of a worker. It is no error if an earlier pod of that name is still being deleted.
func (k *keeper) createPod(ctx context.Context, pool *v1alpha1.WorkerPool, p *corev1.Pod) error {
	if k.unprepared != nil {
		return fmt.Errorf("pod %s is not created: %w", p.Name, k.unprepared)
	}
	err := k.c.o.Core.Post().Namespace(p.Namespace).Resource("pods").Timeout(apiTimeout).Body(p).Do(ctx).Error()
	switch {
	case apierrors.IsAlreadyExists(err):
		have, err := metadata(ctx, k.c.o.Core, p.Namespace, "pods", p.Name)
		if err != nil || have == nil || controls(pool, have) {
			return err
		}
		return nameTaken(pool, "pods", have)
	case err != nil:
		return fmt.Errorf("creating pod %s: %w", p.Name, err)
	}
	return nil
}

// podGrace stands for the grace period in the pod's own spec.
const podGrace = -1

// deletePod deletes a pod with a number of seconds for its processes to end.
func (k *keeper) deletePod(ctx context.Context, pod *podRow, seconds int64) error {
	uid := types.UID(pod.uid)
	options := &metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &uid}}
	if seconds == podGrace {
		options.GracePeriodSeconds = nil
	}
	err := k.c.o.Core.Delete().Namespace(k.namespace).Resource("pods").Name(pod.name).
		Timeout(apiTimeout).Body(options).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", pod.name, err)
	}
	return nil
}

// safeToEvict says to the cluster autoscaler whether it may evict a pod, which otherwise keeps its node: no controller
// that it knows would make another. Source: its FAQ.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// markPod writes the marks of a pod, the memory in bytes that it holds, what it may use, and whether it runs nothing.
func (k *keeper) markPod(
	ctx context.Context, pod *podRow, marks string, held int64, allowance string, idle bool,
) error {
	annotations := map[string]any{
		v1alpha1.AnnotationPoolMarks: marks, v1alpha1.AnnotationPoolHeld: nil, safeToEvict: strconv.FormatBool(idle),
	}
	if held > 0 {
		annotations[v1alpha1.AnnotationPoolHeld] = strconv.FormatInt(held, 10)
	}
	if pod.guarded {
		annotations[v1alpha1.AnnotationPoolAllowance] = allowance
	}
	return k.patch(ctx, k.c.o.Core, "marking pod "+pod.name, "pods", pod.name, map[string]any{"metadata": map[string]any{
		"uid": pod.uid, "annotations": annotations,
		"labels": map[string]any{v1alpha1.LabelPoolBusy: strconv.FormatBool(!idle)},
	}})
}
