package kube

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// slackName returns the name of a resource that is sold.
func slackName(r model.NodeResource) corev1.ResourceName {
	return corev1.ResourceName(v1alpha1.SlackResource(string(r.Tier), r.Memory, r.Koordinator))
}

// bought notes how much of each tier a pod requests, by whichever name.
func bought(pod *model.Pod, requests corev1.ResourceList) {
	for _, r := range model.NodeResources() {
		amount := whole(requests, slackName(r))
		tier := &pod.Batch
		if r.Tier == model.TierMid {
			tier = &pod.Mid
		}
		if r.Memory {
			tier.Memory += amount
		} else {
			tier.CPU += amount
		}
		pod.Koordinator = pod.Koordinator || r.Koordinator && amount > 0
	}
}

// grant says what the cgroups of a pod and its containers are to have for what they ask for in batch and mid resources:
// what the kubelet would compute if they asked for CPU and memory instead. What the kubelet limits stays the kubelet's.
func grant(pod *model.Pod, p *corev1.Pod) {
	if pod.Mid == (model.Amount{}) && pod.Batch == (model.Amount{}) {
		return
	}
	came, valid := batchResources(p.Annotations)
	native := *p
	native.Spec.InitContainers, native.Spec.Containers = slices.Clone(p.Spec.InitContainers),
		slices.Clone(p.Spec.Containers)
	cpus, cpuValid := cpuKind.translate(&native, &came)
	bytes, memoryValid := memoryKind.translate(&native, &came)
	if !valid || !cpuValid || !memoryValid {
		pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{
			Code: model.BadAnnotation, Key: v1alpha1.AnnotationBatchResources,
			Text: shorten(p.Annotations[v1alpha1.AnnotationBatchResources]),
			Fix:  "remove it; the webhook writes it, and what differs from what the containers ask for does not count",
		})
	}
	anyCPU, anyMemory := false, false
	for i, c := range containers(&native) {
		own := &pod.Containers[i]
		if cpus[i] > 0 {
			anyCPU, own.Grant.RequestMilli = true, clamp(c.RequestMilli)
			if own.LimitMilli == 0 {
				own.Grant.LimitMilli = clamp(c.LimitMilli)
			}
		}
		if bytes[i] > 0 {
			anyMemory = true
			if own.MemoryLimit == 0 {
				own.Grant.Memory = c.MemoryLimit
			}
		}
	}
	if anyCPU {
		pod.Grant.RequestMilli = clamp(milli(resource.PodRequests(&native, resource.PodResourcesOptions{})))
		if pod.LimitMilli == 0 {
			pod.Grant.LimitMilli = clamp(milli(podLimit(&native, corev1.ResourceCPU)))
		}
	}
	if anyMemory && pod.MemoryLimit == 0 {
		pod.Grant.Memory = clamp(memory(podLimit(&native, corev1.ResourceMemory)))
	}
}

// batchResources reads what a pod came with. An annotation that cannot be read counts as if it were not there.
func batchResources(annotations map[string]string) (came v1alpha1.BatchResources, valid bool) {
	text, found := annotations[v1alpha1.AnnotationBatchResources]
	if !found {
		return came, true
	}
	err := json.Unmarshal([]byte(text), &came)
	valid = err == nil && inRange(came.Pod)
	for _, a := range came.Containers {
		valid = valid && inRange(a)
	}
	if !valid {
		return v1alpha1.BatchResources{}, false
	}
	return came, true
}

func inRange(a v1alpha1.RequestedResources) bool {
	for _, amount := range []int64{a.Request.CPU, a.Request.Memory, a.Limit.CPU, a.Limit.Memory} {
		if amount != clamp(amount) {
			return false
		}
	}
	return true
}

// clamp brings an amount into the range of those that are told apart. No machine has as much as the most, no sum of it
// over a pod's containers overflows, and neither does the quota of it.
func clamp(amount int64) int64 { return min(max(amount, 0), 1<<46) }

// kind is a kind of resource that is sold.
type kind struct {
	native   corev1.ResourceName
	of       func(*v1alpha1.ResourceAmounts) int64
	quantity func(int64) *apiresource.Quantity
}

var (
	cpuKind = kind{
		native: corev1.ResourceCPU, of: func(a *v1alpha1.ResourceAmounts) int64 { return a.CPU },
		quantity: func(milli int64) *apiresource.Quantity {
			return apiresource.NewMilliQuantity(milli, apiresource.DecimalSI)
		},
	}
	memoryKind = kind{
		native: corev1.ResourceMemory, of: func(a *v1alpha1.ResourceAmounts) int64 { return a.Memory },
		quantity: func(bytes int64) *apiresource.Quantity { return apiresource.NewQuantity(bytes, apiresource.BinarySI) },
	}
)

// asked returns what a container asks for of all tiers together; limit is 0 where the API tells none. Only under
// Koordinator's names can the two differ, because the API server takes kubernetes.io/ for its own; Koordinator's
// webhook leaves the original limit there.
func (k kind) asked(r *corev1.ResourceRequirements) (request, limit int64) {
	koordinator := false
	for _, sold := range model.NodeResources() {
		if sold.Memory != (k.native == corev1.ResourceMemory) {
			continue
		}
		amount := clamp(whole(r.Requests, slackName(sold)))
		request += amount
		koordinator = koordinator || sold.Koordinator && amount > 0
		limit += clamp(whole(r.Limits, slackName(sold)))
	}
	if !koordinator {
		limit = 0
	}
	return clamp(request), clamp(limit)
}

// translate makes the containers of a pod, which is changed, ask for the native resource instead of what is sold, with
// the limits that the annotation says they came with. It returns what each asked for, init containers first.
//
// An entry of the annotation counts only where its request is what the container asks for, because where no webhook
// runs anybody can write it; it is not valid if there is one that does not. Memory without a limit is limited to its
// request, unless the pod as a whole came with a limit. A native limit stays.
func (k kind) translate(p *corev1.Pod, came *v1alpha1.BatchResources) (requests []int64, valid bool) {
	var sum int64
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			request, _ := k.asked(&list[i].Resources)
			all, requests, sum = append(all, &list[i]), append(requests, request), sum+request
		}
	}
	var whole int64
	// What was shared out was rounded up, and somebody may have added a container since.
	if valid = k.of(&came.Pod.Request) <= sum; valid {
		whole = k.of(&came.Pod.Limit)
	}
	for i, c := range all {
		_, limit := k.asked(&c.Resources)
		if a, found := came.Containers[c.Name]; found {
			if k.of(&a.Request) == requests[i] {
				limit = k.of(&a.Limit)
			} else {
				valid = false
			}
		}
		if k.native == corev1.ResourceMemory && limit == 0 && whole == 0 {
			limit = requests[i]
		}
		if requests[i] > 0 {
			c.Resources.Requests = k.add(c.Resources.Requests, requests[i])
			c.Resources.Limits = k.add(c.Resources.Limits, limit)
		}
	}
	if whole > 0 {
		r := corev1.ResourceRequirements{}
		if p.Spec.Resources != nil {
			r = *p.Spec.Resources
		}
		r.Limits = k.add(r.Limits, whole)
		p.Spec.Resources = &r
	}
	return requests, valid
}

// add returns a list with an amount of the resource, unless that is 0 or the list has some.
func (k kind) add(list corev1.ResourceList, amount int64) corev1.ResourceList {
	if old := list[k.native]; amount == 0 || !old.IsZero() {
		return list
	}
	list = maps.Clone(list)
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[k.native] = *k.quantity(amount)
	return list
}
