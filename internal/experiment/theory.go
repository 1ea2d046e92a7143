package experiment

import (
	"math"

	"github.com/waterline-io/waterline/internal/model"
)

// Group is one cgroup as the scheduler sees it: what it weighs among its siblings and who can run in it.
type Group struct {
	Name     string
	Weight   float64
	Threads  int     // that want CPU all the time, in the group itself
	Children []Group // groups below it; a group has either threads or children
}

// limit is the most CPU that a group can use: a thread uses one.
func (g *Group) limit() float64 {
	limit := float64(g.Threads)
	for i := range g.Children {
		limit += g.Children[i].limit()
	}
	return limit
}

// Theory returns what each group without children gets when a number of CPUs is divided down the hierarchy: among
// siblings only, level by level.
func Theory(cpus float64, root Group) map[string]float64 {
	got := map[string]float64{}
	divide(math.Min(cpus, root.limit()), &root, got)
	return got
}

func divide(cpus float64, g *Group, got map[string]float64) {
	if len(g.Children) == 0 {
		got[g.Name] = cpus
		return
	}
	claims := make([]model.Claim, len(g.Children))
	for i := range g.Children {
		claims[i] = model.Claim{Weight: g.Children[i].Weight, Limit: g.Children[i].limit()}
	}
	for i, part := range model.Divide(cpus, claims) {
		divide(part, &g.Children[i], got)
	}
}
