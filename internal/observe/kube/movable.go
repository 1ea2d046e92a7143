package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// safeToEvict is the annotation by which pods tell the cluster autoscaler that they must stay ("false").
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// WantsToStay reports whether an annotation says that a pod must not be evicted.
func WantsToStay(p *corev1.Pod) bool {
	return ParseAnnotations(p.Annotations).Evict == model.EvictNever || p.Annotations[safeToEvict] == "false"
}

// NodeBound reports whether a pod belongs to its node: it is a mirror of a static pod, or of a DaemonSet.
func NodeBound(p *corev1.Pod) bool {
	by := metav1.GetControllerOfNoCopy(p)
	return mirrors(p) || by != nil && (by.Kind == "DaemonSet" || by.Kind == "Node")
}

// LocalData reports whether a pod has data on its node that an eviction removes or leaves behind.
func LocalData(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil || v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumMemory
	})
}

// Constrained reports whether where a pod fits depends on more than its requests of CPU and memory, its node selectors
// and its tolerations: on other pods, on volumes, on ports of the node, or on devices.
func Constrained(p *corev1.Pod) bool {
	s := &p.Spec
	if s.HostNetwork || len(s.ResourceClaims) > 0 {
		return true
	}
	if a := s.Affinity; a != nil {
		near, apart := a.PodAffinity, a.PodAntiAffinity
		if near != nil && len(near.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
			apart != nil && len(apart.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(s.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == corev1.DoNotSchedule
	}) || slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	}) || slices.ContainsFunc(s.Containers, constrains) || slices.ContainsFunc(s.InitContainers, constrains)
}

// constrains reports whether a container needs a port of the node, or a resource beyond CPU, memory and disk.
func constrains(c corev1.Container) bool {
	for name := range c.Resources.Requests {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			return true
		}
	}
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
}

// Ready reports whether a pod runs, is ready, and is not being deleted.
func Ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// Priority returns the priority of a pod; 0 without one.
func Priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Tolerates reports whether a pod can be scheduled onto a node with these taints. A taint that only asks for avoidance
// counts as tolerated, and a toleration that compares numbers as none.
func Tolerates(p *corev1.Pod, taints []corev1.Taint) bool {
	return !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		tolerates := func(by corev1.Toleration) bool { return by.ToleratesTaint(klog.Logger{}, &t, false) }
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(p.Spec.Tolerations, tolerates)
	})
}

// Withdrawn reports whether the manager keeps the node of a report from selling.
func Withdrawn(r *v1alpha1.NodeReport) bool {
	return meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionWithdrawn)
}
