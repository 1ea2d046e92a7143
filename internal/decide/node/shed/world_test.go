package shed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/golden"
)

const mib = 1 << 20

// start is the time at which worlds begin.
var start = time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)

// body is a container of a world, and how it behaves.
type body struct {
	Container
	memory int64         // bytes that it really uses
	obeys  time.Duration // from SIGTERM to its end; negative: it ignores SIGTERM
	moves  time.Duration // from the decommission signal to its end; 0: never
	dies   time.Duration // from SIGKILL to its end; negative: never
	ends   time.Time     // when it ends; zero: not by itself
}

// world is a worker that obeys the rule.
type world struct {
	now       time.Time
	settings  Settings
	allowance Allowance
	limit     int64 // of memory, in bytes
	cache     int64
	cpu       CPU
	bodies    []*body
	silent    bool // the NodeManager does not answer
	blind     bool // processes are not looked for
	unmetered bool // the cgroup is not read
	rmKills   bool // the ResourceManager kills at the deadline

	listed  time.Time
	list    map[string]Container
	scanned time.Time
	memory  Memory
	outcome Outcome
	state   State
	last    Decision
	log     []string
}

func newWorld() *world {
	return &world{now: start, settings: DefaultSettings(), list: map[string]Container{}}
}

// look reads everything.
func (w *world) look() Input {
	in := Input{Now: w.now, Settings: w.settings, Allowance: w.allowance, CPU: w.cpu, Outcome: w.outcome}
	if in.CPU.Limit > 0 {
		in.CPU.At = w.now
	}
	if !w.silent {
		w.listed = w.now
		for _, b := range w.bodies {
			w.list[b.ID] = b.Container
		}
	}
	if !w.blind {
		w.scanned = w.now
	}
	used := w.cache
	for _, b := range w.bodies {
		used += b.memory
	}
	if !w.unmetered {
		w.memory = Memory{At: w.now, Used: used, Reclaimable: w.cache, Limit: w.limit}
	}
	in.Listed, in.Scanned, in.Memory = w.listed, w.scanned, w.memory
	for _, b := range w.bodies {
		c, known := w.list[b.ID]
		if !known {
			c = Container{ID: b.ID, Master: true, Started: b.Started, Decommissions: b.Decommissions}
		}
		c.Known, c.Processes, c.Refused = known, b.Processes, b.Refused
		c.Remote = b.Remote && known && !w.silent
		in.Container = append(in.Container, c)
	}
	return in
}

// second passes, and the worker does what was decided.
func (w *world) second() Decision {
	w.now = w.now.Add(time.Second)
	w.bodies = slices.DeleteFunc(w.bodies, func(b *body) bool { return !b.ends.IsZero() && !w.now.Before(b.ends) })
	if u := w.allowance.Until; w.rmKills && !u.IsZero() && !w.now.Before(u.Add(2*time.Second)) {
		w.killNewest()
	}
	in := w.look()
	w.last, w.state = Decide(&in, w.state)
	w.outcome = Outcome{}
	if w.last.Signal != None {
		w.signal(w.last)
	}
	return w.last
}

// killNewest is the ResourceManager.
func (w *world) killNewest() {
	for {
		in := w.look()
		r := round{in: &in}
		if r.sort(); !r.over().any() || len(r.order) == 0 {
			return
		}
		w.bodies = slices.DeleteFunc(w.bodies, func(b *body) bool { return b.ID == r.order[0].ID })
	}
}

func (w *world) signal(d Decision) {
	i := slices.IndexFunc(w.bodies, func(b *body) bool { return b.ID == d.Container })
	w.outcome.Container = d.Container
	if i < 0 {
		return
	}
	b := w.bodies[i]
	if w.log = append(w.log, fmt.Sprintf("%s %-4s %s  %s", w.at(), d.Signal, d.Container, d.Reason)); b.refuses() {
		b.Refused = w.now
		return
	}
	if w.outcome.Delivered = b.Processes; b.Remote {
		w.outcome.Delivered = 1
	}
	switch {
	case d.Signal == Decommission && b.moves > 0:
		b.ends = w.now.Add(b.moves)
	case d.Signal == Terminate && b.obeys >= 0:
		b.ends = w.now.Add(b.obeys)
	case d.Signal == Kill && b.dies >= 0:
		b.ends = w.now.Add(b.dies)
	}
}

// refuses reports whether the kernel delivers no signal to a container: those that a case calls foreign.
func (b *body) refuses() bool { return strings.HasPrefix(b.ID, "foreign") }

// at is the time since the beginning of the world.
func (w *world) at() string { return fmt.Sprintf("%4.0fs", w.now.Sub(start).Seconds()) }

// TestTranscripts shows what the rule does to workers that an operator could have.
func TestTranscripts(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld()
		return golden.Blocks(t, content, w.do, w.outcomeOf)
	}, "testdata/*.case")
}

// outcomeOf prints what was done since the last time, and what is left.
func (w *world) outcomeOf() string {
	var b strings.Builder
	for _, line := range w.log {
		fmt.Fprintln(&b, line)
	}
	w.log = nil
	var left []string
	for _, c := range w.bodies {
		left = append(left, c.ID)
	}
	fmt.Fprintf(&b, "%s left: %s\n", w.at(), strings.Join(left, " "))
	if w.last.Signal == None && w.last.Reason.Code != "" {
		fmt.Fprintf(&b, "%s waits: %s\n", w.at(), w.last.Reason)
	}
	return b.String()
}

// do carries out a command of a case.
func (w *world) do(command string) error {
	words := strings.Fields(command)
	named := map[string]string{}
	for _, word := range words[1:] {
		k, v, _ := strings.Cut(word, "=")
		named[k] = v
	}
	var firstErr error
	number := func(k string) int64 {
		n, err := strconv.ParseInt(named[k], 10, 64)
		if err != nil && named[k] != "" {
			firstErr = fmt.Errorf("%s: %w", k, err)
		}
		return n
	}
	span := func(k string, none time.Duration) time.Duration {
		if named[k] == "" {
			return none
		}
		if named[k] == "never" {
			return -1
		}
		d, err := time.ParseDuration(named[k])
		if err != nil {
			firstErr = fmt.Errorf("%s: %w", k, err)
		}
		return d
	}
	switch words[0] {
	case "settings":
		w.settings = Settings{int(number("kills")), number("hard")}
	case "allowance":
		w.allowance = Allowance{MemoryMiB: number("mib"), VCores: number("vcores")}
		if d := span("until", 0); d != 0 {
			w.allowance.Until = w.now.Add(d)
		}
	case "memory":
		w.limit, w.cache = number("limit")*mib, number("cache")*mib
	case "cpu":
		w.cpu = CPU{Milli: number("used"), Limit: number("limit"), Throttled: number("throttled")}
	case "container":
		b := &body{
			Container: Container{
				ID: words[1], MemoryMiB: number("mib"), VCores: max(number("vcores"), 1), Holds: true,
				Started: w.now.Add(-span("ran", 0)), Processes: 2,
			},
			memory: number("uses") * mib, obeys: span("obeys", 0), moves: span("moves", 0), dies: span("dies", 0),
		}
		_, b.Master = named["master"]
		_, b.Opportunistic = named["opportunistic"]
		_, b.Ended = named["ended"]
		_, b.Decommissions = named["spark"]
		if _, b.Remote = named["remote"]; b.Remote {
			b.Processes, b.Started = 0, time.Time{}
		}
		if _, starts := named["starting"]; starts {
			b.Processes, b.Started = 0, time.Time{}
		}
		w.bodies = append(slices.DeleteFunc(w.bodies, func(o *body) bool { return o.ID == b.ID }), b)
	case "uses":
		for _, b := range w.bodies {
			if b.ID == words[1] {
				b.memory = number("mib") * mib
			}
		}
	case "nm":
		w.silent = words[1] == "silent"
	case "restart": // of the guard
		w.state, w.list, w.listed, w.scanned, w.memory = State{}, map[string]Container{}, time.Time{}, time.Time{}, Memory{}
	case "processes":
		w.blind = words[1] == "unread"
	case "cgroup":
		w.unmetered = words[1] == "unread"
	case "rm":
		w.rmKills = words[1] == "kills"
	case "run":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return err
		}
		for range d / time.Second {
			w.second()
		}
	default:
		return fmt.Errorf("unknown command %q", words[0])
	}
	return firstErr
}

// randomWorld returns a worker with a few containers.
func randomWorld(r *rand.Rand) *world {
	w := newWorld()
	w.settings.KillsPerMinute = r.IntN(4)
	w.limit = int64(r.IntN(3)) * 8192 * mib
	for i := range r.IntN(7) {
		b := &body{
			Container: Container{
				ID: fmt.Sprintf("c%d", i), MemoryMiB: int64(512 * (1 + r.IntN(4))), VCores: int64(1 + r.IntN(3)), Holds: true,
				Master: r.IntN(4) == 0, Opportunistic: r.IntN(4) == 0, Ended: r.IntN(10) == 0,
				Decommissions: r.IntN(2) == 0, Started: w.now.Add(-time.Duration(r.IntN(900)) * time.Second), Processes: 1,
			},
			obeys: time.Duration(r.IntN(4)-1) * time.Second, moves: time.Duration(r.IntN(40)) * time.Second,
			dies: time.Duration(r.IntN(3)) * time.Second,
		}
		if r.IntN(8) == 0 {
			b.Processes, b.Started = 0, time.Time{}
		}
		if r.IntN(12) == 0 {
			b.ID = "foreign-" + b.ID
		}
		if r.IntN(12) == 0 {
			b.dies = -1
		}
		b.memory = b.MemoryMiB * mib * int64(r.IntN(6)) / 2
		w.bodies = append(w.bodies, b)
	}
	return w
}

// shake changes a world at random.
func (w *world) shake(r *rand.Rand) {
	switch r.IntN(30) {
	case 0:
		w.silent = !w.silent
	case 1:
		w.blind = !w.blind
	case 2:
		w.unmetered = !w.unmetered
	case 3:
		w.allowance = Allowance{MemoryMiB: int64(r.IntN(6000)), VCores: int64(r.IntN(12))}
		if r.IntN(4) > 0 {
			w.allowance.Until = w.now.Add(time.Duration(r.IntN(40)) * time.Second)
		}
	case 4:
		w.cache = int64(r.IntN(4096)) * mib
	case 5:
		w.cpu = CPU{Milli: int64(r.IntN(4000)), Limit: 4000, Throttled: int64(r.IntN(1000))}
	case 6:
		if len(w.bodies) > 0 {
			b := w.bodies[r.IntN(len(w.bodies))]
			b.memory = int64(r.IntN(6000)) * mib
		}
	}
}
