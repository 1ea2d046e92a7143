package cpuset

import (
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// want is the number of CPUs for one container, or for a pod as a whole.
type want struct {
	container string // "": the pod as a whole
	cpus      int
}

// wants returns the numbers of CPUs for a pod that requests its own, or why it can have none.
//
// The number is the CPU limit, which is what the pod may use. Only a container whose limit is a whole number of CPUs
// gets its own; the other containers of the pod run on the shared CPUs. For exclusive CPUs the request must equal the
// limit. Otherwise the scheduler has promised the difference to other pods.
func wants(p *model.Pod, mode model.CPUMode, k *model.Kubelet) ([]want, model.Reason) {
	if k.StaticCPUs && p.QoS == model.Guaranteed && ofKubelet(p) {
		return nil, model.Reason{
			Code: model.CPUsOfKubelet, Fix: "remove the annotation, or run the kubelet with cpuManagerPolicy: none",
		}
	}
	if p.PodLevelCPU {
		if why := refuse(mode, p.RequestMilli, p.LimitMilli); why.Code != "" {
			return nil, why
		}
		return []want{{cpus: int(p.LimitMilli / 1000)}}, model.Reason{}
	}
	all := make([]want, 0, len(p.Containers))
	var first model.Reason
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Init {
			continue
		}
		why := refuse(mode, c.RequestMilli, c.LimitMilli)
		switch {
		case why.Code == "":
			all = append(all, want{c.Name, int(c.LimitMilli / 1000)})
		case first.Code == "" || first.Code == model.CPUsNotWhole && why.Code == model.CPUsNotRequested:
			first = why
		}
	}
	if len(all) == 0 && first.Code == "" {
		first = refuse(mode, 0, 0)
	}
	if len(all) > 0 {
		first = model.Reason{}
	}
	return all, first
}

// refuse returns why a request and a limit, in milli-cores, do not qualify for own CPUs.
func refuse(mode model.CPUMode, request, limit int64) model.Reason {
	var why model.Reason
	switch {
	case limit <= 0 || limit%1000 != 0:
		why = model.Reason{Code: model.CPUsNotWhole, Fix: "set a CPU limit that is a whole number of CPUs"}
	case mode == model.CPUExclusive && request != limit:
		whole := strconv.FormatInt(limit/1000, 10)
		why = model.Reason{Code: model.CPUsNotRequested, Fix: "set the CPU request to the limit, " + whole}
	default:
		return model.Reason{}
	}
	why.Operands = []model.Operand{
		{Name: "limit", Value: limit, Unit: model.UnitMilli}, {Name: "request", Value: request, Unit: model.UnitMilli},
	}
	return why
}

// ofKubelet reports whether the kubelet's static policy assigns CPUs to a container of a Guaranteed pod: to each
// container that requests a whole number of CPUs (pkg/kubelet/cm/cpumanager, 1.36).
func ofKubelet(p *model.Pod) bool { return wholeCPUs(p) > 0 }

// wholeCPUs returns the CPU requests of those containers of a pod that request a whole number of CPUs, in milli-cores.
func wholeCPUs(p *model.Pod) (sum int64) {
	for i := range p.Containers {
		if r := p.Containers[i].RequestMilli; r > 0 && r%1000 == 0 {
			sum += r
		}
	}
	return sum
}

// served returns the CPU requests that the kubelet's static policy has met with CPUs of its pool, in milli-cores. CPUs
// that it took for a pod that is gone from the API meet no request.
func served(pods []*model.Pod, k *model.Kubelet) int64 {
	if !k.StaticCPUs {
		return 0
	}
	var sum int64
	for _, p := range pods {
		if p.QoS == model.Guaranteed && !p.Ended {
			sum += wholeCPUs(p)
		}
	}
	return min(sum, int64(k.TakenCPUs.Len())*1000)
}

// promised returns the sum of the CPU requests of the pods of a node, in milli-cores.
func promised(pods []*model.Pod) int64 {
	var sum int64
	for _, p := range pods {
		if !p.Ended {
			sum += p.RequestMilli
		}
	}
	return sum
}

func sum(all []want) int {
	n := 0
	for _, w := range all {
		n += w.cpus
	}
	return n
}
