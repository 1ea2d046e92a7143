package pool

import (
	"slices"

	"github.com/waterline-io/waterline/internal/model"
)

// Node is what decides whether a worker's pod can come to a node, or stay there.
type Node struct {
	Cordoned bool         // it is unschedulable
	Off      bool         // Waterline is stopped there, by a pause or by mode Disabled
	Taints   []Taint      // without those that Kubernetes sets for a while
	Selling  bool         // it offers something in the tier batch
	Offer    model.Amount // in that tier
	Bound    model.Amount // what pods request of the offer
	Usable   model.Amount // what batch may use now beyond the requests of batch pods, of all tiers; may be negative
}

// Rest returns the part of the offer that no pod requests; nothing while the node sells nothing. It is negative if the
// offer fell below the requests.
func (n *Node) Rest() model.Amount {
	if !n.Selling {
		return model.Amount{}
	}
	return model.Amount{CPU: n.Offer.CPU - n.Bound.CPU, Memory: n.Offer.Memory - n.Bound.Memory}
}

// Spare returns what batch may use beyond its requests; nothing while the node sells nothing.
func (n *Node) Spare() model.Amount {
	if !n.Selling {
		return model.Amount{}
	}
	return n.Usable
}

// Taint is a taint of a node, by the words of Kubernetes.
type Taint struct{ Key, Value, Effect string }

// Toleration tolerates taints. An empty Key or Effect stands for any, and so does every Value if Exists is set.
type Toleration struct {
	Key    string
	Exists bool
	Value  string
	Effect string
}

// preferNoSchedule is the effect of a taint that keeps no pod away.
const preferNoSchedule = "PreferNoSchedule"

// Closed reports whether the node takes no new pods with these tolerations, so that a worker that is there drains: the
// node is cordoned, has a taint that they do not tolerate, or Waterline is stopped there.
func (n *Node) Closed(tolerations []Toleration) bool {
	return n.Cordoned || n.Off || slices.ContainsFunc(n.Taints, func(t Taint) bool {
		return t.Effect != preferNoSchedule && !slices.ContainsFunc(tolerations, func(s Toleration) bool {
			return (s.Key == t.Key || s.Key == "") && (s.Exists || s.Value == t.Value) &&
				(s.Effect == "" || s.Effect == t.Effect)
		})
	})
}

// Room reports whether a pod that requests so much fits into what the node offers and no pod requests.
func (n *Node) Room(need model.Amount) bool {
	all := n.Bound.Plus(need)
	return n.Selling && all.CPU <= n.Offer.CPU && all.Memory <= n.Offer.Memory
}

// Tally counts workers for the status of their pool.
type Tally struct {
	Wanted   int // that are to run now, and that their nodes have room for
	Active   int // that take containers
	Leaving  int // that drain or stop
	Outdated int // that wait for their pods to be replaced
}

// Count counts workers by the steps of [Next] for the same input.
func Count(in *Input, steps []Step) (t Tally) {
	for i := range steps {
		t.Add(&in.Workers[i], &steps[i])
	}
	return t
}

// Add counts a worker by its step. A worker whose node has no room does not count as wanted: otherwise a pool on all
// nodes would never be complete.
func (t *Tally) Add(w *Worker, s *Step) {
	t.count(s.Phase)
	if s.Why == PodOutdated {
		t.Outdated++
	}
	if w.Wanted && s.Why != NoRoom && s.Why != NodeCordoned {
		t.Wanted++
	}
}

// Left also counts a worker that was left out of the input, by its previous phase. It is wanted unless it was leaving.
func (t *Tally) Left(before Phase) {
	if !t.count(before) {
		t.Wanted++
	}
}

// count counts a phase, and reports whether it is one of a worker that leaves.
func (t *Tally) count(p Phase) (leaving bool) {
	switch p {
	case Active, Shrinking:
		t.Active++
	case Draining, Decommissioned:
		t.Leaving++
		return true
	}
	return false
}
