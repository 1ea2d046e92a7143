package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// clock is the reading of a clock in a zone at each minute of some days, in minutes since an arbitrary midnight.
type clock struct {
	from  time.Time
	shows []int
}

func newClock(zone *time.Location, from time.Time, days int) clock {
	c := clock{from: from, shows: make([]int, days*24*60)}
	zero := midnight(from)
	for i := range c.shows {
		t := from.Add(time.Duration(i) * time.Minute).In(zone)
		c.shows[i] = int(midnight(t).Sub(zero)/time.Minute) + t.Hour()*60 + t.Minute()
	}
	return c
}

// mark marks the minutes in which a window is open, by brute force: the window begins after the last minute with a
// reading below its start, and ends at the first minute with a reading of its end or more.
func (c clock) mark(w model.Window, drainBefore []int, holds []bool) {
	length := w.End - w.Start
	if length <= 0 {
		length += 24 * 60
	}
	for date := -2; date*24*60 < len(c.shows)+2*24*60; date++ {
		start, end := 0, len(c.shows)
		first, last := max(0, (date-2)*24*60), min(len(c.shows), (date+4)*24*60)
		for i := first; i < last; i++ {
			if c.shows[i] < date*24*60+w.Start {
				start = i + 1
			}
		}
		for i := last - 1; i >= first; i-- {
			if c.shows[i] >= date*24*60+w.Start+length {
				end = i
			}
		}
		for i := start; i < end && end < len(c.shows); i++ {
			holds[i] = true
		}
		if start < end && end < len(c.shows) {
			drainBefore[end] = max(drainBefore[end], int(w.DrainBefore/time.Minute))
		}
	}
}

// states returns the state at each minute.
func states(zones map[string]*clock, windows []model.Window) []model.SellState {
	var holds []bool
	var drainBefore []int // of the windows that end at a minute
	for _, w := range windows {
		c := zones[w.Zone.String()]
		if holds == nil {
			holds, drainBefore = make([]bool, len(c.shows)), make([]int, len(c.shows))
		}
		c.mark(w, drainBefore, holds)
	}
	all := make([]model.SellState, len(holds))
	end := len(holds) // end of the open time that contains the minute
	for i := len(holds) - 1; i >= 0; i-- {
		switch {
		case !holds[i]:
			all[i], end = model.SellClosed, i
		case end < len(holds) && end-i <= drainBefore[end]:
			all[i] = model.SellDraining
		default:
			all[i] = model.SellOpen
		}
	}
	return all
}

// years are zones with unusual clock changes in a year.
var years = []struct {
	zone string
	year int
	odd  []string // days, in UTC, on which clocks change
}{
	{"UTC", 2026, nil},
	{"Asia/Shanghai", 2026, nil},
	{"Asia/Kathmandu", 2026, nil},                             // 5:45 ahead
	{"Europe/Berlin", 2026, []string{"03-29", "10-25"}},       //
	{"America/New_York", 2026, []string{"03-08", "11-01"}},    //
	{"Australia/Lord_Howe", 2026, []string{"04-04", "10-03"}}, // by half an hour
	{"America/Santiago", 2026, []string{"04-05", "09-06"}},    // at midnight
	{"Africa/Cairo", 2026, []string{"04-23", "10-29"}},        // at midnight
	{"Africa/Casablanca", 2026, []string{"02-15", "03-22"}},   // in the opposite months
	{"Antarctica/Troll", 2026, []string{"03-29", "10-25"}},    // by two hours
	// Without the 30th of December.
	{"Pacific/Apia", 2011, []string{"04-02", "09-24", "12-29", "12-30", "12-31"}},
	{"America/Caracas", 2016, []string{"05-01"}},                                          // by half an hour, for good
	{"Asia/Pyongyang", 2018, []string{"05-04", "05-05"}},                                  // likewise, at 23:30
	{"Europe/Lisbon", 1992, []string{"03-29", "09-27"}},                                   // with a change of the zone
	{"Pacific/Kwajalein", 1993, []string{"08-20", "08-21", "08-22"}},                      // without the 21st of August
	{"America/Scoresbysund", 2024, []string{"03-30", "03-31", "04-01", "10-26", "10-27"}}, // twice within a day
}

// TestWindowsAgainstDumb compares the states of random windows with states computed minute by minute over a year: for
// every seventh minute around clock changes, and some other minutes.
func TestWindowsAgainstDumb(t *testing.T) {
	for i, y := range years {
		t.Run(y.zone, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 5))
			from := time.Date(y.year, 1, 1, 0, 0, 0, 0, time.UTC).Add(-10 * day)
			zones := map[string]*clock{}
			zone := func(name string) model.TimeZone {
				z, err := model.LoadTimeZone(name)
				if err != nil {
					t.Fatal(err)
				}
				if zones[name] == nil {
					c := newClock(z.Location(), from, 385)
					zones[name] = &c
				}
				return z
			}
			for range 4 {
				windows := []model.Window{randomWindow(r, zone(y.zone))}
				for r.IntN(2) == 0 {
					other := zone([]string{y.zone, "UTC"}[r.IntN(2)])
					windows = append(windows, randomWindow(r, other))
				}
				compareStates(t, r, from, windows, states(zones, windows), y.year, y.odd)
			}
		})
	}
}

// randomWindow returns a window that often begins and ends during clock changes, and where other windows do.
func randomWindow(r *rand.Rand, zone model.TimeZone) model.Window {
	times := []int{0, 10, 30, 60, 90, 105, 120, 135, 150, 180, 23*60 + 15, 23*60 + 45, 6 * 60, 18 * 60, r.IntN(24 * 60)}
	w := model.Window{Name: "w", Start: times[r.IntN(len(times))], Zone: zone}
	for w.End = w.Start; w.End == w.Start; {
		w.End = times[r.IntN(len(times))]
	}
	w.DrainBefore = time.Duration(r.IntN((w.End-w.Start+24*60)%(24*60))) * time.Minute
	return w
}

func compareStates(
	t *testing.T, r *rand.Rand, from time.Time, windows []model.Window, want []model.SellState, year int, odd []string,
) {
	t.Helper()
	check := func(i int) {
		now := from.Add(time.Duration(i) * time.Minute)
		got, _, next := Windows(windows, now)
		if got != want[i] {
			t.Fatalf("%+v at %s: %s, want %s", windows, now.In(windows[0].Zone.Location()), got, want[i])
		}
		switch o := OpeningAt(windows, now); {
		case o.Open != (want[i] != model.SellClosed), o.Open && (now.Before(o.Start) || !now.Before(o.End)),
			o.Open && now.Before(o.Drain) != (want[i] == model.SellOpen),
			want[i] == model.SellDraining && !o.End.Equal(next):
			t.Fatalf("%+v at %s: %+v, want %s until %s", windows, now, o, want[i], next)
		}
		change := i
		for change < len(want) && want[change] == want[i] {
			change++
		}
		after := time.Duration(change-i) * time.Minute
		if next.IsZero() && after <= lookAhead || !next.IsZero() && next.Sub(now) != after {
			t.Fatalf("%+v at %s, %s: changes at %s, want %s later",
				windows, now.In(windows[0].Zone.Location()), got, next, after)
		}
		// Within a minute the state is that of its start, and a moment before a change nothing has changed.
		for _, within := range []time.Duration{time.Nanosecond, time.Minute - 1} {
			if got, _, at := Windows(windows, now.Add(within)); got != want[i] || !at.Equal(next) && !next.IsZero() {
				t.Fatalf("%+v %s after %s: %s until %s, want %s until %s", windows, within, now, got, at, want[i], next)
			}
		}
	}
	for range fixture.Times(150) {
		check(10*24*60 + r.IntN(365*24*60))
	}
	for _, date := range odd {
		at, err := time.Parse(time.DateOnly, fmt.Sprintf("%d-%s", year, date))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 36 * 60 / 7 {
			check(int(at.Sub(from)/time.Minute) - 12*60 + 7*i + r.IntN(7))
		}
	}
}

// TestOddDays checks that the table lists all clock changes, so that the comparison covers them.
func TestOddDays(t *testing.T) {
	for _, y := range years {
		zone, err := time.LoadLocation(y.zone)
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, date := range y.odd {
			listed[date] = true
		}
		for at := time.Date(y.year, 1, 1, 0, 0, 0, 0, time.UTC).In(zone); ; {
			_, to := at.ZoneBounds()
			if to.IsZero() || to.UTC().Year() > y.year {
				break
			}
			if date := to.UTC().Format("01-02"); !listed[date] {
				t.Errorf("%s: clocks change at %s", y.zone, to.UTC())
			}
			at = to
		}
	}
}

// TestWindowInJournal checks that a window is the same after encoding and decoding.
func TestWindowInJournal(t *testing.T) {
	w, err := parseWindow("night,00:00,09:00,Asia/Shanghai,15m")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]model.Window{w})
	if err != nil {
		t.Fatal(err)
	}
	var read []model.Window
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if _, _, next := Windows(read, now); !next.Equal(now.Add(4 * time.Hour)) {
		t.Errorf("%s: opens at %s", text, next)
	}
	if err := json.Unmarshal([]byte(`[{"Zone":"Europe/Nowhere"}]`), &read); err == nil {
		t.Error("a zone that does not exist was accepted")
	}
}
