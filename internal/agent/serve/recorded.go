package serve

import (
	"slices"

	"github.com/waterline-io/waterline/internal/agent/loopview"
	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// RecordedPod explains a pod by a recorded round; false if the round has no such pod.
func RecordedPod(r *node.Round, namespace, name string) (Explanation, bool) {
	e, err := recorded(r).explain(namespace, name)
	e.At = r.Node.Now
	return e, err == nil
}

// RecordedNode explains a node by a recorded round.
func RecordedNode(r *node.Round) NodeExplanation {
	e := recorded(r).explainNode()
	e.At = r.Node.Now
	return e
}

// recorded is the view that the loop had after a round.
func recorded(r *node.Round) view {
	return view{&loopview.View{
		Found: true, Pods: r.Node.Pods, Policy: r.Policy, State: r.State, Plan: &r.Plan, Load: r.Node.Load,
		Tree: r.Node.Tree,
		Files: func(match func(dir string) bool) []model.FileStatus {
			var all []model.FileStatus
			for i := range r.Plan.Settings {
				if match(r.Plan.Settings[i].Dir) {
					all = append(all, statusOf(&r.Node, &r.Plan.Settings[i]))
				}
			}
			return all
		},
	}}
}

// statusOf returns the state of a file as a round recorded it: the value that another writer put there, else the value
// that Waterline wrote last. A round has no value of a file that Waterline never wrote.
func statusOf(n *model.Node, s *model.Setting) model.FileStatus {
	status := model.FileStatus{Setting: *s}
	if wrote := n.Wrote(s.File); wrote != nil {
		status.Exists, status.Is, status.Owned, status.Was = true, wrote.Ours, true, wrote.Theirs
	}
	i := slices.IndexFunc(n.Incidents,
		func(i model.Incident) bool { return i.File == s.File && i.Kind == model.Overwritten })
	if i >= 0 {
		status.Exists, status.Is = true, n.Incidents[i].Value
	}
	return status
}
