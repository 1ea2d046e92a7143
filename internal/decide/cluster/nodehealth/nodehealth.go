// Package nodehealth decides which nodes may sell nothing because nobody looks after them any more, and what is cleaned up
// after their agents.
//
// A node is lost when its agent is not ready, or its kubelet has not renewed its Lease, for a while without a pause. It is
// back when both were well for a while. In between nothing changes, so a node that flaps is not withdrawn and offered by
// turns.
//
// Nothing is decided on old data. What counts is time in which the API was seen to be up to date; it stands still while that
// is not known. A manager that starts has seen nothing yet, so it withdraws nothing for as long as a node must be lost. Only
// changes of a Lease count, never the times in it, which are those of another clock.
package nodehealth

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Settings are how long things take.
type Settings struct {
	LostAfter   time.Duration // without a ready agent, or a renewed Lease, a node is lost
	FreshWithin time.Duration // of its last renewal a Lease is fresh
	BackAfter   time.Duration // with a ready agent and a fresh Lease a node is back; longer for one that was lost lately
	TidyAfter   time.Duration // of a withdrawal the agent has taken off the Node what is to go, or it is done for it
	AgainAfter  time.Duration // what bound pods keep on a Node is looked at again
	ForgetAfter time.Duration // without an agent, and with nothing left on the Node, its report is deleted
}

// DefaultSettings are those of production.
func DefaultSettings() Settings {
	return Settings{
		LostAfter: time.Minute, FreshWithin: 25 * time.Second, BackAfter: 30 * time.Second,
		TidyAfter: 10 * time.Second, AgainAfter: 5 * time.Minute, ForgetAfter: 10 * time.Minute,
	}
}

// The brake: where more than this part of all agents look dead at once, the manager rather doubts itself, and withdraws at
// most so many nodes in a minute, one at least.
const (
	doubtPart   = 5   // a fifth
	brakedPart  = 100 // a hundredth
	brakedEvery = time.Minute
)

// forgiven is how long after its last withdrawal a node counts as one that was never lost.
const forgiven = time.Hour

// lateRound is the longest time between two rounds that counts: of a process that stood still nobody knows what it missed.
const lateRound = 10 * time.Second

// AgentState is how a node's agent does.
type AgentState uint8

// The states of an agent. The zero value: there is none.
const (
	AgentAbsent AgentState = iota
	AgentNotReady
	AgentReady
)

// Node is what the API shows of one node.
type Node struct {
	Name        string
	Gone        bool // there is no Node; only its report is left
	Agent       AgentState
	Lease       int64 // the time of renewal that its kubelet wrote, of which only changes count; 0: there is none
	Report      bool  // it has a report
	Withdrawn   bool  // which says that its offer is withdrawn
	Own         bool  // resources in our own names stand on the Node
	Koordinator bool  // resources in Koordinator's names do
}

// overseen reports whether there is anything that could be withdrawn.
func (n *Node) overseen() bool { return !n.Gone && (n.Report || n.Own || n.Koordinator) }

// Input is what one round is decided from.
type Input struct {
	At       time.Duration // by a clock that only goes forward and is never set
	Fresh    bool          // what is known of the API is up to date
	Nodes    []Node        // all of them, ordered by name
	Settings Settings
}

// Verb is what is done about a node.
type Verb string

// What is done.
const (
	Withdraw Verb = "Withdraw" // say in its report that its offer is withdrawn; make a report if there is none
	Lift     Verb = "Lift"     // say that it no longer is
	Tidy     Verb = "Tidy"     // take off the Node what its pods do not need
	Forget   Verb = "Forget"   // delete its report
)

// Cause is why.
type Cause string

// The causes.
const (
	AgentNotThere Cause = "AgentNotThere" // no agent pod is on the node
	AgentUnready  Cause = "AgentNotReady" // there is one, and it is not ready
	KubeletLost   Cause = "KubeletLost"   // its kubelet does not renew its Lease
	Recovered     Cause = "Recovered"     // agent and kubelet are well again
	NodeGone      Cause = "NodeGone"      // there is no such Node
)

// Action is one thing to do. It is wanted again in each round until it shows.
type Action struct {
	Node  string
	Verb  Verb
	Cause Cause
	For   time.Duration // how long the cause has been there, as far as was seen
}

// Summary counts what a round found.
type Summary struct {
	Agents    int  // nodes that have, or had, an agent
	Lost      int  // of them, those that look lost
	Withdrawn int  // of them, those whose offer is to be withdrawn
	Braked    bool // so many look lost that the manager doubts itself
}

// State is what must be known of earlier rounds. The zero value knows nothing.
type State struct {
	at     time.Duration // of the last round
	fresh  bool          // it was
	clock  time.Duration // time that counts
	nodes  map[string]node
	recent []time.Duration // when offers were withdrawn, within brakedEvery
}

// node is what is known of a node, with times of the clock that counts.
type node struct {
	lease       int64
	renewed     time.Duration // when the Lease was last seen to change; when it was first seen
	proven      bool          // it was seen to change
	ready       bool
	readyTurned time.Duration // when ready last changed
	overseen    bool
	since       time.Duration // when it began to be overseen
	wellSince   time.Duration // -1: it is not well
	withdrawn   bool          // as decided
	lifting     bool          // was withdrawn, and the report still says so
	shown       time.Duration // since when the report says so; -1: it does not
	tidied      time.Duration // when that was last asked for; -1: never
	strikes     int           // withdrawals, each within an hour of the one before
	struck      time.Duration // the last of them
}

// candidate is a node that should be withdrawn.
type candidate struct {
	name  string
	cause Cause
	since time.Duration
}

// Round decides what to do now. It does not change the state that it is given.
func Round(in Input, s State) ([]Action, Summary, State) {
	elapsed := in.At - s.at
	next := State{at: in.At, fresh: in.Fresh, clock: s.clock, nodes: s.nodes, recent: s.recent}
	if !in.Fresh {
		return nil, Summary{}, next
	}
	if s.fresh && elapsed > 0 && elapsed <= lateRound {
		next.clock += elapsed
	}
	next.nodes = make(map[string]node, len(in.Nodes))
	var sum Summary
	var lost []candidate
	for i := range in.Nodes {
		seen := &in.Nodes[i]
		before, known := s.nodes[seen.Name]
		n := observe(seen, before, known, next.clock, in.Settings)
		cause, since := n.trouble(seen)
		if seen.Agent != AgentAbsent && !seen.Gone || n.overseen {
			sum.Agents++
		}
		if n.overseen && cause != "" {
			age := next.clock - since
			if age*2 >= in.Settings.LostAfter {
				sum.Lost++ // they rarely die all at the same moment
			}
			if age > in.Settings.LostAfter && !n.withdrawn {
				lost = append(lost, candidate{seen.Name, cause, since})
			}
		}
		next.nodes[seen.Name] = n
	}
	sum.Braked = sum.Lost*doubtPart > sum.Agents
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

// withdraw decides which of the lost nodes are withdrawn now: all, or while the brake is on as many as it lets pass, those
// first that are lost longest.
func (s *State) withdraw(lost []candidate, sum Summary) {
	s.recent = slices.DeleteFunc(slices.Clone(s.recent), func(at time.Duration) bool { return s.clock-at >= brakedEvery })
	slices.SortFunc(lost, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.since, b.since), strings.Compare(a.name, b.name))
	})
	for _, c := range lost {
		if sum.Braked && len(s.recent) >= max(1, sum.Agents/brakedPart) {
			return
		}
		s.recent = append(s.recent, s.clock)
		n := s.nodes[c.name]
		if s.clock-n.struck >= forgiven {
			n.strikes = 0
		}
		n.withdrawn, n.lifting, n.struck = true, false, s.clock
		n.strikes++
		s.nodes[c.name] = n
	}
}

// observe brings what is known of a node up to date.
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
	// What happened before there was anything to withdraw does not count: on a new node the agent comes after the kubelet.
	if overseen := seen.overseen(); overseen != n.overseen {
		n.overseen, n.since = overseen, clock
	}
	switch {
	case !seen.Withdrawn:
		n.shown, n.lifting = -1, false
	case n.shown < 0:
		n.shown = clock
		n.withdrawn = n.withdrawn || !n.lifting // by the leader before us
	}
	if !n.overseen {
		n.withdrawn, n.lifting, n.shown = false, false, -1
	}
	well := n.overseen && n.ready && n.proven && clock-n.renewed <= set.FreshWithin
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

// patience returns how long a node must be well to be back: each withdrawal within an hour of another doubles it, up to
// sixteen times.
func (n *node) patience(set Settings) time.Duration {
	return set.BackAfter << min(max(n.strikes-1, 0), 4)
}

// trouble returns what is wrong with a node, and since when. Where the kubelet is lost, nobody knows about the agent.
func (n *node) trouble(seen *Node) (Cause, time.Duration) {
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

// actions returns what is still to be done about a node.
func (n *node) actions(seen *Node, clock time.Duration, set Settings) []Action {
	cause, since := n.trouble(seen)
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
			wait = set.LostAfter / 2 // should the agent live and write it again, it is not fought over
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
