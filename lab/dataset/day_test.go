package dataset

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/waterline-io/waterline/internal/sim/trace"
	"github.com/waterline-io/waterline/test/fixture"
)

// days is a machine that uses 1000 times the day and the number of the step, where it has a value.
func days(has func(day, step int) bool) Machine {
	m := Machine{Name: "f/a", Limits: []float64{1}, Parts: [][]float64{nil}}
	for i := range 4 * daySteps {
		if has(i/daySteps, i%daySteps) {
			m.Times, m.Parts[0] = append(m.Times, int64(i)*trace.Step), append(m.Parts[0], float64(1000*(i/daySteps)+i%daySteps))
		}
	}
	return m
}

// Days with too many holes do not count; in the others a hole is as what was before it.
func TestDay(t *testing.T) {
	m := days(func(day, step int) bool {
		switch day {
		case 0:
			return step >= 100
		case 2:
			return step >= 2 && step != 50 && step != 51 && step < 280
		}
		return true
	})
	for n, want := range map[int]map[int]float64{
		1: {0: 1000, 287: 1287},
		2: {0: 2002, 1: 2002, 2: 2002, 3: 2003, 49: 2049, 50: 2049, 51: 2049, 52: 2052, 279: 2279, 287: 2279},
		3: {0: 3000, 287: 3287},
	} {
		got, err := m.Day(n)
		if err != nil || len(got) != daySteps {
			t.Fatalf("day %d: %d values, %v", n, len(got), err)
		}
		for step, value := range want {
			if got[step] != value {
				t.Errorf("day %d, step %d: %v, not %v", n, step, got[step], value)
			}
		}
	}
	for _, n := range []int{0, 4} {
		if _, err := m.Day(n); err == nil ||
			!strings.Contains(err.Error(), fmt.Sprintf("machine f/a has 3 whole days, and no day %d", n)) {
			t.Errorf("day %d: %v", n, err)
		}
	}
	generated := Generate(trace.Online(1), 1)
	if day, err := generated.Day(1); err != nil || day[daySteps/2] < day[0]+10 {
		t.Errorf("a generated day: %v", err)
	}
}

// TestGrids checks that parts keep their own use on whole days, and that holes repeat the value before.
func TestGrids(t *testing.T) {
	const day = daySteps * trace.Step
	m := Machine{Name: "m", Parts: [][]float64{nil, nil, nil}, Limits: []float64{10, 0, 40}}
	for i := range int64(2*daySteps + 9) { // the third day is not whole
		if i%100 == 7 {
			continue
		}
		m.Times = append(m.Times, day+i*trace.Step)
		for p := range m.Parts {
			m.Parts[p] = append(m.Parts[p], float64(i%daySteps%10)*float64(p+1))
		}
	}
	grids := m.Grids()
	if len(grids) != 2 || grids[0].Name != "m/0" || grids[1].Name != "m/2" {
		t.Fatalf("%d grids: a part without a limit has none", len(grids))
	}
	for i, g := range grids {
		if len(g.Days) != 2 || len(g.Days[0]) != daySteps || g.Step != trace.Step || g.Holes != 6 {
			t.Fatalf("%s: %d days of %d values of %d s, %d holes", g.Name, len(g.Days), len(g.Days[0]), g.Step, g.Holes)
		}
		scale := []float64{0.1, 3.0 / 40}[i]
		for k, want := range map[int]float64{0: 0, 6: 6, 7: 6, 8: 8, 107: 6} {
			if got := float64(g.Days[0][k]); math.Abs(got-want*scale) > 1e-6 {
				t.Errorf("%s: value %d is %g, not %g", g.Name, k, got, want*scale)
			}
		}
	}
	for i := range m.Times {
		m.Times[i] = day + int64(i)*60
	}
	if g := m.Grids(); len(g) != 0 {
		t.Errorf("%d grids of ten hours", len(g))
	}
	minutes := Machine{Name: "m", Parts: [][]float64{make([]float64, 1440)}, Limits: []float64{1}}
	for i := range 1440 {
		minutes.Times = append(minutes.Times, int64(i)*60)
	}
	if g := minutes.Grids(); len(g) != 1 || g[0].Step != 60 || len(g[0].Days[0]) != 1440 || g[0].Name != "m" {
		t.Errorf("values of a minute make %+v", g)
	}
}

func TestGenerate(t *testing.T) {
	a, b := Generate(trace.Online(3), 5), Generate(trace.Online(3), 5)
	if d := fixture.Diff(a, b); d != "" || len(a.Times) != 3*288 {
		t.Errorf("the same shape and seed make %d times and other usage:\n%s", len(a.Times), d)
	}
	if c := Generate(trace.Online(3), 6); fixture.Diff(a.Parts, c.Parts) == "" {
		t.Error("another seed makes the same usage")
	}
}
