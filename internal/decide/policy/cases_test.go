package policy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the decisions.
//
//	node UID [optedout=BY] [label=KEY:VALUE]...
//	policy NAME [priority=N] [nodes=KEY:VALUE] [rollout=PERCENT] [method=M] [window=NAME,START,END,ZONE[,PREDRAIN]]...
//	drop NAME                         the policy is deleted
//	at TIME                           print the effect at that time
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		var w world
		return golden.Blocks(t, content, w.do, w.decide)
	}, "testdata/*.case")
}

// world is a node and the policies of its cluster. Node is this package's own type of UID and labels.
type world struct {
	node     Node
	policies []model.ClusterPolicy
	times    []time.Time
}

func (w *world) do(line string) error {
	words := strings.Fields(line)
	switch words[0] {
	case "node":
		w.node = Node{UID: words[1], Labels: map[string]string{}}
		for _, word := range words[2:] {
			if by, out := strings.CutPrefix(word, "optedout="); out {
				w.node.OptedOut = by
				continue
			}
			key, value, _ := strings.Cut(strings.TrimPrefix(word, "label="), ":")
			w.node.Labels[key] = value
		}
	case "policy", "drop":
		w.policies = slicesWithout(w.policies, words[1])
		if words[0] == "drop" {
			return nil
		}
		p, err := parsePolicy(words[1], words[2:])
		w.policies = append(w.policies, p)
		return err
	case "at":
		at, err := time.Parse(time.RFC3339, words[1])
		w.times = append(w.times, at)
		return err
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

func slicesWithout(policies []model.ClusterPolicy, name string) []model.ClusterPolicy {
	var others []model.ClusterPolicy
	for _, p := range policies {
		if p.Name != name {
			others = append(others, p)
		}
	}
	return others
}

func parsePolicy(name string, words []string) (model.ClusterPolicy, error) {
	p := model.ClusterPolicy{Name: name, Rollout: model.DefaultRollout, Policy: fixture.Policy()}
	p.Policy.CPU.Method = model.SellPredicted
	for _, word := range words {
		var err error
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "priority":
			p.Priority, err = strconv.ParseInt(value, 10, 64)
		case "rollout":
			p.Rollout, err = strconv.ParseInt(value, 10, 64)
		case "nodes":
			k, v, _ := strings.Cut(value, ":")
			p.Nodes = model.Selector{{Key: k, Op: model.In, Values: []string{v}}}
		case "method":
			p.Policy.CPU.Method = model.SellMethod(value)
		case "window":
			var window model.Window
			window, err = parseWindow(value)
			p.Windows = append(p.Windows, window)
		default:
			err = fmt.Errorf("a policy has no %q", key)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// parseWindow reads NAME,START,END,ZONE[,PREDRAIN].
func parseWindow(text string) (model.Window, error) {
	parts := strings.Split(text, ",")
	w := model.Window{Name: parts[0]}
	for i, minutes := range []*int{&w.Start, &w.End} {
		at, err := time.Parse("15:04", parts[i+1])
		if err != nil {
			return w, err
		}
		*minutes = at.Hour()*60 + at.Minute()
	}
	zone, err := model.LoadTimeZone(parts[3])
	if err != nil {
		return w, err
	}
	w.Zone = zone
	if len(parts) > 4 {
		w.DrainBefore, err = time.ParseDuration(parts[4])
	}
	return w, err
}

// decide prints which policy governs the node, why the others do not, and the effect of the policy at the given
// times.
func (w *world) decide() string {
	var b strings.Builder
	choice := Choose(w.node, w.policies)
	fmt.Fprintf(&b, "governed by %q in mode %s  %s\n", choice.Policy.Name, choice.Policy.Policy.Mode, choice.Reason)
	for _, o := range choice.Others {
		fmt.Fprintf(&b, "not by %q  %s\n", o.Name, o.Reason)
	}
	for _, at := range w.times {
		e := At(&choice.Policy, at)
		fmt.Fprintf(&b, "%s  %s, method %q", at.Format(time.RFC3339), e.Selling, e.Policy.CPU.Method)
		if !e.Next.IsZero() {
			fmt.Fprintf(&b, ", next %s", e.Next.UTC().Format(time.RFC3339))
		}
		if e.Reason.Code != "" {
			fmt.Fprintf(&b, "  %s", e.Reason)
		}
		b.WriteByte('\n')
	}
	w.times = nil
	return b.String()
}
