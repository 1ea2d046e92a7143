package e2e_test

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/waterline-io/waterline/api/v1alpha1"
)

// podsOnEach is the number of pods of a node besides the agent's. Some are batch.
const (
	podsOnEach  = 30
	batchOnEach = 2
)

// objects returns the objects of a node: the Node, its Lease, its pods and its agent's pod.
func objects(name string) []entry {
	now := metav1.Now()
	meta := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: now,
			Labels: labels}
	}
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	all := []entry{
		{"minions/" + name, &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: meta("", name, map[string]string{
				"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a",
				"node.kubernetes.io/instance-type": "large", "pool": "web",
			}),
			Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts, Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
					LastTransitionTime: now},
			}},
		}},
		lease(name, now.Time),
	}
	pod := func(namespace, pod string, labels map[string]string, requests corev1.ResourceList) {
		all = append(all, entry{"pods/" + namespace + "/" + pod, &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta(namespace, pod, labels),
			Spec: corev1.PodSpec{
				NodeName: name, RestartPolicy: corev1.RestartPolicyAlways, SchedulerName: corev1.DefaultSchedulerName,
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "main", Image: "none",
					Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests}}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			}},
		}})
	}
	pod("waterline-system", name, map[string]string{"app.kubernetes.io/name": "waterline-agent"}, nil)
	for i := range podsOnEach {
		labels, requests := map[string]string{"app": "web"},
			corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
		if i < batchOnEach {
			labels = map[string]string{v1alpha1.LabelQoS: "BE"}
			requests = corev1.ResourceList{v1alpha1.ResourceBatchCPU: resource.MustParse("100")}
		}
		pod("default", fmt.Sprintf("%s-%02d", name, i), labels, requests)
	}
	return all
}

// lease returns a node's Lease, renewed at a time.
func lease(name string, at time.Time) entry {
	return entry{"leases/" + corev1.NamespaceNodeLease + "/" + name, &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.Time{Time: at}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, RenewTime: &metav1.MicroTime{Time: at}},
	}}
}
