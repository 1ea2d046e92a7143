package admit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/model"
)

// kind is a native resource that is sold as batch.
type kind int

const (
	cpu kind = iota
	memory
)

var kinds = []kind{cpu, memory}

// native returns the name of the kind in Kubernetes.
func (k kind) native() corev1.ResourceName {
	return [...]corev1.ResourceName{cpu: corev1.ResourceCPU, memory: corev1.ResourceMemory}[k]
}

// format returns the format of amounts of the kind.
func (k kind) format() resource.Format {
	return [...]resource.Format{cpu: resource.DecimalSI, memory: resource.BinarySI}[k]
}

// maxAmount is the highest amount that is represented, in milli-cores or bytes. No machine has as much, and sums of
// such amounts over as many containers as fit into a request do not overflow.
const maxAmount = 1 << 46

// amount returns a quantity of the native resource in milli-cores or bytes, rounded up.
func (k kind) amount(q resource.Quantity) int64 {
	if k == memory {
		return whole(q)
	}
	if q.CmpInt64(maxAmount/1000) > 0 {
		return maxAmount
	}
	return q.MilliValue()
}

// whole returns a quantity as an integer, rounded up.
func whole(q resource.Quantity) int64 {
	if q.CmpInt64(maxAmount) > 0 {
		return maxAmount
	}
	return q.Value()
}

// names are the resource names that batch pods request, by kind.
type names [2]corev1.ResourceName

// spellings are all resource names of a tier: ours, then Koordinator's.
var spellings = map[model.Tier][2][]corev1.ResourceName{
	model.TierBatch: {
		cpu:    {v1alpha1.ResourceBatchCPU, v1alpha1.ResourceKoordinatorBatchCPU},
		memory: {v1alpha1.ResourceBatchMemory, v1alpha1.ResourceKoordinatorBatchMemory},
	},
	model.TierMid: {
		cpu:    {v1alpha1.ResourceMidCPU, v1alpha1.ResourceKoordinatorMidCPU},
		memory: {v1alpha1.ResourceMidMemory, v1alpha1.ResourceKoordinatorMidMemory},
	},
}

// market returns whether a pod requests resources under Koordinator's names, and whether anything is sold that it can
// request. A pod that names Koordinator's resources keeps to them: another system may offer them.
func (r Rules) market(pod *corev1.Pod) (koordinator, sold bool) {
	if koordinators(pod) != "" {
		return true, r.Koordinator
	}
	return !r.Ours, r.Ours || r.Koordinator
}

// koordinators returns the first of Koordinator's names that a pod requests, "" if it requests none.
func koordinators(pod *corev1.Pod) corev1.ResourceName {
	for _, tier := range []model.Tier{model.TierBatch, model.TierMid} {
		for _, name := range namesOf(tier, true) {
			for _, c := range containers(pod) {
				if _, found := lookup(c.Resources, name); found {
					return name
				}
			}
		}
	}
	return ""
}

// namesOf returns the names under which a tier is published.
func namesOf(tier model.Tier, koordinator bool) names {
	which := 0
	if koordinator {
		which = 1
	}
	all := spellings[tier]
	return names{all[cpu][which], all[memory][which]}
}

// everySpelling lists every name of a kind, of all tiers.
func everySpelling(k kind) []corev1.ResourceName {
	return append(append([]corev1.ResourceName{}, spellings[model.TierBatch][k]...), spellings[model.TierMid][k]...)
}

// pair is the request and limit of one resource. Without a request the limit is the request, as for the API server.
type pair struct{ request, limit resource.Quantity }

// lookup returns the pair of the first of some names that the resources have.
func lookup(r corev1.ResourceRequirements, all ...corev1.ResourceName) (pair, bool) {
	for _, name := range all {
		request, requested := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case requested:
			return pair{request, limit}, true
		case limited:
			return pair{limit, limit}, true
		}
	}
	return pair{}, false
}

// containers lists all containers that can request resources, init containers and sidecars first.
func containers(pod *corev1.Pod) []*corev1.Container {
	var all []*corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// startsAndEnds reports whether a container ends before the app's containers start: an init container that is no
// sidecar.
func startsAndEnds(pod *corev1.Pod, c *corev1.Container) bool {
	for i := range pod.Spec.InitContainers {
		if &pod.Spec.InitContainers[i] == c {
			return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// fill adds the requests for CPU and memory that follow from limits. The API server did so already, but another webhook
// may have left requests out since. A container's request is its limit; the request of the pod as a whole is the sum of
// its containers' requests, or else its limit (k8s.io/kubernetes/pkg/apis/core/v1/defaults.go, SetDefaults_Pod).
func fill(pod *corev1.Pod) {
	add := func(r *corev1.ResourceRequirements, from corev1.ResourceList) {
		for _, k := range kinds {
			amount, found := from[k.native()]
			if _, requested := r.Requests[k.native()]; requested || !found {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[k.native()] = amount
		}
	}
	for _, c := range containers(pod) {
		add(&c.Resources, c.Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil && len(r.Limits) > 0 {
		add(r, aggregate(pod))
		add(r, r.Limits)
	}
}

// aggregate returns the sum of the containers' requests, which the API server compares with the pod's.
func aggregate(pod *corev1.Pod) corev1.ResourceList {
	return helpers.AggregateContainerRequests(pod, helpers.PodResourcesOptions{})
}

// of returns where the amount of a kind is.
func of(a *v1alpha1.ResourceAmounts, k kind) *int64 {
	if k == memory {
		return &a.Memory
	}
	return &a.CPU
}

// RequestsNative reports whether a pod requests native CPU or memory, as a whole or in a container. A batch pod does so
// only if it did not pass [Rules.Mutate].
func RequestsNative(pod *corev1.Pod) bool {
	native := func(r corev1.ResourceRequirements) bool {
		for _, k := range kinds {
			if pair, found := lookup(r, k.native()); found && (!pair.request.IsZero() || !pair.limit.IsZero()) {
				return true
			}
		}
		return false
	}
	if pod.Spec.Resources != nil && native(*pod.Spec.Resources) {
		return true
	}
	return slices.ContainsFunc(containers(pod), func(c *corev1.Container) bool { return native(c.Resources) })
}
