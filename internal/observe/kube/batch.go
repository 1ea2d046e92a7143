package kube

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// BatchRequest returns what a container requests of the tier batch, by whichever names.
func BatchRequest(c *corev1.Container) model.Amount {
	batch, _, _ := Sold(c.Resources.Requests)
	return batch
}

// slackName returns the name of a resource that is sold.
func slackName(r model.NodeResource) corev1.ResourceName {
	return corev1.ResourceName(v1alpha1.SlackResource(string(r.Tier), r.Memory, r.Koordinator))
}

// Sold returns the amounts of each tier in a list of requests, under either name, and whether any has Koordinator's
// name. CPU counts in thousandths.
func Sold(requests corev1.ResourceList) (batch, mid model.Amount, koordinator bool) {
	for _, r := range model.NodeResources() {
		amount, tier := whole(requests, slackName(r)), &batch
		if r.Tier == model.TierMid {
			tier = &mid
		}
		if r.Memory {
			tier.Memory += amount
		} else {
			tier.CPU += amount
		}
		koordinator = koordinator || r.Koordinator && amount > 0
	}
	return batch, mid, koordinator
}

// grant sets the grants of a pod and its containers for the batch and mid resources that they request: the cgroup
// values that the kubelet would compute if they requested CPU and memory instead. Limits of the kubelet stay as they
// are.
func grant(pod *model.Pod, p *corev1.Pod) {
	if pod.Mid == (model.Amount{}) && pod.Batch == (model.Amount{}) {
		return
	}
	came, valid := batchResources(p.Annotations)
	native := *p
	native.Spec.InitContainers = slices.Clone(p.Spec.InitContainers)
	native.Spec.Containers = slices.Clone(p.Spec.Containers)
	cpus, cpuValid := cpuKind.translate(&native, &came)
	bytes, memoryValid := memoryKind.translate(&native, &came)
	if !valid || !cpuValid || !memoryValid {
		pod.Annotations.Notices = append(pod.Annotations.Notices, model.Reason{
			Code: model.BadAnnotation,
			Key:  v1alpha1.AnnotationBatchResources,
			Text: Excerpt(p.Annotations[v1alpha1.AnnotationBatchResources]),
			Fix:  "remove it; the webhook writes it, and entries that differ from the requests of the containers do not count",
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

// batchResources reads the requests and limits with which a pod was created. An annotation that cannot be read counts
// as absent.
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

// clamp limits an amount to the range from 0 to 2⁴⁶. No machine has that much; neither a sum over a pod's containers
// nor a quota computed from it overflows.
func clamp(amount int64) int64 { return min(max(amount, 0), 1<<46) }

// kind is a native resource that is sold as batch and mid.
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

// requested returns the request and limit of a container, of all tiers together; the limit is 0 where the API has none.
// The two can differ under Koordinator's names only, because the API server treats kubernetes.io/ as its own prefix;
// Koordinator's webhook leaves the original limit there.
func (k kind) requested(r *corev1.ResourceRequirements) (request, limit int64) {
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

// translate changes a pod: its containers request the native resource instead of the sold one, with the limits in the
// annotation. It returns the request of each container, init containers first.
//
// An entry of the annotation counts only if its request equals the container's, because without a webhook any user can
// write it; with an entry that differs the annotation is not valid. Memory without a limit is limited to its request,
// unless the pod as a whole has a limit. A native limit stays.
func (k kind) translate(p *corev1.Pod, came *v1alpha1.BatchResources) (requests []int64, valid bool) {
	var sum int64
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			request, _ := k.requested(&list[i].Resources)
			all, requests, sum = append(all, &list[i]), append(requests, request), sum+request
		}
	}
	var whole int64
	// The parts of the containers were rounded up, and a container may have been added since.
	if valid = k.of(&came.Pod.Request) <= sum; valid {
		whole = k.of(&came.Pod.Limit)
	}
	for i, c := range all {
		_, limit := k.requested(&c.Resources)
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

// add returns a list with an amount of the resource, unless the amount is 0 or the list already has some.
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

// held reads how much memory a worker of a pool uses beyond what its node's slack allows. A pod never holds more than
// its limit beyond its request, so that nobody can keep a node from selling by an annotation.
func held(pod *model.Pod, text string) int64 {
	bytes, err := strconv.ParseInt(text, 10, 64)
	if err != nil || pod.Pool == "" {
		return 0
	}
	return min(max(bytes, 0), max(pod.Grant.Memory-pod.Batch.Memory, 0))
}
