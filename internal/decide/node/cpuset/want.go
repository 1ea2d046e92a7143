package cpuset

import (
	"strconv"

	"github.com/waterline-io/waterline/internal/model"
)

// want is a number of CPUs that one container, or a pod as a whole, asks for.
type want struct {
	container string // "": the pod as a whole
	cpus      int
}

// wants returns what a pod that asks for CPUs can be given at best, or why that is nothing.
//
// CPUs are counted by the limit: that is what the pod may use. Only a container whose limit is a whole number of CPUs gets
// some; the pod's others run where everybody does. To have them alone it must have requested them too, or other pods were
// promised the same CPUs.
func wants(p *model.Pod, mode model.CPUMode, k *model.Kubelet) ([]want, model.Reason) {
	if k.StaticCPUs && p.QoS == model.Guaranteed && ofKubelet(p) {
		return nil, model.Reason{Code: model.CPUsOfKubelet, Fix: "remove the annotation, or run the kubelet with cpuManagerPolicy: none"}
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

// refuse returns why a request and a limit, in milli-cores, are no claim to CPUs of one's own.
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
	why.Operands = []model.Operand{{Name: "limit", Value: limit, Unit: model.UnitMilli}, {Name: "request", Value: request, Unit: model.UnitMilli}}
	return why
}

// ofKubelet reports whether the kubelet's static policy gives CPUs to a container of a Guaranteed pod: to each that requests
// a whole number of them (pkg/kubelet/cm/cpumanager, 1.36).
func ofKubelet(p *model.Pod) bool {
	for i := range p.Containers {
		if r := p.Containers[i].RequestMilli; r >= 1000 && r%1000 == 0 {
			return true
		}
	}
	return false
}

// promised returns how much CPU the pods of a node requested, in milli-cores.
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
