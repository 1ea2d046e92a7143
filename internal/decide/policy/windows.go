package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	day       = 24 * time.Hour
	lookAhead = 3 * day        // how far changes are predicted
	maxOffset = 26 * time.Hour // more than the offset from UTC of any clock, now or in the past
)

// span is a time in which windows are open.
type span struct {
	start, end  time.Time
	opens, ends *model.Window // the windows that open and close it
}

// Windows returns the state of selling at a moment, the time of the next change, and the window that causes it. The
// time is zero if nothing changes within three days.
//
// Windows that overlap or meet count as one: if another window continues when one ends, nothing is drained.
func Windows(windows []model.Window, now time.Time) (state model.SellState, changes *model.Window, next time.Time) {
	if len(windows) == 0 || slices.ContainsFunc(windows, func(w model.Window) bool { return w.Always() }) {
		return model.SellOpen, nil, time.Time{}
	}
	horizon := now.Add(lookAhead)
	for _, s := range spans(windows, now, horizon) {
		drain := s.end.Add(-s.ends.DrainBefore)
		switch {
		case !now.Before(s.end):
			continue
		case s.start.After(horizon):
			return model.SellClosed, nil, time.Time{}
		case now.Before(s.start):
			return model.SellClosed, s.opens, s.start
		case drain.After(horizon):
			return model.SellOpen, nil, time.Time{}
		case now.Before(drain):
			return model.SellOpen, s.ends, drain
		default:
			return model.SellDraining, s.ends, s.end
		}
	}
	return model.SellClosed, nil, time.Time{}
}

// Opening is the time around a moment in which windows are open. Windows that overlap or meet count as one.
type Opening struct {
	Open  bool
	Start time.Time // zero: it has no beginning
	Drain time.Time // when nothing new is to begin; zero: never
	End   time.Time // zero: it never ends
}

// OpeningAt returns the opening at a moment. Without windows it is always open.
func OpeningAt(windows []model.Window, now time.Time) Opening {
	if len(windows) == 0 || slices.ContainsFunc(windows, func(w model.Window) bool { return w.Always() }) {
		return Opening{Open: true}
	}
	for _, s := range spans(windows, now, now.Add(lookAhead)) {
		if !now.Before(s.start) && now.Before(s.end) {
			return Opening{Open: true, Start: s.start, Drain: s.end.Add(-s.ends.DrainBefore), End: s.end}
		}
	}
	return Opening{}
}

// spans returns the times around a moment and up to a horizon in which windows are open, in order. They neither
// overlap nor meet.
func spans(windows []model.Window, now, horizon time.Time) []span {
	var all []span
	for i := range windows {
		w := &windows[i]
		// In any time zone, a window that began two days before now has ended. One day beyond the horizon shows how a
		// window continues that is open at the horizon.
		first := midnight(now.In(w.Zone.Location())).Add(-2 * day)
		for date := first; date.Before(horizon.Add(maxOffset + 2*day)); date = date.Add(day) {
			if s := occurrence(w, date); s.start.Before(s.end) {
				all = append(all, s)
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.start.Compare(b.start), a.end.Compare(b.end)) })
	var joined []span
	for _, s := range all {
		last := len(joined) - 1
		switch {
		case last < 0 || s.start.After(joined[last].end):
			joined = append(joined, s)
		case s.end.After(joined[last].end), s.end.Equal(joined[last].end) &&
			s.ends.DrainBefore > joined[last].ends.DrainBefore:
			joined[last].end, joined[last].ends = s.end, s.ends
		}
	}
	return joined
}

// midnight returns the local midnight of t's date, as if it were UTC. That local time need not exist.
func midnight(t time.Time) time.Time {
	year, month, date := t.Date()
	return time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
}

// occurrence returns when a window that begins on a date is open. It is empty on days on which the clock skips the
// window.
func occurrence(w *model.Window, date time.Time) span {
	end := date
	if w.End <= w.Start {
		end = date.Add(day)
	}
	location := w.Zone.Location()
	return span{
		start: settled(date.Add(time.Duration(w.Start)*time.Minute), location),
		end:   reached(end.Add(time.Duration(w.End)*time.Minute), location),
		opens: w,
		ends:  w,
	}
}

// settled returns the time from which a clock never shows less than a reading. The reading is given as if it were
// UTC.
func settled(reading time.Time, location *time.Location) time.Time {
	latest := reading.Add(-maxOffset)
	for _, z := range stretches(reading, location) {
		if z.from.Add(z.offset).Before(reading) { // it shows less as the stretch begins
			latest = earlier(reading.Add(-z.offset), z.to)
		}
	}
	return latest
}

// reached returns when a clock first shows a reading or more. The reading is given as if it were UTC.
func reached(reading time.Time, location *time.Location) time.Time {
	for _, z := range stretches(reading, location) {
		if !z.to.Add(z.offset).After(reading) { // the clock shows less until the stretch ends
			continue
		}
		if at := reading.Add(-z.offset); at.After(z.from) {
			return at
		}
		return z.from
	}
	return reading.Add(maxOffset)
}

// stretch is a time in which a clock has a fixed offset from UTC.
type stretch struct {
	from, to time.Time
	offset   time.Duration
}

// stretches returns the stretches in which a clock could show a reading, in order.
func stretches(reading time.Time, location *time.Location) []stretch {
	var all []stretch
	last := reading.Add(maxOffset)
	for at := reading.Add(-maxOffset); at.Before(last); {
		_, to := at.In(location).ZoneBounds()
		_, seconds := at.In(location).Zone()
		if to.IsZero() || to.After(last) {
			to = last
		}
		all = append(all, stretch{at, to, time.Duration(seconds) * time.Second})
		at = to
	}
	return all
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
