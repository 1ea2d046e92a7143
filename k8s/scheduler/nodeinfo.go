package scheduler

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/waterline-io/waterline/api/v1alpha1"
	"github.com/waterline-io/waterline/internal/decide/cluster/place"
	"github.com/waterline-io/waterline/internal/model"
)

// stockRequests are the requests that the stock scheduler scores for a pod that requests less: it counts a container
// without a request as if it had one (k8s.io/kubernetes/pkg/scheduler/util, GetNonzeroRequests; 1.36).
const (
	stockCPU    = 100
	stockMemory = 200 << 20
)

// podOf returns what the rules need of a pod.
func podOf(p *corev1.Pod) *place.Pod {
	pod := &place.Pod{Requests: requests(p)}
	pod.Requests.CPU = max(pod.Requests.CPU, stockCPU)
	pod.Requests.Memory = max(pod.Requests.Memory, stockMemory)
	pod.Batch, pod.Mid = sold(p)
	if limit := p.Spec.ActiveDeadlineSeconds; limit != nil {
		pod.Lasts = seconds(*limit)
	}
	return pod
}

// nodeOf fills in what the scheduler's snapshot knows of a node.
func nodeOf(info fwk.NodeInfo, n *place.Node) {
	all, used := info.GetAllocatable(), info.GetNonZeroRequested()
	n.Allocatable = model.Amount{CPU: all.GetMilliCPU(), Memory: all.GetMemory()}
	n.Requested = model.Amount{CPU: used.GetMilliCPU(), Memory: used.GetMemory()}
}

// soldNames returns the names of the batch and mid resources, and whether each is memory.
func soldNames() map[corev1.ResourceName]bool {
	names := map[corev1.ResourceName]bool{}
	for _, r := range model.NodeResources() {
		names[corev1.ResourceName(v1alpha1.SlackResource(string(r.Tier), r.Memory, r.Koordinator))] = r.Memory
	}
	return names
}

// soldOn returns the batch and mid resources that the pods of a node request.
func soldOn(info fwk.NodeInfo, names map[corev1.ResourceName]bool) (sum model.Amount) {
	for name, amount := range info.GetRequested().GetScalarResources() {
		switch memory, sold := names[name]; {
		case !sold:
		case memory:
			sum.Memory += amount
		default:
			sum.CPU += amount
		}
	}
	return sum
}

// refuse turns a reason into a status. With the code Unschedulable, preemption is tried: it is for reasons against
// which removing pods helps.
func refuse(plugin string, code fwk.Code, why place.Reason) *fwk.Status {
	refusals.WithLabelValues(plugin, string(why.Code)).Inc()
	return fwk.NewStatus(code, why.String())
}

// state is what a plugin keeps of a pod during one attempt. It does not change.
type state[T any] struct{ value T }

// Clone returns the same state.
func (s *state[T]) Clone() fwk.StateData { return s }

// read returns what a plugin keeps of a pod.
func read[T any](cycle fwk.CycleState, key fwk.StateKey) (value T, status *fwk.Status) {
	data, err := cycle.Read(key)
	if err != nil {
		return value, fwk.AsStatus(err)
	}
	return data.(*state[T]).value, nil
}

func write[T any](cycle fwk.CycleState, key fwk.StateKey, value T) {
	cycle.Write(key, &state[T]{value})
}

func seconds(n int64) time.Duration { return time.Duration(min(n, 1<<32)) * time.Second }
