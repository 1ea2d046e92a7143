// Package kube converts objects of the Kubernetes API, and responses of a kubelet, to plain values. It is the only
// reader of annotations and labels. Annotations have lower-case values and policies CamelCase ones; both become the
// same values here.
//
// The kubelet's PodResources API is called with net/http and protowire, which the agent has anyway: two calls without
// arguments, of whose responses five fields are read. With google.golang.org/grpc and the API's generated messages, the
// agent's executable was measured 5.6 MB larger (23.2 MB), its memory after the start 4.4 MB larger without any call
// (24.1 MB with 110 pods), and 3.8 MB larger while it called a real kubelet every ten seconds (17.5 MB).
package kube

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/model"
)

// configHash is the annotation with the kubelet's UID of a static pod. The API server gives the mirror of that pod
// another UID, but the cgroup has the kubelet's (k8s.io/kubernetes/pkg/kubelet/types/pod_update.go,
// ConfigHashAnnotationKey).
const configHash = "kubernetes.io/config.hash"

// Pod converts a pod. It returns false for a pod with an invalid UID, which no API server assigns. selfUID is the UID
// of the agent's own pod, "" outside a cluster.
func Pod(p *corev1.Pod, selfUID string) (*model.Pod, bool) {
	uid := string(p.UID)
	if hash, found := p.Annotations[configHash]; found && mirrors(p) {
		uid = hash
	}
	if !cgroup.ValidUID(uid) {
		return nil, false
	}
	// The kubelet applies the resources of the spec, except while a resize is deferred or infeasible: then it keeps the
	// resources allocated before, which are in the status.
	actuated := p
	if pending(p) {
		actuated = asShown(p)
	}
	least := least(p)
	requests := resource.PodRequests(actuated, resource.PodResourcesOptions{})
	pod := &model.Pod{
		UID:       uid,
		APIUID:    string(p.UID),
		Namespace: p.Namespace,
		Name:      p.Name,
		IP:        address(p.Status.PodIP),
		QoS:       qosClass(actuated),
		Labels:    p.Labels,
		Self:      selfUID != "" && string(p.UID) == selfUID,
		Critical: p.Spec.PriorityClassName == "system-node-critical" ||
			p.Spec.PriorityClassName == "system-cluster-critical",
		Ended:        ended(p),
		Leaving:      p.DeletionTimestamp != nil,
		Grace:        grace(p),
		Created:      p.CreationTimestamp.UTC(),
		RequestMilli: milli(requests),
		LimitMilli:   milli(podLimit(actuated, corev1.ResourceCPU)),
		LeastMilli:   milli(podLimit(least, corev1.ResourceCPU)),
		PodLevelCPU:  podLevelCPU(actuated),
		LimitPending: podLevelCPU(actuated) && pending(p),
		MemoryLimit:  memory(podLimit(actuated, corev1.ResourceMemory)),
		Containers:   containers(actuated),
		Owner:        Owner(p),
		Pool:         pool(p),
		Annotations:  ParseAnnotations(p.Annotations),
		CPUCondition: cpuCondition(p),

		MemoryRequest: memory(requests),
	}
	for i, c := range containers(least) {
		pod.Containers[i].LeastMilli = c.LimitMilli
	}
	pod.Batch, pod.Mid, pod.Koordinator = Sold(requests)
	grant(pod, actuated)
	pod.Held = held(pod, p.Annotations[v1alpha1.AnnotationPoolHeld])
	classify(pod, p.Spec.Priority)
	return pod, true
}

// pool returns the worker pool of a pod; "": none. Any user can write the label, so the pool must control the pod, too.
// A forged owner does not last: Kubernetes' garbage collector deletes a pod whose owner does not exist, and a pool
// drains and deletes a pod that is one too many.
func pool(p *corev1.Pod) string {
	name, by := p.Labels[v1alpha1.LabelPool], metav1.GetControllerOfNoCopy(p)
	if by == nil || by.APIVersion != v1alpha1.GroupVersion || by.Kind != "WorkerPool" || by.Name != name {
		return ""
	}
	return name
}

// address returns the IP address of a pod; "" for an address that no pod has. The agent connects to it, so it must not
// lead to the agent itself, nor to a server of the node's own link, such as one with a cloud's credentials.
func address(text string) string {
	ip, err := netip.ParseAddr(text)
	if ip = ip.Unmap(); err != nil || ip.Zone() != "" || !ip.IsGlobalUnicast() {
		return ""
	}
	return ip.String()
}

// mirrors reports whether a pod is the mirror of a static pod: the kubelet makes its Node the owner, and annotates it.
// Any user can write both, so the rule privilege decides whether the pod counts.
func mirrors(p *corev1.Pod) bool {
	return p.Annotations[corev1.MirrorPodAnnotationKey] != "" &&
		slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.APIVersion == "v1" && o.Kind == "Node" && o.Name == p.Spec.NodeName
		})
}

// grace returns the termination grace period of the pod; of a pod that is being deleted, the one of its deletion.
func grace(p *corev1.Pod) time.Duration {
	seconds := int64(corev1.DefaultTerminationGracePeriodSeconds)
	switch {
	case p.DeletionGracePeriodSeconds != nil:
		seconds = *p.DeletionGracePeriodSeconds
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *p.Spec.TerminationGracePeriodSeconds
	}
	const most = int64(24 * time.Hour / time.Second)
	return time.Duration(min(max(seconds, 0), most)) * time.Second
}

// cpuCondition reads the condition that the agent sets.
func cpuCondition(p *corev1.Pod) model.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionCPUSet {
			return model.PodCondition{Met: c.Status == corev1.ConditionTrue, Reason: model.Code(c.Reason), Message: c.Message}
		}
	}
	return model.PodCondition{}
}

// asShown returns the pod with the resources in its status, where it has any: its resources now.
func asShown(p *corev1.Pod) *corev1.Pod {
	allocated := *p
	allocated.Spec.Containers = slices.Clone(p.Spec.Containers)
	allocated.Spec.InitContainers = slices.Clone(p.Spec.InitContainers)
	replace := func(containers []corev1.Container, statuses []corev1.ContainerStatus) {
		for i := range containers {
			for _, s := range statuses {
				if s.Name != containers[i].Name {
					continue
				}
				if s.AllocatedResources != nil {
					containers[i].Resources.Requests = s.AllocatedResources
				}
				if s.Resources != nil {
					containers[i].Resources.Limits = s.Resources.Limits
				}
			}
		}
	}
	replace(allocated.Spec.Containers, p.Status.ContainerStatuses)
	replace(allocated.Spec.InitContainers, p.Status.InitContainerStatuses)
	if r := p.Spec.Resources; r != nil {
		// The status also has sums over the containers, for resources that the pod itself does not name. The limits in
		// status.resources are what the kubelet reads from the pod's cgroup (1.36), so they may be ours.
		allocated.Spec.Resources = &corev1.ResourceRequirements{
			Requests: of(r.Requests, p.Status.AllocatedResources),
			Limits:   r.Limits,
		}
	}
	return &allocated
}

// least returns the pod with CPU limits that hold before, during and after a resize: each the lower one of its spec and
// its status, and none where either has none. The limit of spec.resources is none while a resize of it is pending.
func least(p *corev1.Pod) *corev1.Pod {
	least := asShown(p)
	lower := func(shown, spec corev1.ResourceList) corev1.ResourceList {
		limit, both := spec[corev1.ResourceCPU]
		now, has := shown[corev1.ResourceCPU]
		if !has || both && now.Cmp(limit) <= 0 {
			return shown
		}
		shown = maps.Clone(shown)
		if delete(shown, corev1.ResourceCPU); both {
			shown[corev1.ResourceCPU] = limit
		}
		return shown
	}
	for i := range p.Spec.Containers {
		c := &least.Spec.Containers[i].Resources
		c.Limits = lower(c.Limits, p.Spec.Containers[i].Resources.Limits)
	}
	for i := range p.Spec.InitContainers {
		c := &least.Spec.InitContainers[i].Resources
		c.Limits = lower(c.Limits, p.Spec.InitContainers[i].Resources.Limits)
	}
	if r := least.Spec.Resources; r != nil {
		shown := r.Limits
		switch {
		case pending(p):
			shown = nil
		case p.Status.Resources != nil:
			shown = of(r.Limits, p.Status.Resources.Limits)
		}
		r.Limits = lower(shown, r.Limits)
	}
	return least
}

// pending reports whether the kubelet has not accepted a resize of the pod.
func pending(p *corev1.Pod) bool {
	return resource.IsPodResizeDeferred(p) || resource.IsPodResizeInfeasible(p)
}

// of returns a list with the values of another, for the names that are in both.
func of(list, values corev1.ResourceList) corev1.ResourceList {
	list = maps.Clone(list)
	for name := range list {
		if value, found := values[name]; found {
			list[name] = value
		}
	}
	return list
}

// podLimit sums the pod's limits as the kubelet does for the pod's cgroup (ResourceConfigForPod). If one container has
// no limit of the named resource there is none, unless the pod has one of its own.
func podLimit(p *corev1.Pod, name corev1.ResourceName) corev1.ResourceList {
	declared := true
	limits := resource.PodLimits(p, resource.PodResourcesOptions{
		ContainerFn: func(limits corev1.ResourceList, _ resource.ContainerType) {
			limit := limits[name]
			declared = declared && !limit.IsZero()
		},
	})
	if resource.IsPodLevelResourcesSet(p) {
		limit := p.Spec.Resources.Limits[name]
		declared = declared || !limit.IsZero()
	}
	if !declared {
		return nil
	}
	return limits
}

// podLevelCPU reports whether the pod has a CPU request or limit of its own.
func podLevelCPU(p *corev1.Pod) bool {
	r := p.Spec.Resources
	return r != nil && (!r.Requests.Cpu().IsZero() || !r.Limits.Cpu().IsZero())
}

// containers lists every container with the limit of its quota: its own or, without one, the pod's (kubelet,
// getCPULimit).
func containers(p *corev1.Pod) []model.Container {
	ids := map[string]string{}
	for _, statuses := range [][]corev1.ContainerStatus{
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses,
	} {
		for _, s := range statuses {
			_, id, _ := strings.Cut(s.ContainerID, "://")
			ids[s.Name] = id
		}
	}
	var podLevel int64
	if resource.IsPodLevelResourcesSet(p) {
		podLevel = milli(p.Spec.Resources.Limits)
	}
	all := make([]model.Container, 0, len(p.Spec.Containers)+len(p.Spec.InitContainers))
	for i, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			limit := milli(c.Resources.Limits)
			request := limit
			if _, has := c.Resources.Requests[corev1.ResourceCPU]; has { // it may be zero
				request = milli(c.Resources.Requests)
			}
			if limit == 0 {
				limit = podLevel
			}
			sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			all = append(all, model.Container{
				Name: c.Name, ID: ids[c.Name], Init: i == 0 && !sidecar,
				RequestMilli: request, LimitMilli: limit, MemoryLimit: memory(c.Resources.Limits),
			})
		}
	}
	return all
}

// ended reports whether all containers of the pod have ended for good, so that the kubelet no longer counts the pod.
func ended(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return true
	}
	runs := func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil }
	return p.DeletionTimestamp != nil && len(p.Status.ContainerStatuses) > 0 &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, runs)
}

func milli(list corev1.ResourceList) int64 { return list.Cpu().MilliValue() }

func memory(list corev1.ResourceList) int64 { return list.Memory().Value() }

func amount(list corev1.ResourceList) model.Amount {
	return model.Amount{CPU: milli(list), Memory: memory(list)}
}

// whole returns an amount of an extended resource. The API server accepts whole amounts only.
func whole(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return quantity.Value()
}

// qosClass returns the pod's QoS class: that of the API server or, for a manifest that it never saw, the one it would
// assign.
func qosClass(p *corev1.Pod) model.QoSClass {
	switch p.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return model.Guaranteed
	case corev1.PodQOSBurstable:
		return model.Burstable
	case corev1.PodQOSBestEffort:
		return model.BestEffort
	}
	if r := p.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return classOf([]corev1.ResourceRequirements{*r})
	}
	var all []corev1.ResourceRequirements
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			all = append(all, list[i].Resources)
		}
	}
	return classOf(all)
}

func classOf(all []corev1.ResourceRequirements) model.QoSClass {
	any, guaranteed := false, true
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			if request.IsZero() {
				request = limit // the API server's default
			}
			any = any || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !any:
		return model.BestEffort
	case guaranteed:
		return model.Guaranteed
	}
	return model.Burstable
}
