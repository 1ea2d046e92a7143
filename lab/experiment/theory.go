package experiment

import (
	"math"
	"runtime"

	"github.com/waterline-io/waterline/internal/model"
)

// group is one cgroup as the scheduler sees it.
type group struct {
	name     string
	weight   float64 // among its siblings
	threads  int     // that always want CPU, in the group itself
	children []group // a group has either threads or children
}

// limit returns the most CPUs that a group can use: a thread uses one.
func (g *group) limit() float64 {
	limit := float64(g.threads)
	for i := range g.children {
		limit += g.children[i].limit()
	}
	return limit
}

// divideCPUs returns the CPUs of each group without children, when a number of CPUs is divided down the hierarchy:
// among siblings only, level by level.
func divideCPUs(cpus float64, root group) map[string]float64 {
	got := map[string]float64{}
	divide(math.Min(cpus, root.limit()), &root, got)
	return got
}

func divide(cpus float64, g *group, got map[string]float64) {
	if len(g.children) == 0 {
		got[g.name] = cpus
		return
	}
	claims := make([]model.Claim, len(g.children))
	for i := range g.children {
		claims[i] = model.Claim{Weight: g.children[i].weight, Limit: g.children[i].limit()}
	}
	for i, part := range model.Divide(cpus, claims) {
		divide(part, &g.children[i], got)
	}
}

// theory returns each pod's part of the CPU time of all pods, by the weights that the kernel holds now.
func (r *run) theory() (map[string]float64, error) {
	root := group{name: "kubepods"}
	classes := map[model.QoSClass]*group{
		model.Guaranteed: &root,
		model.Burstable:  {name: "burstable"},
		model.BestEffort: {name: "besteffort"},
	}
	weigh := func(g *group, dir string) error {
		raw, err := r.Weight(dir)
		g.weight = float64(raw.Number)
		return err
	}
	for _, p := range r.Loaded() {
		container := group{name: p.Name, threads: p.Threads}
		if err := weigh(&container, r.ContainerGroup(p)); err != nil {
			return nil, err
		}
		pod := group{name: "pod " + p.Name, children: []group{container}}
		if err := weigh(&pod, r.PodGroup(p)); err != nil {
			return nil, err
		}
		class := classes[p.QoS]
		class.children = append(class.children, pod)
	}
	for _, q := range []model.QoSClass{model.Burstable, model.BestEffort} {
		if len(classes[q].children) == 0 {
			continue
		}
		if err := weigh(classes[q], r.Layout().Class(q)); err != nil {
			return nil, err
		}
		root.children = append(root.children, *classes[q])
	}
	got := divideCPUs(float64(runtime.NumCPU()), root)
	var sum float64
	for _, cpus := range got {
		sum += cpus
	}
	for name := range got {
		got[name] /= sum
	}
	return got, nil
}
