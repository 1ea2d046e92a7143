package pool

import (
	"testing"
	"time"
)

// TestSchedule follows the workers of a night in three waves, minute by minute.
func TestSchedule(t *testing.T) {
	start := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	at := func(hours, minutes int) time.Time {
		return start.Add(time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute)
	}
	night := Opening{Open: true, Start: start, Drain: at(8, 0), End: at(9, 0)}
	ramp := Ramp{Waves: 3, Interval: 5 * time.Minute}
	const n = 7
	for _, c := range []struct {
		now  time.Time
		want int // workers that are to run
	}{
		{at(0, 0), 3}, {at(0, 4), 3}, {at(0, 5), 5}, {at(0, 9), 5}, {at(0, 10), 7}, {at(7, 59), 7},
		{at(8, 0), 4}, {at(8, 9), 4}, {at(8, 10), 2}, {at(8, 19), 2}, {at(8, 20), 0}, {at(8, 59), 0},
	} {
		got := 0
		for i := range n {
			wanted, end := Schedule(c.now, night, ramp, i, n)
			if !end.Equal(night.End) {
				t.Errorf("%s: worker %d must have stopped by %s", c.now, i, end)
			}
			if wanted {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s: %d workers are to run, want %d", c.now.Format(time.TimeOnly), got, c.want)
		}
	}
	for i := range n {
		if wanted, end := Schedule(start, Opening{}, ramp, i, n); wanted || !end.IsZero() {
			t.Errorf("closed: worker %d: %v, %s", i, wanted, end)
		}
		if wanted, end := Schedule(start, Opening{Open: true}, ramp, i, n); !wanted || !end.IsZero() {
			t.Errorf("always open: worker %d: %v, %s", i, wanted, end)
		}
	}
}

// TestAllowance checks that workers on a node never have more than its rest together, and never less than the floor.
func TestAllowance(t *testing.T) {
	floor := Size{2048, 2}
	for _, c := range []struct {
		rest    Size
		workers int
		want    Size
	}{
		{Size{}, 1, floor},
		{Size{-500, -1}, 1, floor},
		{Size{4096, 3}, 1, Size{6144, 5}},
		{Size{4096, 3}, 2, Size{4096, 3}},
		{Size{100, 1}, 0, Size{2148, 3}},
	} {
		if got := Allowance(floor, c.rest, c.workers); got != c.want {
			t.Errorf("%s for %d workers: %s, want %s", c.rest, c.workers, got, c.want)
		}
	}
}

// TestPace checks that workers that shrink go first, and that one that waits does not count as grown.
func TestPace(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	in := Input{}
	var steps []Step
	for _, total := range []int64{1024, 4096, 2048} {
		m := Manager{State: running, Total: Size{total, 1}}
		in.Workers = append(in.Workers, Worker{Pod: &Pod{}, Managers: []Manager{{State: "LOST"}, m}})
		steps = append(steps, Step{Verb: Resize, Size: Size{3072, 1}, Within: time.Minute, Marks: Marks{Grown: now}})
	}
	Pace(&in, steps, 3)
	if steps[0].Verb != Resize {
		t.Errorf("three of three: %+v", steps)
	}
	Pace(&in, steps, 2)
	if steps[0].Verb != Wait || !steps[0].Marks.Grown.IsZero() || steps[1].Verb != Resize || steps[2].Verb != Resize {
		t.Errorf("two of three: %+v", steps)
	}
}
