package nodehealth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/golden"
)

// world is a cluster in which actions are carried out. Its nodes are objects of the API, not inputs of a node's round.
type world struct {
	at      time.Duration // on the manager's clock
	start   time.Duration // start of the case, on that clock
	nodes   []Node
	state   State
	deaf    bool // the view of the API is not up to date
	refuses bool // writes to the API fail
	kubelet map[string]bool
	fights  map[string]bool // the agent writes removed resources again
	out     strings.Builder
	said    map[string]bool
	sum     Summary
}

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the actions with their
// times. Rounds are two seconds apart. Running kubelets renew their Leases every ten seconds.
//
//	nodes N [WORD]...   nodes n0, n1, …, as by set; without words: ready up report
//	set NODE WORD...    agent: ready, unready, absent; kubelet: up, down;
//	                    report, noreport, own, koordinator, fights, gone
//	run SECONDS         let time pass
//	flap NODE A UP B DOWN TIMES
//	                    alternate UP for A seconds and DOWN for B seconds
//	restart             another manager takes over
//	api away, api back, writes fail, writes work
//	sleep SECONDS       the manager is suspended
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld()
		do := func(command string) error { w.command(t, strings.Fields(command)); return nil }
		return golden.Blocks(t, content, do, func() string {
			came := fmt.Sprintf("%sagents=%d lost=%d withdrawn=%d braked=%v\n",
				w.out.String(), w.sum.Agents, w.sum.Lost, w.sum.Withdrawn, w.sum.Braked)
			w = newWorld()
			return came
		})
	}, "testdata/*.case")
}

func newWorld() *world {
	return &world{
		at: 1000 * time.Hour, start: 1000 * time.Hour,
		kubelet: map[string]bool{}, fights: map[string]bool{}, said: map[string]bool{},
	}
}

func (w *world) command(t *testing.T, words []string) {
	t.Helper()
	number := func(i int) int {
		n, err := strconv.Atoi(words[i])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "api away":
		w.deaf = true
		return
	case "api back":
		w.deaf = false
		return
	case "writes fail":
		w.refuses = true
		return
	case "writes work":
		w.refuses = false
		return
	}
	switch words[0] {
	case "nodes":
		for i := range number(1) {
			w.nodes = append(w.nodes, Node{Name: fmt.Sprintf("n%d", i)})
			w.set(t, w.nodes[len(w.nodes)-1].Name, append([]string{"ready", "up", "report"}, words[2:]...))
		}
		slices.SortFunc(w.nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	case "set":
		w.set(t, words[1], words[2:])
	case "run":
		w.run(number(1))
	case "flap":
		for range number(6) {
			w.set(t, words[1], words[3:4])
			w.run(number(2))
			w.set(t, words[1], words[5:6])
			w.run(number(4))
		}
	case "restart":
		w.state = State{}
		w.start, w.at = w.start-w.at+7*time.Hour, 7*time.Hour // on another clock
		w.say("a new manager")
	case "sleep":
		w.at += time.Duration(number(1)) * time.Second
	default:
		t.Fatalf("unknown command %q", words)
	}
}

func (w *world) set(t *testing.T, name string, words []string) {
	t.Helper()
	i := slices.IndexFunc(w.nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("no node %s", name)
	}
	n := &w.nodes[i]
	for _, word := range words {
		switch word {
		case "ready":
			n.Agent = AgentReady
		case "unready":
			n.Agent = AgentNotReady
		case "absent":
			n.Agent = AgentAbsent
		case "up", "down":
			w.kubelet[name] = word == "up"
		case "report", "noreport":
			n.Report = word == "report"
		case "withdrawn":
			n.Withdrawn = true
		case "own":
			n.Own = true
		case "koordinator":
			n.Koordinator = true
		case "fights":
			w.fights[name] = true
		case "gone":
			n.Gone, n.Agent = true, AgentAbsent
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(&w.out, "%6s  %s\n", (w.at - w.start).String(), fmt.Sprintf(format, args...))
}

// run lets time pass.
func (w *world) run(seconds int) {
	for end := w.at + time.Duration(seconds)*time.Second; w.at < end; w.at += 2 * time.Second {
		for i := range w.nodes {
			if w.kubelet[w.nodes[i].Name] && !w.deaf {
				w.nodes[i].Lease = 1 + int64((w.at-w.start)/(10*time.Second))
			}
		}
		before := fmt.Sprintf("%+v", w.state)
		var actions []Action
		old := w.state
		actions, w.sum, w.state = Round(Input{w.at, !w.deaf, w.nodes, DefaultSettings()}, w.state)
		if fmt.Sprintf("%+v", old) != before {
			w.say("the given state was changed")
		}
		for _, a := range actions {
			w.do(a)
		}
	}
}

func (w *world) do(a Action) {
	line := fmt.Sprintf("%s %s: %s for %v", a.Verb, a.Node, a.Cause, a.For)
	if w.refuses {
		if key := fmt.Sprint(a.Verb, a.Node); !w.said[key] {
			w.said[key] = true
			w.say("%s; not written", line)
		}
		return
	}
	w.say("%s", line)
	i := slices.IndexFunc(w.nodes, func(n Node) bool { return n.Name == a.Node })
	n := &w.nodes[i]
	switch a.Verb {
	case Withdraw:
		n.Report, n.Withdrawn = true, true
	case Lift:
		n.Withdrawn = false
	case Tidy:
		n.Own = w.fights[n.Name]
	case Forget:
		n.Report, n.Withdrawn = false, false
		if n.Gone {
			w.nodes = slices.Delete(w.nodes, i, i+1)
		}
	}
}
