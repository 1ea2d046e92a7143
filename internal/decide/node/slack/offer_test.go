package slack_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/slack"
	"github.com/waterline-io/waterline/internal/model"
)

// seen is one round in the memory of a dumbLine.
type seen struct {
	clock time.Duration
	room  int64
	clear bool // after it, the room exceeded the offer enough to grow
	grew  bool
	all   bool // the offer grew to the room
}

// dumbLine is an offer that remembers every round and searches them each time.
type dumbLine struct {
	rounds       []seen
	falls        []time.Duration // times of falls; falls within a minute count as one
	offer        int64
	step, growth int64
}

func (d *dumbLine) follow(clock time.Duration, room int64, age time.Duration) int64 {
	fell := d.offer > room
	if fell && (len(d.falls) == 0 || clock-d.falls[len(d.falls)-1] >= time.Minute) {
		d.falls = append(d.falls, clock)
	}
	watch, under := d.settling(clock)
	if fell {
		d.offer = max(room-under, 0)
	}
	d.offer = d.offer / d.step * d.step
	clear := func(room int64) bool { return float64(room) >= float64(d.offer)+1.5*float64(d.step)+float64(under) }
	d.rounds = append(d.rounds, seen{clock: clock, room: room, clear: clear(room)})
	last := len(d.rounds) - 1
	first, lowest := -1, room
	for i := last; i >= 0 && d.rounds[i].clear && !d.rounds[i].all; i-- {
		first, lowest = i, min(lowest, d.rounds[i].room)
		if i > 0 && d.rounds[i].clock-d.rounds[i-1].clock > 5*time.Second {
			break
		}
	}
	if first < 0 || clock-d.rounds[first].clock < watch || age > 5*time.Second {
		return d.offer
	}
	never := len(d.falls) == 0
	for _, r := range d.rounds {
		if r.grew && clock-r.clock < time.Minute {
			return d.offer
		}
		never = never && !r.grew
	}
	most := d.offer + d.growth
	if never {
		most = lowest
	}
	d.offer = min(lowest, most) / d.step * d.step
	d.rounds[last].grew, d.rounds[last].all = true, !clear(lowest)
	return d.offer
}

// end forgets the room, because nothing is sold. It remembers growth and falls.
func (d *dumbLine) end() {
	d.offer = 0
	for i := range d.rounds {
		d.rounds[i].clear = false
	}
}

// settling returns the settling time and the margin below the room, computed from all falls.
func (d *dumbLine) settling(now time.Duration) (watch time.Duration, under int64) {
	watch = 45 * time.Second
	calm := func(quiet time.Duration) {
		for ; quiet >= 3*time.Hour; quiet -= 3 * time.Hour {
			watch = max(watch/2, 45*time.Second)
		}
	}
	for i, fell := range d.falls {
		if i > 0 && fell-d.falls[i-1] < 3*time.Hour {
			watch = min(2*watch, 30*time.Minute)
		} else if i > 0 {
			calm(fell - d.falls[i-1])
		}
	}
	if len(d.falls) > 0 {
		calm(now - d.falls[len(d.falls)-1])
	}
	if watch > 45*time.Second {
		under = 2 * d.step
	}
	return watch, under
}

// TestOffersFollow runs machines with arbitrary load. It compares each offer with the dumbLine, and checks that no
// offer but the first grows by more than a tenth of the capacity (or one step, or a tenth of a fixed offer) per minute.
func TestOffersFollow(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 9))
		in := random(r)
		in.state = slack.State{}
		online := &in.node.Load.Classes[model.Guaranteed]
		noise := r.Int64N(in.node.Capacity.CPU/4 + 1)
		level := online.CPU.Milli
		clock := time.Hour
		var lines [2]dumbLine
		var grown [2]time.Duration
		var before [2]int64
		seldom := []int{100, 1500}[seed%2]
		for range 4000 {
			clock += time.Second
			switch r.IntN(seldom) {
			case 0:
				clock += time.Duration(r.IntN(30)) * time.Second // some rounds are missing
				if r.IntN(5) == 0 {
					clock += time.Duration(r.IntN(13)) * time.Hour
				}
			case 1:
				level = r.Int64N(in.node.Capacity.CPU + 1)
			case 2:
				// The wall clock is set.
				in.node.Now = in.node.Now.Add(time.Duration(r.IntN(7200)-3600) * time.Second)
			case 3:
				if r.IntN(10) == 0 {
					in.policy.CPU.Method = methods[1+r.IntN(3)]
				}
			}
			in.node.Now = in.node.Now.Add(time.Second)
			in.at(clock)
			system := in.node.Load.Node.CPU.Milli - online.CPU.Milli
			online.CPU.Milli = level + r.Int64N(noise+1)
			in.node.Load.Node.CPU.Milli = online.CPU.Milli + max(system, 0)
			if r.IntN(20) == 0 {
				in.node.Load.Node.CPU.At -= time.Duration(r.IntN(20)) * time.Second
			}
			var s *model.Slack
			s, in.state, _ = in.decide()
			a := &s.CPU
			most := a.Capacity
			if in.policy.CPU.Method == model.SellStatic {
				most = max(most, a.Capacity*in.policy.CPU.Ratio/1000)
			}
			step := max(a.Capacity*25/1000, 100)
			for i, offer := range []int64{a.Offer.Mid, a.Offer.Batch} {
				room := []int64{a.Room.Mid, a.Room.Batch}[i]
				if in.policy.CPU.Method == "" {
					lines[i].end()
					before[i] = 0
					continue
				}
				lines[i].step, lines[i].growth = step, max(most*100/1000, step)
				if want := lines[i].follow(clock, room, a.Use.Age); offer != want {
					t.Fatalf("seed %d at %v: offer %d, dumbLine %d, room %d: %+v",
						seed, clock, offer, want, room, in.state)
				}
				if offer > before[i] {
					if by := offer - before[i]; grown[i] > 0 && (by > lines[i].growth || clock-grown[i] < time.Minute) {
						t.Fatalf("seed %d at %v: grew by %d, %v after it last grew", seed, clock, by, clock-grown[i])
					}
					grown[i] = clock
				}
				before[i] = offer
			}
		}
	}
}

// TestWritesAreBounded checks that an offer rarely changes, whatever its room does. 5,000 nodes may write five times
// a second in total, which is 86 changes a day per node. A node with the worst pattern, a dip every hour, may have a
// few more.
func TestWritesAreBounded(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name string
		used func(r *rand.Rand, at time.Duration) int64
	}{
		{"noise", func(r *rand.Rand, _ time.Duration) int64 { return 40_000 + int64(5000*r.NormFloat64()) }},
		{"a dip a minute", square(time.Minute)},
		{"a dip every five minutes", square(5 * time.Minute)},
		{"a dip every half-hour", square(30 * time.Minute)},
		{"a dip every hour", square(time.Hour)},
		{"a dip every two hours", square(2 * time.Hour)},
		{"a dip every three hours", square(3 * time.Hour)},
		{"up and down each hour", func(_ *rand.Rand, at time.Duration) int64 {
			return int64(50_000 + 30_000*math.Sin(2*math.Pi*at.Hours()))
		}},
		{"up and down each day, with noise", func(r *rand.Rand, at time.Duration) int64 {
			return int64(50_000 + 30_000*math.Sin(2*math.Pi*at.Hours()/24) + 1000*r.NormFloat64())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInput(model.Amount{CPU: 100_000, Memory: 100 * gib}, model.SellRealtime, 1000)
			r := rand.New(rand.NewPCG(1, 2))
			in.run(20 * time.Minute)
			before, changes, sold, room := int64(0), 0, 0.0, 0.0
			for at := time.Duration(0); at < day; at += time.Second {
				used := min(max(c.used(r, at), 0), 100_000)
				in.node.Load.Classes[model.Guaranteed].CPU.Milli, in.node.Load.Node.CPU.Milli = used, used
				a := &in.tick().CPU
				if a.Offer.Batch != before {
					before, changes = a.Offer.Batch, changes+1
				}
				sold, room = sold+float64(a.Offer.Batch), room+float64(a.Room.Batch)
			}
			t.Logf("%3d changes in a day, %2.0f %% of the room sold", changes, 100*sold/room)
			if changes > 100 {
				t.Errorf("the offer changed %d times in a day", changes)
			}
		})
	}
}

// square uses half of the CPUs, and 30 more for ten seconds in each period.
func square(period time.Duration) func(*rand.Rand, time.Duration) int64 {
	return func(_ *rand.Rand, at time.Duration) int64 {
		if at%period < 10*time.Second {
			return 80_000
		}
		return 50_000
	}
}

// TestBandIsNotSymmetric checks that a slightly smaller room lowers the offer at once, and a slightly larger room
// never raises it (Koordinator's band of 10 % applies in both directions).
func TestBandIsNotSymmetric(t *testing.T) {
	in := newInput(model.Amount{CPU: 100_000, Memory: 100 * gib}, model.SellRealtime, 1000)
	in.add(model.Pod{UID: "web"}, model.Amount{CPU: 50_000, Memory: 50 * gib})
	if got := in.run(20 * time.Minute).CPU.Offer.Batch; got != 50_000 {
		t.Fatalf("offer %d, want 50000", got)
	}
	web := func(milli int64) {
		in.node.Load.Classes[model.Guaranteed].CPU.Milli, in.node.Load.Node.CPU.Milli = milli, milli
	}
	web(50_001)
	if got := in.tick().CPU.Offer.Batch; got != 47_500 {
		t.Errorf("offer %d right after the room shrank to 49999, want 47500", got)
	}
	web(48_751) // a room of 51249, not one and a half steps above
	if got := in.run(10 * time.Minute).CPU.Offer.Batch; got != 47_500 {
		t.Errorf("offer %d, want 47500: it grew for a small difference", got)
	}
	web(48_750)
	if got := in.run(10 * time.Minute).CPU.Offer.Batch; got != 50_000 {
		t.Errorf("offer %d, want 50000", got)
	}
}

// TestRestart checks that an offer survives a restart of the agent, while the Node object shows it, but not a boot.
func TestRestart(t *testing.T) {
	running := func() *input {
		in := newInput(model.Amount{CPU: 100_000, Memory: 100 * gib}, model.SellRealtime, 1000)
		in.run(20 * time.Minute)
		return in
	}
	for _, c := range []struct {
		name     string
		down     time.Duration
		measured bool
		want     int64
	}{
		{"after seconds", 5 * time.Second, true, 100_000},
		{"after seconds, not measured yet", 5 * time.Second, false, 100_000},
		{"after most of a minute, not measured yet", 55 * time.Second, false, 100_000},
		{"after minutes, measured before the decision", 5 * time.Minute, true, 100_000},
		{"after minutes, not measured yet", 5 * time.Minute, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := running()
			clock := in.node.Load.Clock + c.down
			in.at(clock)
			if !c.measured {
				in.at(0)
				in.node.Load.Clock = clock
			}
			s, _, next := in.decide()
			if s.CPU.Offer.Batch != c.want {
				t.Errorf("offer %d, want %d", s.CPU.Offer.Batch, c.want)
			}
			unknown := s.CPU.Allow == 0 && s.CPU.Reason.Code == model.SlackUnknown
			if !c.measured && (!unknown || next.IsZero() != (c.want == 0)) {
				t.Errorf("%+v, next %v", s.CPU, next)
			}
		})
	}
	in := running()
	in.at(10 * time.Minute) // of the next boot
	if s := in.slack(); s.CPU.Offer.Batch != 0 {
		t.Errorf("offer %d after a reboot", s.CPU.Offer.Batch)
	}
}

// TestChangeOfPolicy checks that a stricter policy lowers the offer at once, and that a looser one lets it settle
// first.
func TestChangeOfPolicy(t *testing.T) {
	in := newInput(model.Amount{CPU: 100_000, Memory: 100 * gib}, model.SellRealtime, 800)
	for h := range model.Horizons {
		in.peaks.CPU[h] = model.Peak{Value: 50_000, Known: true}
	}
	offer := func(step string, got *model.Slack, want int64) {
		t.Helper()
		if got.CPU.Offer.Batch != want {
			t.Errorf("%s: offer %d, want %d", step, got.CPU.Offer.Batch, want)
		}
	}
	offer("realtime", in.run(20*time.Minute), 80_000)
	in.policy.CPU.Method = model.SellPredicted
	offer("predicted", in.tick(), 30_000)
	in.policy.CPU.Method = model.SellRealtime
	offer("realtime again", in.run(45*time.Second), 30_000)
	offer("watched", in.run(5*time.Second), 40_000)
	in.policy.CPU.Waterline = 300
	offer("a lower waterline", in.tick(), 30_000)
	in.policy.Mode = model.ModeDisabled
	offer("off", in.tick(), 0)
	in.policy.Mode = model.ModeEnforce
	offer("on", in.run(40*time.Second), 0)
	offer("watched again, and whole", in.run(10*time.Second), 30_000)
}
