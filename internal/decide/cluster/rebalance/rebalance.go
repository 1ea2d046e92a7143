// Package rebalance decides which online pods should leave their nodes, so that hot nodes cool down and weights spread.
//
// A node is hot while its online pods and its system use more CPU than the waterline, or are predicted to within an
// hour. Its weight pressure is the sum of the weights of its pods against its CPUs: where it is high, a weight buys
// less CPU. The rule never moves a pod without a controller, the only ready pod of its owner, or a pod whose
// PodDisruptionBudget has no room; nor one that fits on no other node. No move makes a node hot, and no move takes a
// weight to a node with more pressure than it leaves.
//
// Each move improves something by a margin, and the margin also stays free on the node that the pod goes to. So the
// list ends, and the pods that were moved are not moved back as long as the load changes by less than half of the
// margin.
//
// The use of single pods is not known in the cluster: the load of a node's online pods is divided by their requests.
package rebalance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// Settings bound what a list of moves may do.
type Settings struct {
	All      int           // moves in total
	PerNode  int           // moves that leave one node, and as many that go to one node
	PerOwner int           // moves of one workload
	MinAge   time.Duration // younger pods stay, such as those that were just moved
	MaxAge   time.Duration // nodes with older reports take no part
	Margin   int64         // least gain of a move, in thousandths of a node's CPUs or of the mean pressure
}

// DefaultSettings returns the settings of production.
func DefaultSettings() Settings {
	return Settings{All: 10, PerNode: 2, PerOwner: 1, MinAge: 10 * time.Minute, MaxAge: model.ReportMaxAge, Margin: 30}
}

// Input is the cluster as the API shows it.
type Input struct {
	Nodes    []Node
	Pods     []Pod // on any node; those of unknown nodes do not count
	Budgets  []Budget
	Settings Settings
	Spent    Spent // by earlier moves of the same run
}

// Node is one node. CPU is in milli-cores.
type Node struct {
	Name        string
	Absent      Code          // why it takes no part; "": it does, if its report is young enough
	Age         time.Duration // of its report, negative if the report is from the future
	Closed      Code          // why it receives no pods; "": it does
	CPU         int64         // capacity
	Ceiling     int64         // capacity × waterline
	System      int64         // use of the system and of daemons
	Online      int64         // use of online pods
	Peak        int64         // predicted use of online pods within an hour
	Allocatable model.Amount  // to pods
	Slots       int           // most pods
}

// Pod is one pod that has not ended.
type Pod struct {
	UID       string
	Namespace string
	Name      string
	Node      string
	Owner     string // its workload
	Kept      Code   // why it must stay; "": it may be moved, as far as the API shows
	Online    bool   // it is an online pod; the others share no load of online pods
	Ready     bool
	Age       time.Duration
	Priority  int32
	Weight    int64        // in shares, of an annotation or a policy; 0: none
	Request   model.Amount // as the scheduler counts it
	Limit     int64        // CPU limit in milli-cores; 0: none
	Budget    string       // its PodDisruptionBudget; "": none
	// Names of the nodes that its selectors and tolerations allow, ascending; nil: any node.
	Where []string
}

// Budget is a PodDisruptionBudget.
type Budget struct {
	Name string
	Room int // pods that may be evicted now
}

// Spent counts moves.
type Spent struct {
	All   int
	From  map[string]int // by the node that they left
	To    map[string]int // by the node that they went to
	Owner map[string]int
}

// Code is a reason in one word. docs/rebalance.md explains each.
type Code string

// The reasons of a move.
const (
	CoolsNode     Code = "CoolsNode"     // its node is above the waterline
	SpreadsWeight Code = "SpreadsWeight" // the pressure of weights is higher on its node
)

// The reasons why a node takes no part, or receives no pods.
const (
	ReportMissing  Code = "ReportMissing"  // it has no NodeReport
	ReportInvalid  Code = "ReportInvalid"  // its report has no account of CPU, or an impossible one
	ReportStale    Code = "ReportStale"    // its report is too old
	NodeNotReady   Code = "NodeNotReady"   // its kubelet is not ready
	NodeWithdrawn  Code = "NodeWithdrawn"  // the manager has withdrawn its offer
	NodeDisabled   Code = "NodeDisabled"   // its policy is in mode Disabled
	Unschedulable  Code = "Unschedulable"  // it is cordoned: pods may leave it only
	NodeExhausted  Code = "NodeExhausted"  // its agent says that it is hot: pods may leave it only
	PressureIsHigh Code = "PressureIsHigh" // it has memory, disk or process pressure: pods may leave it only
)

// The reasons why a pod stays.
const (
	NoController     Code = "NoController"     // nothing would replace it
	NodeBound        Code = "NodeBound"        // it belongs to its node: of a DaemonSet, or static
	Critical         Code = "Critical"         // its priority class is a system-critical one
	NotOnline        Code = "NotOnline"        // it is batch or a daemon, whose load is limited otherwise
	NotReady         Code = "NotReady"         // it is not ready, or leaves already
	RunsToEnd        Code = "RunsToEnd"        // it is of a Job, or ends by itself otherwise: it would begin again
	Constrained      Code = "Constrained"      // it has rules of placement that are not evaluated here
	LocalData        Code = "LocalData"        // it has data on its node
	WantsToStay      Code = "WantsToStay"      // an annotation says that it must not be evicted
	TooYoung         Code = "TooYoung"         // it is younger than the settings allow
	OnlyReplica      Code = "OnlyReplica"      // its owner has no other ready pod
	DisruptionBudget Code = "DisruptionBudget" // its PodDisruptionBudget has no room
	FitsNowhere      Code = "FitsNowhere"      // no other node has room for it below the waterline
	SmallGain        Code = "SmallGain"        // moving it would improve less than the margin
	NodeSpent        Code = "NodeSpent"        // as many pods as may leave its node, or go to the others
	OwnerSpent       Code = "OwnerSpent"       // as many pods of its owner as may move
	AllSpent         Code = "AllSpent"         // as many pods as may move in total
)

// The ways in which a move can make something worse than planned.
const (
	SameNode     Code = "SameNode"     // the replacement runs on the node that the pod left
	UnknownNode  Code = "UnknownNode"  // it runs on a node that takes no part, whose load is not known
	HeatsNode    Code = "HeatsNode"    // the node on which it runs is hot with it
	MorePressure Code = "MorePressure" // weights have more pressure there than on the node that it left
)

// Level is the load and the weight pressure of a node.
type Level struct {
	Load     int64 `json:"load"`     // now or within an hour, whichever is higher, in milli-cores
	Pressure int64 `json:"pressure"` // weights against CPUs, in thousandths: 1000 is 1024 shares for each CPU
}

// Move is one pod that should leave its node.
type Move struct {
	UID       string       `json:"uid"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Owner     string       `json:"owner"`
	From      string       `json:"from"`
	To        string       `json:"to"` // where it fits best; the scheduler decides
	Reason    Code         `json:"reason"`
	Request   model.Amount `json:"request"`
	Weight    int64        `json:"weight,omitempty"` // in shares; 0: none of its own
	Estimate  int64        `json:"estimate"`         // its part of the load, in milli-cores
	// Levels of both nodes before and after this move.
	FromBefore Level `json:"fromBefore"`
	FromAfter  Level `json:"fromAfter"`
	ToBefore   Level `json:"toBefore"`
	ToAfter    Level `json:"toAfter"`
}

// Outcome is one node before and after all moves.
type Outcome struct {
	Name    string `json:"name"`
	Absent  Code   `json:"absent,omitempty"` // why it takes no part; the other fields are then zero
	CPU     int64  `json:"cpu,omitempty"`    // in milli-cores
	Ceiling int64  `json:"ceiling,omitempty"`
	Before  Level  `json:"before"`
	After   Level  `json:"after"`
	// Why pods stay on a node that stays hot, with their numbers.
	Stay map[Code]int `json:"stay,omitempty"`
}

// Plan is the list of moves, and what it does.
type Plan struct {
	Moves []Move    `json:"moves"` // in their order
	Nodes []Outcome `json:"nodes"` // of all nodes, ordered by name
}

// Decide decides which pods should leave their nodes. Pure: the same input gives the same plan, and the input is not
// changed.
func Decide(in Input) Plan {
	c := newCluster(in)
	plan := Plan{Nodes: c.outcomes()}
	for _, goal := range []func() (Move, bool){c.cool, c.spread} {
		for m, ok := goal(); ok; m, ok = goal() {
			c.move(&m)
			plan.Moves = append(plan.Moves, m)
		}
	}
	for i := range plan.Nodes {
		o := &plan.Nodes[i]
		if n := c.nodes[o.Name]; n != nil && o.Absent == "" {
			if o.After = n.level(); n.heat() > 0 {
				o.Stay = c.stay(n)
			}
		}
	}
	return plan
}

// Landed returns the input after a move, of which the replacement runs on a node under another UID. The replacement
// brings its part of the load, and is not moved again in the same run.
func Landed(in Input, m *Move, node, uid string) Input {
	in.Pods, in.Nodes, in.Budgets = slices.Clone(in.Pods), slices.Clone(in.Nodes), slices.Clone(in.Budgets)
	for i := range in.Pods {
		if p := &in.Pods[i]; p.UID == m.UID {
			p.UID, p.Node, p.Age = uid, node, 0
		}
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		share := int64(0)
		switch {
		case m.From == node:
		case n.Name == m.From:
			share = -m.Estimate
		case n.Name == node:
			share = m.Estimate
		}
		n.Online, n.Peak = max(0, n.Online+share), max(0, n.Peak+share)
	}
	in.Spent = in.Spent.plus(m.From, node, m.Owner)
	return in
}

// Keep returns the input with a pod that must stay. One that is [NotReady] no longer counts as a ready pod of its
// owner.
func Keep(in Input, uid string, why Code) Input {
	in.Pods = slices.Clone(in.Pods)
	for i := range in.Pods {
		if p := &in.Pods[i]; p.UID == uid {
			p.Kept, p.Ready = why, p.Ready && why != NotReady
		}
	}
	return in
}

// Harm returns why a move made something worse, given where the replacement landed; "" if it did not.
func Harm(in Input, m *Move, node string) Code {
	after := newCluster(Landed(in, m, node, m.UID))
	n := after.nodes[node]
	switch {
	case node == m.From:
		return SameNode
	case n == nil:
		return UnknownNode
	case n.heat() > 0:
		return HeatsNode
	}
	if m.Weight > 0 && n.level().Pressure > m.FromBefore.Pressure {
		return MorePressure
	}
	return ""
}

// plus returns a copy of the counts with one more move.
func (s Spent) plus(from, to, owner string) Spent {
	s.All++
	add := func(counts map[string]int, key string) map[string]int {
		more := maps.Clone(counts)
		if more == nil {
			more = map[string]int{}
		}
		more[key]++
		return more
	}
	s.From, s.To, s.Owner = add(s.From, from), add(s.To, to), add(s.Owner, owner)
	return s
}

// outcomes returns the nodes as they are.
func (c *cluster) outcomes() []Outcome {
	var all []Outcome
	for i := range c.in.Nodes {
		n := &c.in.Nodes[i]
		o := Outcome{Name: n.Name, Absent: absent(n, c.in.Settings.MaxAge)}
		if known := c.nodes[n.Name]; known != nil {
			o.CPU, o.Ceiling, o.Before = n.CPU, n.Ceiling, known.level()
			o.After = o.Before
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Outcome) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// absent returns why a node takes no part; "" if it does.
func absent(n *Node, maxAge time.Duration) Code {
	switch {
	case n.Absent != "":
		return n.Absent
	case n.CPU <= 0 || n.Ceiling <= 0 || n.Ceiling > n.CPU || n.System < 0 || n.Online < 0 || n.Peak < 0:
		return ReportInvalid
	case n.Age > maxAge || n.Age < -maxAge:
		return ReportStale
	}
	return ""
}

// byName orders pods by namespace and name, then UID.
func byName(a, b *pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(a.UID, b.UID))
}

// String returns the level as "4.20 CPUs, pressure 1.25".
func (l Level) String() string {
	return fmt.Sprintf("%d.%02d CPUs, pressure %d.%02d", l.Load/1000, l.Load%1000/10, l.Pressure/1000, l.Pressure%1000/10)
}
