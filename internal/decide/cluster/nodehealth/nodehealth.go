// Package nodehealth decides which nodes may sell nothing because their agent or kubelet is lost, and what to clean
// up after lost agents.
//
// A node is lost when its agent is not ready, or its kubelet does not renew its Lease, for some time without
// interruption. It is back when both are well for some time. In between nothing changes, so a node that flaps is not
// withdrawn and offered in turns.
//
// Nothing is decided on old data. Only time counts in which the view of the API was up to date; otherwise the clock
// of this package stands still. A manager that starts has observed nothing yet, so it withdraws nothing before the
// time that a node must be lost. Only changes of a Lease count, never the times in it, which come from another clock.
// Where Leases are renewed late, nodes are lost later: a late cluster is not a dead one.
package nodehealth

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Settings are the durations of the rule.
type Settings struct {
	LostAfter   time.Duration // a node without a ready agent or a renewed Lease is lost after this time
	FreshWithin time.Duration // a Lease renewed within this time is fresh
	// A node with a ready agent and a fresh Lease is back after this time; longer if it was lost recently.
	BackAfter time.Duration
	// Time for the agent to remove its resources from the Node after a withdrawal; then the manager removes them.
	TidyAfter   time.Duration
	AgainAfter  time.Duration // interval between checks of what bound pods keep on a Node
	ForgetAfter time.Duration // a node without an agent and without resources loses its report after this time
}

// DefaultSettings returns the settings of production.
func DefaultSettings() Settings {
	return Settings{
		LostAfter: time.Minute, FreshWithin: 25 * time.Second, BackAfter: 30 * time.Second,
		TidyAfter: 10 * time.Second, AgainAfter: 5 * time.Minute, ForgetAfter: 10 * time.Minute,
	}
}

// The brake. If more than a fifth of all agents look dead at once, the manager doubts its own view. It then withdraws
// at most a hundredth of the nodes per minute, at least one.
const (
	doubtPart   = 5   // a fifth
	brakedPart  = 100 // a hundredth
	brakedEvery = time.Minute
)

// strikeExpiry is the time after its last withdrawal after which a node counts as never lost.
const strikeExpiry = time.Hour

// maxRoundGap is the longest counted time between two rounds. After a longer pause of the process, missed changes are
// possible.
const maxRoundGap = 10 * time.Second

// AgentState is the state of a node's agent.
type AgentState uint8

// The states of an agent. The zero value means that there is no agent.
const (
	AgentAbsent AgentState = iota
	AgentNotReady
	AgentReady
)

// Node is one node as the API shows it.
type Node struct {
	Name        string
	Gone        bool // there is no Node object; only its report is left
	Agent       AgentState
	Lease       int64 // renewal time as the kubelet wrote it, of which only changes count; 0: no Lease
	Report      bool  // it has a NodeReport
	Withdrawn   bool  // the report says that the offer is withdrawn
	Own         bool  // the Node has resources under Waterline's names
	Koordinator bool  // the Node has resources under Koordinator's names
}

// watched reports whether the node has anything to withdraw.
func (n *Node) watched() bool { return !n.Gone && (n.Report || n.Own || n.Koordinator) }

// Input is the input of one round.
type Input struct {
	At       time.Duration // on a monotonic clock
	Fresh    bool          // the view of the API is up to date
	Nodes    []Node        // all nodes, ordered by name
	Settings Settings
}

// Verb is an action on a node.
type Verb string

// The verbs.
const (
	Withdraw Verb = "Withdraw" // mark the offer as withdrawn in the report; create the report if necessary
	Lift     Verb = "Lift"     // remove that mark
	Tidy     Verb = "Tidy"     // remove the resources from the Node that its pods do not need
	Forget   Verb = "Forget"   // delete the report
)

// Cause is the reason for an action.
type Cause string

// The causes.
const (
	AgentNotThere Cause = "AgentNotThere" // the node has no agent pod
	AgentUnready  Cause = "AgentNotReady" // the agent pod is not ready
	KubeletLost   Cause = "KubeletLost"   // the kubelet does not renew its Lease
	Recovered     Cause = "Recovered"     // agent and kubelet are healthy again
	NodeGone      Cause = "NodeGone"      // there is no Node object of this name
)

// Action is one action to carry out. Each round returns it again until its effect shows.
type Action struct {
	Node  string
	Verb  Verb
	Cause Cause
	For   time.Duration // observed duration of the cause
}

// Summary counts the nodes of a round.
type Summary struct {
	Agents    int  // nodes that have an agent or had one
	Lost      int  // of them, nodes that look lost
	Withdrawn int  // of them, nodes whose offer is to be withdrawn
	Braked    bool // so many nodes look lost that the manager doubts its view
	// A node is lost after this time: longer than the settings say where Leases are renewed late.
	LostAfter time.Duration
}

// State is the state between rounds. The zero value knows nothing.
type State struct {
	at     time.Duration // of the previous round
	fresh  bool          // Fresh of the previous round
	clock  time.Duration // counted time
	nodes  map[string]node
	recent []time.Duration // times of withdrawals, within brakedEvery
	leases intervals
}

// node is the state of one node, with times in counted time.
type node struct {
	lease       int64
	renewed     time.Duration // when the Lease was seen to change last, or first seen
	proven      bool          // the Lease was seen to change
	ready       bool
	readyTurned time.Duration // when ready changed last
	watched     bool
	since       time.Duration // when watched changed last
	wellSince   time.Duration // -1: not well
	withdrawn   bool          // as decided
	lifting     bool          // the withdrawal is lifted, but the report still shows it
	shown       time.Duration // since when the report shows the withdrawal; -1: it does not
	tidied      time.Duration // when Tidy was returned last; -1: never
	strikes     int           // number of withdrawals, each within an hour of the previous one
	struck      time.Duration // time of the last one
}

// candidate is a node that should be withdrawn.
type candidate struct {
	name  string
	cause Cause
	since time.Duration
}

// Round returns the actions to carry out now. It does not change s.
func Round(in Input, s State) ([]Action, Summary, State) {
	elapsed := in.At - s.at
	next := State{at: in.At, fresh: in.Fresh, clock: s.clock, nodes: s.nodes, recent: s.recent, leases: s.leases}
	if !in.Fresh {
		return nil, Summary{}, next
	}
	if s.fresh && elapsed > 0 && elapsed <= maxRoundGap {
		next.clock += elapsed
	}
	next.leases.turn(next.clock)
	in.Settings = next.leases.patient(in.Settings)
	next.nodes = make(map[string]node, len(in.Nodes))
	var sum Summary
	var lost []candidate
	for i := range in.Nodes {
		seen := &in.Nodes[i]
		before, known := s.nodes[seen.Name]
		if known && before.proven && seen.Lease != 0 && seen.Lease != before.lease {
			next.leases.add(next.clock - before.renewed)
		}
		n := observe(seen, before, known, next.clock, in.Settings)
		cause, since := n.loss(seen)
		if seen.Agent != AgentAbsent && !seen.Gone || n.watched {
			sum.Agents++
		}
		if n.watched && cause != "" {
			age := next.clock - since
			if age*2 >= in.Settings.LostAfter {
				sum.Lost++ // agents rarely fail all at the same moment
			}
			if age > in.Settings.LostAfter && !n.withdrawn {
				lost = append(lost, candidate{seen.Name, cause, since})
			}
		}
		next.nodes[seen.Name] = n
	}
	sum.Braked = sum.Lost*doubtPart > sum.Agents
	sum.LostAfter = in.Settings.LostAfter
	next.withdraw(lost, sum)
	var actions []Action
	for i := range in.Nodes {
		seen := &in.Nodes[i]
		n := next.nodes[seen.Name]
		actions = append(actions, n.actions(seen, next.clock, in.Settings)...)
		next.nodes[seen.Name] = n
		if n.withdrawn {
			sum.Withdrawn++
		}
	}
	return actions, sum, next
}

// withdraw decides which of the lost nodes are withdrawn now: all of them, or while the brake is on a limited number,
// those first that have been lost longest.
func (s *State) withdraw(lost []candidate, sum Summary) {
	s.recent = slices.DeleteFunc(slices.Clone(s.recent), func(at time.Duration) bool {
		return s.clock-at >= brakedEvery
	})
	slices.SortFunc(lost, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.since, b.since), strings.Compare(a.name, b.name))
	})
	for _, c := range lost {
		if sum.Braked && len(s.recent) >= max(1, sum.Agents/brakedPart) {
			return
		}
		s.recent = append(s.recent, s.clock)
		n := s.nodes[c.name]
		if s.clock-n.struck >= strikeExpiry {
			n.strikes = 0
		}
		n.withdrawn, n.lifting, n.struck = true, false, s.clock
		n.strikes++
		s.nodes[c.name] = n
	}
}

// observe returns the updated state of a node.
func observe(seen *Node, n node, known bool, clock time.Duration, set Settings) node {
	if !known {
		n = node{
			lease: seen.Lease, renewed: clock, ready: seen.Agent == AgentReady, readyTurned: clock, since: clock,
			wellSince: -1, withdrawn: seen.Withdrawn, shown: -1, tidied: -1,
		}
	}
	if seen.Lease != n.lease {
		n.proven = n.lease != 0 && seen.Lease != 0
		n.lease, n.renewed = seen.Lease, clock
	}
	if ready := seen.Agent == AgentReady; ready != n.ready {
		n.ready, n.readyTurned = ready, clock
	}
	// Only time counts in which there was something to withdraw: on a new node the agent starts after the kubelet.
	if watched := seen.watched(); watched != n.watched {
		n.watched, n.since = watched, clock
	}
	switch {
	case !seen.Withdrawn:
		n.shown, n.lifting = -1, false
	case n.shown < 0:
		n.shown = clock
		n.withdrawn = n.withdrawn || !n.lifting // withdrawn by the previous leader
	}
	if !n.watched {
		n.withdrawn, n.lifting, n.shown = false, false, -1
	}
	well := n.watched && n.ready && n.proven && clock-n.renewed <= set.FreshWithin
	switch {
	case !well:
		n.wellSince = -1
	case n.wellSince < 0:
		n.wellSince = clock
	}
	if n.withdrawn && well && clock-n.wellSince >= n.patience(set) {
		n.withdrawn, n.lifting = false, seen.Withdrawn
	}
	return n
}

// patience returns how long a node must be well to be back. Each withdrawal within an hour of another doubles it, up
// to sixteen times.
func (n *node) patience(set Settings) time.Duration {
	return set.BackAfter << min(max(n.strikes-1, 0), 4)
}

// loss returns why a node is lost, and since when. If the kubelet is lost, the state of the agent is not known.
func (n *node) loss(seen *Node) (Cause, time.Duration) {
	lease := max(n.renewed, n.since)
	if n.ready {
		return KubeletLost, lease
	}
	agent := max(n.readyTurned, n.since)
	switch {
	case lease < agent:
		return KubeletLost, lease
	case seen.Agent == AgentAbsent:
		return AgentNotThere, agent
	}
	return AgentUnready, agent
}

// actions returns the remaining actions on a node.
func (n *node) actions(seen *Node, clock time.Duration, set Settings) []Action {
	cause, since := n.loss(seen)
	act := func(verb Verb) []Action { return []Action{{seen.Name, verb, cause, clock - since}} }
	switch {
	case seen.Gone:
		if seen.Report && clock-n.since > set.LostAfter {
			return []Action{{seen.Name, Forget, NodeGone, clock - n.since}}
		}
	case n.withdrawn && !seen.Withdrawn:
		return act(Withdraw)
	case !n.withdrawn && seen.Withdrawn:
		return []Action{{seen.Name, Lift, Recovered, clock - max(n.wellSince, 0)}}
	case !n.withdrawn:
	case seen.Own || seen.Koordinator:
		wait := set.AgainAfter
		if seen.Own {
			// If the agent is alive and writes the resources again, there is no fight over them.
			wait = set.LostAfter / 2
		}
		if clock-n.shown >= set.TidyAfter && (n.tidied < n.shown || clock-n.tidied >= wait) {
			n.tidied = clock
			return act(Tidy)
		}
	case seen.Agent == AgentAbsent && clock-max(n.readyTurned, n.since) >= set.ForgetAfter:
		return act(Forget)
	}
	return nil
}
