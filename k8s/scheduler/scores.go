package scheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// nodeScores are the scores of all nodes for one pod, and the part of a plugin that hands them out. A plugin computes
// them in PreScore, where it has all nodes at once. Score returns 0, and NormalizeScore fills them in. Lookups in
// Score, one for each node, cost more than the scores themselves (measured).
type nodeScores struct {
	nodes  []fwk.NodeInfo
	scores []int64 // in the order of nodes
}

// begin prepares the scores of these nodes.
func (s *nodeScores) begin(nodes []fwk.NodeInfo) {
	s.nodes = nodes
	if cap(s.scores) < len(nodes) {
		s.scores = make([]int64, len(nodes))
	}
	s.scores = s.scores[:len(nodes)]
}

// Score returns 0. NormalizeScore fills in the scores.
func (s *nodeScores) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions returns what fills in the scores.
func (s *nodeScores) ScoreExtensions() fwk.ScoreExtensions { return s }

// NormalizeScore fills in the scores of all nodes. The framework keeps the order of the nodes (k8s.io/kubernetes,
// RunScorePlugins; 1.36), but does not promise it. So nodes in another order are found by name.
func (s *nodeScores) NormalizeScore(
	_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	var byName map[string]int64
	for i := range scores {
		if i < len(s.nodes) && scores[i].Name == s.nodes[i].Node().Name {
			scores[i].Score = s.scores[i]
			continue
		}
		if byName == nil {
			byName = make(map[string]int64, len(s.nodes))
			for k, info := range s.nodes {
				byName[info.Node().Name] = s.scores[k]
			}
		}
		scores[i].Score = byName[scores[i].Name]
	}
	return nil
}

// slots keep a value for each node, next to each other, and find them by the node's object in the scheduler's snapshot.
// To follow that object to the node's name instead costs more than scoring (measured): it is not in the CPU's cache.
// The object of a node stays the same while the scheduler knows the node.
type slots[T any] struct {
	objects map[*framework.NodeInfo]int32
	names   map[string]int32
	values  []T
}

// find returns the value of a node, and whether it is new.
func (s *slots[T]) find(info fwk.NodeInfo) (value *T, isNew bool) {
	object, ok := info.(*framework.NodeInfo)
	if ok {
		if i, known := s.objects[object]; known {
			return &s.values[i], false
		}
	}
	name := info.Node().Name
	i, known := s.names[name]
	if !known {
		if s.names == nil {
			s.objects, s.names = map[*framework.NodeInfo]int32{}, map[string]int32{}
		}
		i = int32(len(s.values))
		s.names[name] = i
		s.values = append(s.values, *new(T))
	}
	if ok {
		s.objects[object] = i
	}
	return &s.values[i], !known
}

// known returns the value of a node; nil if it has none. Unlike find, it may be called at the same time by several.
func (s *slots[T]) known(info fwk.NodeInfo) *T {
	if object, ok := info.(*framework.NodeInfo); ok {
		if i, known := s.objects[object]; known {
			return &s.values[i]
		}
	}
	return nil
}

// named returns the value of a node; nil if it has none.
func (s *slots[T]) named(name string) *T {
	if i, known := s.names[name]; known {
		return &s.values[i]
	}
	return nil
}

// prune drops all values if most of them are of nodes that are gone.
func (s *slots[T]) prune(nodes int) {
	if len(s.objects) > 2*nodes+100 {
		*s = slots[T]{}
	}
}
