package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the steps with their times.
//
//	worker NAME [MEMORY VCORES]   a worker whose node has this much slack
//	rest | want NAME              whether it is to run
//	end NAME SECONDS              from now on; it is stopped then, busy or not
//	slack NAME MEMORY VCORES
//	job NAME COUNT MEMORY VCORES SECONDS
//	                              containers that it gets while they fit, each for this time
//	plain                         the exclude file cannot be written
//	rm away | rm back | rm next | labels lost | labels back
//	label NAME LABEL              somebody labels its host, and its NodeManager
//	never NAME | as NAME OTHER    its NodeManager does not register, or under another name
//	restarts NAME | dies NAME | sick NAME
//	                              its NodeManager
//	deleted NAME                  somebody deletes its pod
//	run SECONDS
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld(t)
		do := func(command string) error { return w.command(strings.Fields(command)) }
		return golden.Blocks(t, content, do, func() string {
			fmt.Fprintf(&w.out, "killed=%d early=%d\n", w.kills, w.early)
			came := w.out.String()
			w = newWorld(t)
			return came
		})
	}, "testdata/*.case")
}

func (w *world) command(words []string) error {
	var p *place
	if len(words) > 1 {
		if i := slices.IndexFunc(w.workers, func(p *place) bool { return p.Name == words[1] }); i >= 0 {
			p = w.workers[i]
		}
	}
	n := func(i int) int64 {
		v, _ := strconv.ParseInt(words[i], 10, 64)
		return v
	}
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "rm away", "rm back":
		w.silent = words[1] == "away"
		return nil
	case "rm next":
		w.failover()
		return nil
	case "labels lost":
		w.rm.Labels = false
		for _, p := range w.workers {
			if p.Label = ""; p.manager() != nil {
				p.manager().Label = ""
			}
		}
		return nil
	case "labels back":
		w.rm.Labels = true
		return nil
	}
	switch words[0] {
	case "plain":
		w.set.Graceful = false
		return nil
	case "run":
		w.run(int(n(1)))
		return nil
	case "worker":
		p = &place{Worker: Worker{Name: words[1], Host: words[1] + ".bed", Wanted: true, Allowance: Size{4096, 2}}}
		if len(words) > 2 {
			p.Allowance = Size{n(2), n(3)}
		}
		w.workers = append(w.workers, p)
		return nil
	}
	if p == nil {
		return fmt.Errorf("no worker in %q", words)
	}
	m := p.manager()
	switch words[0] {
	case "rest", "want":
		p.Wanted, p.End = words[0] == "want", time.Time{}
	case "end":
		p.Wanted, p.End = false, w.now.Add(time.Duration(n(2))*time.Second)
	case "slack":
		p.Allowance = Size{n(2), n(3)}
	case "job":
		p.demand, p.each, p.takes = int(n(2)), Size{n(3), n(4)}, time.Duration(n(5))*time.Second
	case "label":
		p.Label = words[2]
		if m != nil {
			m.Label = words[2]
		}
	case "never":
		p.never = true
	case "as":
		p.as = words[2]
	case "restarts":
		m.Total, p.lasts = w.set.Floor, nil
	case "dies":
		m.State, p.lasts = lost, nil
	case "sick":
		m.State, m.Health = unhealthy, "1/1 local-dirs are bad"
	case "deleted":
		p.Pod.Deleting = true
	default:
		return fmt.Errorf("unknown command %q", words)
	}
	return nil
}

// TestAnyOrder lets the slack, the wishes, the ResourceManager and the controller change at random. No container lands
// without a label, none is killed before its deadline except by a ResourceManager that forgets a drain, and in quiet
// times every worker becomes what it is to be.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t)
		w.set.Graceful = r.IntN(2) == 0
		for i := range 4 {
			p := &place{Worker: Worker{
				Name: fmt.Sprintf("w%d", i), Host: fmt.Sprintf("w%d.bed", i), Wanted: true, Allowance: Size{9000, 5},
			}}
			p.each, p.demand, p.takes = Size{1024, 1}, r.IntN(6), time.Duration(20+r.IntN(200))*time.Second
			w.workers = append(w.workers, p)
		}
		w.crash = func() bool { return r.IntN(10) == 0 }
		for range 60 {
			p := w.workers[r.IntN(len(w.workers))]
			switch r.IntN(8) {
			case 0:
				p.Wanted = r.IntN(2) == 0
			case 1, 2:
				p.Allowance = Size{int64(r.IntN(20000)), int64(r.IntN(10))}
			case 3:
				w.silent = r.IntN(2) == 0
			case 4:
				if !w.draining() {
					w.failover()
				}
			case 5:
				if p.Pod != nil {
					p.Pod.Deleting = true
				}
			case 6:
				w.rm.Labels = r.IntN(3) > 0
			}
			w.run(r.IntN(60))
		}
		w.silent, w.rm.Labels, w.crash = false, true, nil
		for _, p := range w.workers {
			p.demand = 0
		}
		w.run(1200)
		for _, p := range w.workers {
			m := p.manager()
			switch {
			case !p.Wanted && (p.Pod != nil || p.Excluded):
				t.Errorf("seed %d: %s is to rest, and has a pod, or is excluded", seed, p.Name)
			case p.Wanted && (m == nil || m.State != running || m.Label != w.set.Label):
				t.Errorf("seed %d: %s is wanted: %+v, %+v", seed, p.Name, p.Pod, m)
			case p.Wanted && !m.Total.fits(Size{max(p.Allowance.MemoryMiB, 1024), max(p.Allowance.VCores, 1)}):
				t.Errorf("seed %d: %s offers %s of %s", seed, p.Name, m.Total, p.Allowance)
			}
		}
		if w.early > 0 {
			t.Errorf("seed %d: %d of %d containers were killed early\n%s", seed, w.early, w.kills, w.out.String())
		}
		if t.Failed() {
			return
		}
	}
}

// draining reports whether a NodeManager is being decommissioned.
func (w *world) draining() bool {
	return slices.ContainsFunc(w.workers, func(p *place) bool {
		m := p.manager()
		return m != nil && m.State == decommissioning
	})
}
