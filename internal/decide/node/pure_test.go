package node_test

import (
	"encoding/json"
	"fmt"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
)

// decision is a way to decide a round.
type decision func(n model.Node, p model.Policy, s node.State) (model.Plan, node.State)

// arguments are what a round is decided from, as the journal holds it.
type arguments struct {
	Node   model.Node
	Policy model.Policy
	State  node.State
}

// outcome is what a round decided.
type outcome struct {
	Plan  model.Plan
	State node.State
}

// purely decides a round, and checks that it changed nothing that it was given, and that the arguments, written and
// read again as the journal does, give the same plan and state.
func purely(decide decision, n model.Node, p model.Policy, s node.State) (model.Plan, node.State, error) {
	in := arguments{n, p, s}
	before := encoded(in)
	plan, next := decide(n, p, s)
	got := encoded(outcome{plan, next})
	if after := encoded(in); string(before) != string(after) {
		return plan, next, fmt.Errorf("the round changed its arguments from\n%s\nto\n%s", before, after)
	}
	var read arguments
	if err := json.Unmarshal(before, &read); err != nil {
		return plan, next, fmt.Errorf("the arguments cannot be read again: %w", err)
	}
	plan2, next2 := decide(read.Node, read.Policy, read.State)
	if replayed := encoded(outcome{plan2, next2}); string(got) != string(replayed) {
		return plan, next, fmt.Errorf("decided was\n%s\nand from the written arguments\n%s", got, replayed)
	}
	return plan, next, nil
}

func encoded(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// knowing decides with the peaks of a world.
func (w *world) knowing(n model.Node, p model.Policy, s node.State) (model.Plan, node.State) {
	return node.DecideKnowing(w.peaks, n, p, s)
}

// settled decides a round in the world, purely.
func (w *world) settled() model.Plan {
	plan, next, err := purely(w.knowing, w.node, w.policy, w.state)
	if err != nil {
		panic(err)
	}
	w.state = next
	return plan
}
