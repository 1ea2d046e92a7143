package serve

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// cpuMap returns which pods may run on which CPUs by the last plan.
func (v view) cpuMap() (CPUMap, error) {
	topology, err := v.Topology()
	if err != nil {
		return CPUMap{}, err
	}
	plan := v.cpusOr(topology)
	m := CPUMap{
		Topology: topology, Reserved: plan.Reserved, Exclusive: plan.Exclusive, Share: plan.Share, Shared: plan.Shared,
	}
	for _, o := range plan.Own {
		pod := CPUPod{Name: o.UID, Container: o.Container, Mode: o.Mode, CPUs: o.CPUs} // one that the API does not show
		for _, p := range v.Pods {
			if p.UID == o.UID {
				pod.Namespace, pod.Name = p.Namespace, p.Name
			}
		}
		m.Pods = append(m.Pods, pod)
	}
	slices.SortFunc(m.Pods, func(a, b CPUPod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Container, b.Container))
	})
	for _, c := range v.Plan.Conditions {
		if !c.Met {
			m.Notices = append(m.Notices, c.Namespace+"/"+c.Name+": "+c.Message)
		}
	}
	return m, nil
}

// cpusOr returns the last plan's CPUs. If no pod requests any, every container may run on all CPUs.
func (v view) cpusOr(t *model.Topology) *model.CPUPlan {
	if v.Plan.CPUs != nil {
		return v.Plan.CPUs
	}
	return &model.CPUPlan{Shared: t.Online()}
}

// planCPUs returns the moves if a pod had another mode, as a [CPURequest] says. It changes nothing. The error is a
// noPod if the node has no such pod.
func (v view) planCPUs(request string) (CPUPlan, error) {
	r, err := ParseCPURequest(request)
	if err != nil {
		return CPUPlan{}, err
	}
	i, err := v.find(r.Namespace, r.Name)
	if err != nil {
		return CPUPlan{}, err
	}
	topology, err := v.Topology()
	if err != nil {
		return CPUPlan{}, err
	}
	n := v.Node(time.Now())
	n.Topology, n.Incidents = topology, nil
	pod := *n.Pods[i]
	pod.Annotations.CPUs = r.Mode
	n.Pods = slices.Clone(n.Pods)
	n.Pods[i] = &pod
	plan, state := node.Decide(n, v.Policy, v.State)
	// CPUs that the pod releases go to waiting pods in the next round.
	for range 3 {
		if plan.Next.IsZero() || plan.Next.Sub(n.Now) > time.Second {
			break
		}
		n.Now = plan.Next
		plan, state = node.Decide(n, v.Policy, state)
	}
	before, after := v.cpusOr(topology), plan.CPUs
	if after == nil {
		after = &model.CPUPlan{Shared: topology.Online()}
	}
	return CPUPlan{Moves: moves(n.Pods, before, after), Refusal: refusal(&plan, &pod)}, nil
}

// moves lists the containers that would run on other CPUs.
func moves(pods []*model.Pod, before, after *model.CPUPlan) []CPUMove {
	var all []CPUMove
	for _, p := range pods {
		for _, c := range p.Containers {
			from, to := node.CPUsOf(before, p, c.Name), node.CPUsOf(after, p, c.Name)
			if from == to || p.Ended {
				continue
			}
			why := model.CPUsShared
			for _, o := range after.Own {
				if o.UID == p.UID && (o.Container == "" || o.Container == c.Name) {
					if why = model.CPUsExclusive; o.Mode == model.CPUShare {
						why = model.CPUsShare
					}
				}
			}
			all = append(all, CPUMove{
				Namespace: p.Namespace, Name: p.Name, Container: c.Name, From: from, To: to, Why: string(why),
			})
		}
	}
	slices.SortFunc(all, func(a, b CPUMove) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Container, b.Container))
	})
	return all
}

// refusal returns why a pod would not get the CPUs that it requests.
func refusal(plan *model.Plan, pod *model.Pod) string {
	for _, c := range plan.Conditions {
		if c.UID == pod.APIUID && !c.Met {
			return c.Message
		}
	}
	return ""
}
