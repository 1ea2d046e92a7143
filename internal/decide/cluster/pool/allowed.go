package pool

import "time"

// noticeGraces is the time before its end, in multiples of the grace, from which a worker that stops has an allowance
// of zero, so that its guard asks executors to leave. In a graceful decommission, the ResourceManager asks them.
const noticeGraces = 2

// Allowed returns what the guard of a worker lets its containers use after its next step, and until when the others may
// run: the size that the worker's deadline is for, or without a deadline its total. It is not known while the
// ResourceManager is silent, nor for a worker that drains with a total of zero: its containers keep what they have
// until shortly before its end.
func Allowed(in *Input, w *Worker, s *Step) (size Size, until time.Time, known bool) {
	m, _ := w.Manager()
	switch {
	case !s.By.IsZero() && !in.Settings.Graceful && in.Now.After(s.By.Add(-noticeGraces*in.Settings.Grace)):
		return Size{}, s.By, true
	case !s.Marks.Until.IsZero():
		return s.Marks.Into, s.Marks.Until, true
	case !in.RM.Known:
	case s.Verb == Resize && s.Size != (Size{}):
		return s.Size, time.Time{}, true
	case s.Verb != Resize && m != nil && m.Total != (Size{}):
		return m.Total, time.Time{}, true
	}
	return Size{}, time.Time{}, false
}
