package pool

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// follower is a worker that follows its node, second by second, with as many containers as fit.
type follower struct {
	now     time.Time
	set     Settings
	history History
	marks   Marks
	total   Size
	fill    bool  // containers use all of it
	more    int64 // milli-cores that batch may use beyond what is sold
	changes int   // of the total
	down    int64 // sum of the vcores given back
}

func newFollower() *follower {
	return &follower{
		now: noon, total: Size{2048, 1}, set: Settings{
			Floor: Size{2048, 1}, Ceiling: Size{1 << 20, 256}, Step: Size{2048, 1}, Pause: 30 * time.Second,
			Window: 10 * time.Minute, Core: 1, Grace: time.Minute,
		},
	}
}

// follow lets a second pass with this rest: milli-cores, and bytes.
func (f *follower) follow(rest model.Amount) {
	f.now = f.now.Add(time.Second)
	f.history = f.history.See(f.now, rest, rest.Plus(model.Amount{CPU: f.more}), f.set.Window)
	w := Worker{Figures: f.history.Windows(f.set.Window).Figures(f.size)}
	m := Manager{Total: f.total}
	if f.fill {
		m.Used = f.total
	}
	r := round{in: &Input{Now: f.now}, set: &f.set, w: &w, marks: f.marks}
	next := r.target(&m)
	if f.marks = r.marks; next == f.total {
		return
	}
	f.changes++
	f.down += max(f.total.VCores-next.VCores, 0)
	if !next.Fits(f.total) {
		f.marks.Grown = f.now
	}
	f.total = next
}

func (f *follower) size(rest model.Amount) Size {
	return Allowance(f.set.Floor, Size{rest.Memory >> 20, rest.CPU / 1000}, 1)
}

// hours lets hours pass with a rest that depends on the second.
func (f *follower) hours(hours float64, rest func(second int) model.Amount) {
	for second := range int(hours * 3600) {
		f.follow(rest(second))
	}
}

func still(cpu, memory int64) func(int) model.Amount {
	return func(int) model.Amount { return model.Amount{CPU: cpu * 1000, Memory: memory << 30} }
}

// TestGrowsIntoLastingSlack checks that a worker waits for the window, takes one step a pause, and reaches all that
// lasts: of CPU all, of memory all but the margin.
func TestGrowsIntoLastingSlack(t *testing.T) {
	f := newFollower()
	f.hours(599.0/3600, still(20, 100))
	if f.changes != 0 {
		t.Errorf("it grew within the window: %+v", f.total)
	}
	f.hours(62.0/3600, still(20, 100))
	if want := (Size{4 * 2048, 4}); f.total != want {
		t.Errorf("a minute after the window: %s, want %s", f.total, want)
	}
	f.hours(0.5, still(20, 100))
	if want := (Size{2048 + 42*2048, 21}); f.total != want { // the margin has not been measured yet
		t.Errorf("after half an hour: %s, want %s", f.total, want)
	}
	f.hours(2, still(20, 100))
	if want := (Size{2048 + 47*2048, 21}); f.total != want {
		t.Errorf("in the long run: %s, want %s", f.total, want)
	}
}

// TestShrinks checks how fast a worker gives back what its node no longer has.
func TestShrinks(t *testing.T) {
	grown := func() *follower {
		f := newFollower()
		f.fill, f.more = true, 8000
		f.hours(4, still(16, 64))
		return f
	}
	for _, c := range []struct {
		about  string
		more   int64
		rest   func(int) model.Amount
		within int // seconds
		most   Size
	}{
		{"CPU by the average of a minute", 8000, still(10, 64), 66, Size{1 << 20, 12}},
		{"CPU that batch may not use, in three seconds", 0, still(10, 64), 4, Size{1 << 20, 11}},
		{"memory at once", 8000, still(16, 32), 1, Size{2048 + 32<<10, 32}},
		{"all at once while nothing is sold", 8000, still(0, 0), 1, Size{2048, 1}},
	} {
		f := grown()
		f.more = c.more
		f.hours(float64(c.within)/3600, c.rest)
		if !f.total.Fits(c.most) {
			t.Errorf("%s: %s after %d s, want %s at most", c.about, f.total, c.within, c.most)
		}
	}
	f := grown()
	before := f.total
	f.hours(20.0/3600, still(8, 64))
	f.hours(100.0/3600, still(16, 64))
	after := f.total
	if before.VCores != 17 || after.VCores < 14 || after.VCores == 17 {
		t.Errorf("a dip of 20 s that batch may use through: %s of %s", after, before)
	}
	f.hours(8.0/60, still(16, 64))
	if f.total != after {
		t.Errorf("it grew within a window after it shrank: %s", f.total)
	}
	f.hours(10.0/60, still(16, 64))
	if f.total != before {
		t.Errorf("it did not grow after that: %s", f.total)
	}
}

// TestDeadBand checks that less than a CPU, or 5 %, changes no CPU.
func TestDeadBand(t *testing.T) {
	for _, c := range []struct{ cpus, milli int64 }{{8, 900}, {60, 2900}} {
		f := newFollower()
		f.more = 20000
		f.hours(6, still(c.cpus, 16))
		before, r := f.total, rand.New(rand.NewPCG(1, 1))
		if before.VCores < c.cpus-3 {
			t.Fatalf("%d CPUs: %s", c.cpus, before)
		}
		f.hours(6, func(int) model.Amount {
			return model.Amount{CPU: c.cpus*1000 - r.Int64N(c.milli), Memory: 16 << 30}
		})
		if f.total != before {
			t.Errorf("%d CPUs less %d milli-cores: %s, before %s", c.cpus, c.milli, f.total, before)
		}
	}
}

// TestDoesNotHunt lets the slack swing and jump. A worker follows a day, and neither a swing that is faster than its
// window nor noise.
func TestDoesNotHunt(t *testing.T) {
	sine := func(period time.Duration) func(int) model.Amount {
		return func(second int) model.Amount {
			cpu := 16000 + 8000*math.Sin(2*math.Pi*float64(second)/period.Seconds())
			// Reports come every 15 s at most, and offers are whole steps.
			return model.Amount{CPU: int64(cpu) / 800 * 800, Memory: 64 << 30}
		}
	}
	r := rand.New(rand.NewPCG(3, 3))
	level := int64(0)
	noise := func(second int) model.Amount {
		if second%15 == 0 {
			level = 16000 + int64(3000*r.NormFloat64())
		}
		return model.Amount{CPU: level, Memory: 64 << 30}
	}
	for _, c := range []struct {
		about string
		rest  func(int) model.Amount
		hours float64
		down  int64 // vcores that it may give back in an hour
		least int64 // vcores in the end
	}{
		{"a swing of a minute", sine(time.Minute), 6, 0, 14},
		{"a swing of five minutes", sine(5 * time.Minute), 12, 8, 8},
		{"a swing of half an hour", sine(30 * time.Minute), 12, 16, 8},
		{"a day", sine(24 * time.Hour), 24, 2, 8},
		{"noise", noise, 6, 5, 11},
	} {
		f := newFollower()
		f.more = 20000
		f.set.Step.MemoryMiB = 64 << 10
		f.hours(1, still(16, 64))
		f.down = 0
		f.hours(c.hours, c.rest)
		if float64(f.down) > float64(c.down)*c.hours+1 || f.total.VCores < c.least {
			t.Errorf("%s: it gave back %.1f vcores an hour, and has %s", c.about, float64(f.down)/c.hours, f.total)
		}
	}
}

// TestRestart checks that a controller that starts again neither shrinks nor grows a worker before its window.
func TestRestart(t *testing.T) {
	f := newFollower()
	f.hours(3, still(16, 64))
	before := f.total
	f.history = History{}
	f.hours(0.16, still(24, 96))
	if f.total != before {
		t.Errorf("%s, before the restart %s", f.total, before)
	}
	f.hours(1, still(24, 96))
	if f.total.Fits(before) {
		t.Errorf("it did not grow after its window: %s", f.total)
	}
}

// TestAnyFigures checks what holds whatever is measured.
func TestAnyFigures(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 200_000 {
		f := newFollower()
		f.set.Step = Size{r.Int64N(4096), r.Int64N(4)}
		f.set.Ceiling = Size{2048 + r.Int64N(65536), 1 + r.Int64N(64)}
		any := func() Size { return Size{2048 + r.Int64N(70000), 1 + r.Int64N(70)} }
		w := Worker{Figures: Figures{
			Now: any(), Tenth: any(), Half: any(), Whole: any(), Lowest: any(), Spare: any(),
			Margin: r.Int64N(4096) - 1, Watched: r.IntN(2) == 0,
		}}
		m := Manager{Total: any(), Used: any()}
		was := m.Total
		m.Total = Size{
			steady(was.MemoryMiB, 2048, f.set.Ceiling.MemoryMiB, f.set.Step.MemoryMiB),
			steady(was.VCores, 1, f.set.Ceiling.VCores, f.set.Step.VCores),
		}
		m.Used = m.Used.And(m.Total)
		in := round{in: &Input{Now: f.now}, set: &f.set, w: &w}
		if r.IntN(4) == 0 {
			in.marks.Shrunk = f.now.Add(-time.Minute)
		}
		still := !w.Figures.Watched || !in.marks.Shrunk.IsZero()
		got, g := in.target(&m), &w.Figures
		step := Size{m.Total.MemoryMiB + max(f.set.Step.MemoryMiB, 1), m.Total.VCores + max(f.set.Step.VCores, 1)}
		lasting := Size{g.Lowest.MemoryMiB, min(g.Now.VCores, g.Tenth.VCores, g.Half.VCores, g.Whole.VCores)}
		grew := Size{}
		if got.MemoryMiB > m.Total.MemoryMiB {
			grew.MemoryMiB = got.MemoryMiB
		}
		if got.VCores > m.Total.VCores {
			grew.VCores = got.VCores
		}
		near := max(g.Tenth.VCores, lasting.VCores) - m.Total.VCores
		switch {
		case !f.set.Floor.Fits(got) || !got.Fits(f.set.Ceiling):
			t.Fatalf("%s is out of range: %+v", got, f.set)
		case !got.Fits(step) || !grew.Fits(lasting) || grew != (Size{}) && still:
			t.Fatalf("%s grew to %s with %+v", m.Total, got, w.Figures)
		case got.MemoryMiB > max(g.Now.MemoryMiB, 2048):
			t.Fatalf("%s keeps more memory than there is: %s with %+v", m.Total, got, w.Figures)
		case g.Tenth.VCores == m.Total.VCores && near == 0 && got.VCores != m.Total.VCores &&
			m.Used.VCores <= g.Spare.VCores && g.Now.VCores > 1:
			t.Fatalf("%s changed within the dead band: %s with %+v", m.Total, got, w.Figures)
		}
	}
}
