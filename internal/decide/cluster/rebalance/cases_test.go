package rebalance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A block is commands, a line of four dashes, and the plan.
//
//	settings [all=N] [pernode=N] [perowner=N] [margin=THOUSANDTHS] [minage=D] [maxage=D]
//	node NAME cpu=CPUS ceiling=PERCENT [system=CPUS] [online=CPUS] [peak=CPUS] [age=D] [absent=CODE] [closed=CODE]
//	    [allocatable=CPUS/GIB] [slots=N]
//	pod NAME on=NODE [owner=NAME] [request=CPUS/GIB] [limit=CPUS] [weight=SHARES] [kept=CODE] [batch] [unready]
//	    [age=D] [priority=N] [pdb=NAME] [where=NODE,NODE]
//	pdb NAME ROOM
//	gone pod NAME | gone node NAME
//	carried out                       all moves of the last plan happened, an hour ago
//	lands POD NODE                    also print what it means if the first move of that pod lands on a node
//
// Without age, pods are an hour old and reports a minute. Without owner, a pod belongs to the workload named before the
// last dash of its name.
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := &world{in: Input{Settings: DefaultSettings()}}
		return golden.Blocks(t, content, w.do, w.decide)
	}, "testdata/*.case")
}

// world is an imagined cluster.
type world struct {
	in    Input
	plan  Plan
	lands [][2]string
}

func (w *world) do(line string) error {
	words := strings.Fields(line)
	switch words[0] {
	case "settings":
		return w.set(words[1:])
	case "node":
		return w.node(words[1], words[2:])
	case "pod":
		return w.pod(words[1], words[2:])
	case "pdb":
		room, err := strconv.Atoi(words[2])
		w.in.Budgets = slices.DeleteFunc(w.in.Budgets, func(b Budget) bool { return b.Name == words[1] })
		w.in.Budgets = append(w.in.Budgets, Budget{Name: words[1], Room: room})
		return err
	case "gone":
		w.in.Pods = slices.DeleteFunc(w.in.Pods, func(p Pod) bool { return words[1] == "pod" && p.Name == words[2] })
		w.in.Nodes = slices.DeleteFunc(w.in.Nodes, func(n Node) bool { return words[1] == "node" && n.Name == words[2] })
	case "carried":
		for _, m := range w.plan.Moves {
			w.in = Landed(w.in, &m, m.To, m.UID)
		}
		for i := range w.in.Pods {
			w.in.Pods[i].Age += time.Hour
		}
		w.in.Spent = Spent{}
	case "lands":
		w.lands = append(w.lands, [2]string{words[1], words[2]})
	default:
		return fmt.Errorf("no command %q", words[0])
	}
	return nil
}

func (w *world) set(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		s := &w.in.Settings
		switch key {
		case "all":
			s.All = n
		case "pernode":
			s.PerNode = n
		case "perowner":
			s.PerOwner = n
		case "margin":
			s.Margin = int64(n)
		case "minage":
			s.MinAge = d
		case "maxage":
			s.MaxAge = d
		default:
			return fmt.Errorf("settings have no %q", key)
		}
	}
	return nil
}

func (w *world) node(name string, args []string) error {
	n := Node{Name: name, Age: time.Minute, Slots: 110}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "cpu":
			n.CPU = milli(value)
			n.Allocatable = model.Amount{CPU: n.CPU, Memory: 64 << 30}
		case "ceiling":
			n.Ceiling = n.CPU * milli(value) / 1000 / 100
		case "system":
			n.System = milli(value)
		case "online":
			n.Online = milli(value)
		case "peak":
			n.Peak = milli(value)
		case "age":
			d, err := time.ParseDuration(value)
			if n.Age = d; err != nil {
				return err
			}
		case "absent":
			n.Absent = Code(value)
		case "closed":
			n.Closed = Code(value)
		case "allocatable":
			n.Allocatable = amount(value)
		case "slots":
			n.Slots, _ = strconv.Atoi(value)
		default:
			return fmt.Errorf("a node has no %q", key)
		}
	}
	w.in.Nodes = append(slices.DeleteFunc(w.in.Nodes, func(o Node) bool { return o.Name == name }), n)
	return nil
}

func (w *world) pod(name string, args []string) error {
	p := Pod{UID: name, Namespace: "default", Name: name, Online: true, Ready: true, Age: time.Hour}
	p.Owner = name[:max(0, strings.LastIndexByte(name, '-'))]
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "on":
			p.Node = value
		case "owner":
			p.Owner = value
		case "request":
			p.Request = amount(value)
		case "limit":
			p.Limit = milli(value)
		case "weight":
			p.Weight, _ = strconv.ParseInt(value, 10, 64)
		case "kept":
			p.Kept = Code(value)
		case "batch":
			p.Online = false
		case "unready":
			p.Ready = false
		case "age":
			d, err := time.ParseDuration(value)
			if p.Age = d; err != nil {
				return err
			}
		case "priority":
			n, _ := strconv.Atoi(value)
			p.Priority = int32(n)
		case "pdb":
			p.Budget = value
		case "where":
			p.Where = strings.Split(value, ",")
			slices.Sort(p.Where)
		default:
			return fmt.Errorf("a pod has no %q", key)
		}
	}
	w.in.Pods = append(slices.DeleteFunc(w.in.Pods, func(o Pod) bool { return o.Name == name }), p)
	return nil
}

func milli(text string) int64 {
	value, _ := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	return int64(value*1000 + 0.5)
}

func amount(text string) model.Amount {
	cpu, memory, _ := strings.Cut(text, "/")
	return model.Amount{CPU: milli(cpu), Memory: milli(memory) * (1 << 30) / 1000}
}

func (w *world) decide() string {
	w.plan = Decide(w.in)
	var out strings.Builder
	for _, m := range w.plan.Moves {
		fmt.Fprintf(&out, "move %s from %s to %s  %s estimate=%s", m.Name, m.From, m.To, m.Reason, cores(m.Estimate))
		if m.Weight > 0 {
			fmt.Fprintf(&out, " weight=%d", m.Weight)
		}
		fmt.Fprintf(&out, "\n  %s: %s to %s\n  %s: %s to %s\n", m.From, m.FromBefore, m.FromAfter,
			m.To, m.ToBefore, m.ToAfter)
	}
	for _, o := range w.plan.Nodes {
		if o.Absent != "" {
			fmt.Fprintf(&out, "node %s takes no part: %s\n", o.Name, o.Absent)
			continue
		}
		fmt.Fprintf(&out, "node %s: %s to %s", o.Name, o.Before, o.After)
		if o.After.Load > o.Ceiling {
			fmt.Fprintf(&out, ", stays hot above %s:", cores(o.Ceiling))
			for _, code := range slices.Sorted(maps.Keys(o.Stay)) {
				fmt.Fprintf(&out, " %s=%d", code, o.Stay[code])
			}
		}
		out.WriteByte('\n')
	}
	for _, l := range w.lands {
		for _, m := range w.plan.Moves {
			if m.Name == l[0] {
				fmt.Fprintf(&out, "if %s lands on %s: %q\n", l[0], l[1], Harm(w.in, &m, l[1]))
			}
		}
	}
	w.lands = nil
	return out.String()
}

func cores(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', 2, 64) }
