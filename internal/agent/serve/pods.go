package serve

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// PodUsage is what a pod uses now, beside what it requests and may use. The agent serves all of them as GET /pods,
// ordered by namespace and name.
type PodUsage struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Class     model.Class   `json:"class"`
	Tier      model.Tier    `json:"tier,omitempty"`
	CPU       int64         `json:"cpu"`       // usage, in milli-cores
	Memory    int64         `json:"memory"`    // working set, in bytes
	Request   int64         `json:"request"`   // CPU request, of batch CPU for a batch pod, in milli-cores
	Weight    int64         `json:"weight"`    // in shares; 0: the kubelet's
	Allowance int64         `json:"allowance"` // of a limited batch pod, the CPU that it may use; 0: not limited
	Wait      int64         `json:"wait"`      // part of the time in which some task of it waited for a CPU, in thousandths
	Throttled int64         `json:"throttled"` // part of the CFS periods in which its quota throttled it, in thousandths
	Age       time.Duration `json:"age"`       // of the usage, in nanoseconds
}

// pods returns the usage of the pods that were measured.
func (v view) pods() []PodUsage {
	var all []PodUsage
	if v.Load == nil {
		return all
	}
	for i := range v.Load.Pods {
		u := &v.Load.Pods[i]
		p := model.FindPod(v.Pods, u.UID)
		if p == nil {
			continue
		}
		pod := PodUsage{
			Namespace: p.Namespace, Name: p.Name, Class: p.Class, Tier: p.Tier, CPU: u.CPU.Milli,
			Memory: u.Memory.WorkingSet, Request: p.RequestMilli, Wait: u.Pressure.CPU.Some, Age: v.Load.Clock - u.CPU.At,
		}
		if p.Class == model.ClassBE {
			pod.Request = p.Mid.CPU + p.Batch.CPU
		}
		if u.CPU.Periods > 0 {
			pod.Throttled = 1000 * u.CPU.Throttled / u.CPU.Periods
		}
		dir := v.Tree.Pods[u.UID].Dir
		for j := range v.Plan.Settings {
			if s := &v.Plan.Settings[j]; s.Dir == dir && s.Knob == model.Shares && !s.Release {
				pod.Weight = s.Value.Number
			}
		}
		if s := v.Plan.Suppress; s != nil {
			part, _ := s.Part(u.UID)
			pod.Allowance = part.Milli
		}
		all = append(all, pod)
	}
	slices.SortFunc(all, func(a, b PodUsage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}
