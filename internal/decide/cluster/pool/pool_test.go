package pool

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/test/fixture"
	"github.com/waterline-io/waterline/test/golden"
)

// TestCases runs the golden cases. A case is blocks of commands, a line of four dashes, and the steps with their times.
// The last line counts containers that were killed, and workers as the status of the pool does.
//
//	worker NAME [MEMORY VCORES]   a worker whose node has this much slack
//	rest | want NAME              whether it is to run
//	end NAME SECONDS              from now on; it must have stopped then
//	open NAME SECONDS             it is wanted, and will have an end
//	room NAME yes|no              whether its node has room for its pod
//	barred NAME yes|no            a pod would not be safe
//	evicted NAME | spared NAME    its node asks for the eviction of its pod, or no longer does
//	slack NAME MEMORY VCORES
//	more NAME VCORES              what batch may use on its node beyond that
//	job NAME COUNT MEMORY VCORES SECONDS
//	                              containers that it gets while they fit, each for this time
//	follow                        workers run only while something waits, or runs on them
//	queue COUNT MEMORY VCORES SECONDS
//	                              containers that any worker gets while they fit
//	demand away|back              the ResourceManager does not say what waits
//	plain                         the exclude file cannot be written
//	rm away | rm dead | rm back   it does not answer; dead: it enforces no deadline either
//	guard NAME | mute NAME        it has a guard; its NodeManager does not answer
//	rm next | labels lost | labels back
//	label NAME LABEL              somebody labels its host, and its NodeManager
//	slow NAME yes|no              its pod does not start
//	twin NAME                     a second NodeManager registers on its host
//	never NAME | as NAME OTHER    its NodeManager does not register, or under another name
//	dies NAME | sick NAME | well NAME
//	                              its NodeManager
//	power NAME                    its node loses power, and comes back
//	outdated NAME                 the spec of the pool changes, and another pod is to replace its pod
//	over NAME                     the kubelet ends its pod, which stays as a failed one
//	deleted NAME [cordoned]       somebody deletes its pod, or drains its node
//	run SECONDS
func TestCases(t *testing.T) {
	golden.Each(t, func(t *testing.T, content string) string {
		w := newWorld(t)
		do := func(command string) error { return w.command(strings.Fields(command)) }
		return golden.Blocks(t, content, do, func() string {
			fmt.Fprintf(&w.out, "killed=%d early=%d wanted=%d active=%d leaving=%d\n", w.kills, w.early, w.tally.Wanted,
				w.tally.Active, w.tally.Leaving)
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
	case "rm away", "rm dead", "rm back":
		w.silent, w.dead = words[1] != "back", words[1] == "dead"
		return nil
	case "rm next":
		w.say("another ResourceManager; it kills %d containers", w.failover())
		return nil
	case "demand away", "demand back":
		w.secret = words[1] == "away"
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
	case "invalid", "valid":
		w.set.Invalid = words[0] == "invalid"
		return nil
	case "follow":
		w.follow = true
		return nil
	case "queue":
		w.waiting, w.unit = int(n(1)), Size{n(2), n(3)}
		w.waits = job{w.now, w.now.Add(time.Duration(n(4)) * time.Second)}
		return nil
	case "run":
		w.run(int(n(1)))
		return nil
	case "worker":
		p = &place{Worker: Worker{Name: words[1], Wanted: true, Room: true, Allowance: Size{5120, 3}}, read: true}
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
	case "open":
		p.Wanted, p.End = true, w.now.Add(time.Duration(n(2))*time.Second)
	case "room":
		p.Room = words[2] == "yes"
	case "sold":
		p.Unsold = words[2] == "no"
	case "barred":
		p.Barred = words[2] == "yes"
	case "evicted", "spared":
		p.Pod.Evicted = words[0] == "evicted"
	case "end":
		p.Wanted, p.End = false, w.now.Add(time.Duration(n(2))*time.Second)
	case "slack":
		p.Allowance = Size{n(2), n(3)}
	case "more":
		p.more = n(2)
	case "job":
		p.demand, p.each, p.takes = int(n(2)), Size{n(3), n(4)}, time.Duration(n(5))*time.Second
	case "label":
		p.Label = words[2]
		if m != nil {
			m.Label = words[2]
		}
	case "guard":
		p.guard = true
	case "mute":
		p.mute = true
	case "slow":
		p.slow = words[2] == "yes"
	case "twin":
		p.Managers = append(p.Managers, Manager{ID: p.Host() + ":45455", State: running, Label: m.Label, Total: w.set.Floor})
	case "never":
		p.never = true
	case "as":
		p.as = words[2]
	case "dies":
		p.up, p.jobs = false, nil
	case "sick":
		m.State, m.Health = unhealthy, "1/1 local-dirs are bad"
	case "well":
		m.State = running
	case "power":
		w.gone(p)
	case "outdated":
		p.Pod.Outdated = true
	case "over":
		w.gone(p)
		p.Over = true
	case "deleted":
		p.Pod.Deleting, p.Cordoned = true, len(words) > 2
	default:
		return fmt.Errorf("unknown command %q", words)
	}
	return nil
}

// TestAnyOrder lets the slack, the wishes, the ResourceManager, the labels and the controller change at random. No more
// than the floor lands without the label, nothing is killed before its deadline, and in quiet times every worker
// becomes what it is to be.
func TestAnyOrder(t *testing.T) {
	for seed := range fixture.Times(uint64(300)) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t)
		w.set.Graceful = r.IntN(2) == 0
		for i := range 4 {
			p := &place{
				Worker: Worker{Name: fmt.Sprintf("w%d", i), Wanted: true, Room: true, Allowance: Size{9000, 5}}, read: true,
				each: Size{1024, 1}, demand: r.IntN(6), takes: time.Duration(20+r.IntN(200)) * time.Second,
			}
			w.workers = append(w.workers, p)
		}
		w.crash = func() bool { return r.IntN(20) == 0 }
		for range 60 {
			w.disturb(r, w.workers[r.IntN(len(w.workers))])
			w.run(r.IntN(60))
		}
		w.silent, w.rm.Labels, w.crash = false, true, nil
		w.answered()
		for _, p := range w.workers {
			p.demand, p.Attempts, p.Cordoned, p.Room = 0, 0, false, true
			if m := p.manager(); m != nil && m.State == unhealthy {
				m.State = running
			}
		}
		w.run(1500)
		for _, p := range w.workers {
			m := p.manager()
			wanted := p.Wanted && (p.End.IsZero() || w.now.Before(p.End))
			switch {
			case !wanted && (p.Pod != nil || p.excluded):
				t.Errorf("seed %d: %s is to rest, and has a pod, or is excluded", seed, p.Name)
			case wanted && (m == nil || m.State != running || m.Label != w.set.Label):
				t.Errorf("seed %d: %s is wanted: %+v, %+v", seed, p.Name, p.Pod, m)
			case wanted && !w.settled(p, m.Total):
				t.Errorf("seed %d: %s offers %s of %s", seed, p.Name, m.Total, p.Allowance)
			}
		}
		if w.early > 0 {
			t.Errorf("seed %d: %d containers were killed early, %d at their time", seed, w.early, w.kills)
		}
		if t.Failed() {
			t.Logf("%s", w.out.String())
			return
		}
	}
}

// settled reports whether a worker offers what it is to offer in the long run: of memory all but the margin, and of CPU
// all but a CPU.
func (w *world) settled(p *place, total Size) bool {
	f, c, step := w.set.Floor, w.set.Ceiling, w.set.Step
	margin := max(p.Allowance.MemoryMiB-f.MemoryMiB, 0) * initialMargin / 100
	return total.MemoryMiB == whole(p.Allowance.MemoryMiB-margin, f.MemoryMiB, c.MemoryMiB, step.MemoryMiB) &&
		total.VCores <= min(max(p.Allowance.VCores, f.VCores)+w.set.Core, c.VCores) && total.VCores >= f.VCores &&
		total.VCores+step.VCores >= whole(p.Allowance.VCores, f.VCores, c.VCores, step.VCores)
}

// disturb changes something.
func (w *world) disturb(r *rand.Rand, p *place) {
	m := p.manager()
	switch r.IntN(16) {
	case 0:
		p.Wanted, p.End = r.IntN(2) == 0, time.Time{}
	case 1, 2, 3:
		p.Allowance, p.more = Size{int64(r.IntN(20000)), int64(r.IntN(10))}, int64(r.IntN(4))
	case 4:
		w.silent = r.IntN(2) == 0
		w.answered()
	case 5:
		w.failover() // what it kills is Hadoop's
	case 6:
		if p.Pod != nil {
			p.Pod.Deleting, p.Cordoned = true, r.IntN(3) == 0
		}
	case 7:
		if w.rm.Labels = r.IntN(3) > 0; !w.rm.Labels {
			for _, p := range w.workers {
				p.Label, p.bared = "", w.now
				for i := range p.Managers {
					p.Managers[i].Label = ""
				}
			}
		}
	case 8:
		p.Wanted, p.End = false, w.now.Add(time.Duration(r.IntN(200))*time.Second)
	case 9:
		p.up, p.jobs = false, nil // its NodeManager dies
	case 10:
		if p.Pod != nil {
			w.gone(p)
		}
	case 11:
		if m != nil && m.State == running {
			m.State, m.Health = unhealthy, "bad disks"
		} else if m != nil && m.State == unhealthy {
			m.State = running
		}
	case 12:
		p.Cordoned = false
	case 13:
		p.Room = r.IntN(2) == 0
	case 14:
		if p.Pod != nil && r.IntN(3) == 0 {
			p.Pod.Evicted = true
		}
	case 15:
		p.Wanted, p.End = true, w.now.Add(time.Duration(100+r.IntN(1000))*time.Second)
	}
}

// TestExcludeStarting checks when a NodeManager that drains is decommissioned. It waits for its containers to start; if
// some run, no longer than a shrink would, because there may always be one that starts.
func TestExcludeStarting(t *testing.T) {
	now := time.Date(2026, 11, 24, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		leaving            time.Duration
		containers, listed int
		unlisted           bool
		want               Verb
	}{
		{0, 2, 0, false, Wait},
		{0, 2, 1, false, Wait},
		{0, 2, 2, false, Exclude},
		{time.Minute, 2, 1, false, Exclude},
		{time.Hour, 2, 0, false, Wait},
		{0, 2, 0, true, Wait}, // it does not say which run
		{time.Minute, 2, 0, true, Exclude},
		{0, 0, 0, false, Resize}, // so that nothing more is allocated
	} {
		in := Input{
			Now: now, RM: RM{Known: true, Labels: true},
			Settings: Settings{Graceful: true, Floor: Size{4096, 4}, Grace: time.Minute, Drain: 2 * time.Hour},
			Workers: []Worker{{
				Name: "w0", Allowance: Size{4096, 4},
				Pod: &Pod{Started: now.Add(-time.Hour), Marks: Marks{Registered: true, Leaving: now.Add(-c.leaving)}},
				Managers: []Manager{{
					State: running, Total: Size{4096, 4}, Used: Size{int64(c.containers), 1},
					Containers: c.containers, Listed: c.listed,
					Unlisted: c.unlisted,
				}},
			}},
		}
		if s := Next(&in)[0]; s.Verb != c.want {
			t.Errorf("%+v: %+v", c, s)
		}
	}
}

// TestDeadline checks that a deadline which is over is still the one that was told, and no new one from now on.
func TestDeadline(t *testing.T) {
	now := time.Now()
	told := now.Add(-time.Second)
	for _, c := range []struct {
		step Step
		want time.Time
	}{
		{Step{Within: time.Minute}, now.Add(time.Minute)},
		{Step{Within: time.Minute, Marks: Marks{Told: told}}, now.Add(time.Minute)}, // it is postponed
		{Step{Marks: Marks{Told: told}}, told},
		{Step{}, now},
	} {
		if got := c.step.Deadline(now); !got.Equal(c.want.Round(0)) {
			t.Errorf("%+v: %s, want %s", c.step, got, c.want)
		}
	}
}

// TestDeadlineStays checks that later rounds, which read the mark of a pod, say the same deadline to the nanosecond.
// The clocks that a time has are read one after the other, so a time that has both would differ.
func TestDeadlineStays(t *testing.T) {
	now := time.Now()
	first := Step{Within: time.Minute, Marks: Marks{Until: now.Add(time.Minute)}}
	written, err := json.Marshal(first.Marks)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		var marks Marks
		if err := json.Unmarshal(written, &marks); err != nil {
			t.Fatal(err)
		}
		later := time.Now()
		s := Step{Within: marks.Until.Sub(later), Marks: marks}
		if want, got := first.Deadline(now), s.Deadline(later); !got.Equal(want) {
			t.Fatalf("%s, first %s", got, want)
		}
	}
}
