package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/waterline-io/waterline/internal/model"
)

// collection gathers the objects of sources and wakes the reader. It is safe for concurrent use.
type collection struct {
	wake chan struct{}

	mu         sync.Mutex
	pods       map[string]*model.Pod // by namespace/name
	namespaces map[string]map[string]string
	node       model.NodeInfo
	policies   map[string]model.ClusterPolicy // by name
	reported   bool
	withdrawn  bool
	missing    int // complete lists that have not arrived yet
}

func newCollection(lists int) *collection {
	return &collection{
		wake: make(chan struct{}, 1), missing: lists,
		pods: map[string]*model.Pod{}, namespaces: map[string]map[string]string{}, policies: map[string]model.ClusterPolicy{},
	}
}

// Wake delivers a value when the next [collection.Snapshot] may differ from the last.
func (c *collection) Wake() <-chan struct{} { return c.wake }

// change runs f under the lock and wakes the reader.
func (c *collection) change(f func()) {
	c.mu.Lock()
	f()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Snapshot returns what is known now.
func (c *collection) Snapshot() model.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := model.Snapshot{
		Known: c.missing == 0, NodeInfo: c.node, Reported: c.reported, Withdrawn: c.withdrawn,
		Pods: make([]*model.Pod, 0, len(c.pods)),
	}
	for _, name := range slices.Sorted(maps.Keys(c.policies)) {
		s.Policies = append(s.Policies, c.policies[name])
	}
	for key, pod := range c.pods {
		if labels := c.namespaces[pod.Namespace]; !maps.Equal(labels, pod.NamespaceLabels) {
			labelled := *pod // the old one may be in use
			labelled.NamespaceLabels = labels
			pod = &labelled
			c.pods[key] = pod
		}
		s.Pods = append(s.Pods, pod)
	}
	slices.SortFunc(s.Pods, func(a, b *model.Pod) int {
		if c := strings.Compare(a.UID, b.UID); c != 0 {
			return c
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return s
}
