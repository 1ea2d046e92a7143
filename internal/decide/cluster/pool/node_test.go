package pool

import (
	"testing"

	"github.com/waterline-io/waterline/internal/model"
)

// TestClosed checks which nodes take no new pods of a pool.
func TestClosed(t *testing.T) {
	dedicated := Taint{Key: "dedicated", Value: "web", Effect: "NoSchedule"}
	for _, c := range []struct {
		about       string
		node        Node
		tolerations []Toleration
		want        bool
	}{
		{about: "an open node"},
		{about: "cordoned", node: Node{Cordoned: true},
			tolerations: []Toleration{{Key: "dedicated", Exists: true}}, want: true},
		{about: "paused", node: Node{Off: true, Selling: true},
			tolerations: []Toleration{{Key: "dedicated", Exists: true}}, want: true},
		{about: "tainted", node: Node{Taints: []Taint{dedicated}}, want: true},
		{about: "a wish", node: Node{Taints: []Taint{{Key: "a", Effect: "PreferNoSchedule"}}}},
		{about: "to be emptied", node: Node{Taints: []Taint{{Key: "a", Effect: "NoExecute"}}}, want: true},
		{about: "any value and effect", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "dedicated", Exists: true}}},
		{about: "any key", node: Node{Taints: []Taint{dedicated}}, tolerations: []Toleration{{Exists: true}}},
		{about: "no value", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "dedicated"}}, want: true},
		{about: "the value", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "dedicated", Value: "web", Effect: "NoSchedule"}}},
		{about: "another key", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "web", Exists: true}}, want: true},
		{about: "another value", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "dedicated", Value: "db"}}, want: true},
		{about: "another effect", node: Node{Taints: []Taint{dedicated}},
			tolerations: []Toleration{{Key: "dedicated", Exists: true, Effect: "NoExecute"}}, want: true},
		{about: "one of two", node: Node{Taints: []Taint{dedicated, {Key: "gpu", Effect: "NoSchedule"}}},
			tolerations: []Toleration{{Key: "dedicated", Exists: true}}, want: true},
	} {
		if got := c.node.Closed(c.tolerations); got != c.want {
			t.Errorf("%s: %v, want %v", c.about, got, c.want)
		}
	}
}

// TestRoom checks that a pod comes only to a node that offers enough beside what others request.
func TestRoom(t *testing.T) {
	need := model.Amount{CPU: 1100, Memory: 3 << 30}
	full := Node{
		Selling: true, Offer: model.Amount{CPU: 2100, Memory: 4 << 30}, Bound: model.Amount{CPU: 1000, Memory: 1 << 30},
	}
	if !full.Room(need) {
		t.Error("it fits exactly, and has no room")
	}
	for about, change := range map[string]func(n *Node){
		"one milli-core too much": func(n *Node) { n.Bound.CPU++ },
		"one byte too much":       func(n *Node) { n.Bound.Memory++ },
		"it sells nothing":        func(n *Node) { n.Selling = false },
		"nothing is known":        func(n *Node) { *n = Node{} },
	} {
		n := full
		if change(&n); n.Room(need) {
			t.Errorf("%s: it has room", about)
		}
	}
}

// TestTally counts workers that were left out of the input by their phase before.
func TestTally(t *testing.T) {
	got := Tally{Wanted: 1}
	for _, p := range []Phase{Active, Shrinking, Draining, Decommissioned, Registering, Frozen} {
		got.Left(p)
	}
	if want := (Tally{Wanted: 5, Active: 2, Leaving: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
