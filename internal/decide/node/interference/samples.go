package interference

import (
	"slices"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	spanLength   = 5 * time.Second // one sample is the mean of a span
	maxSamples   = 60              // kept: five minutes
	maxSampleAge = 2 * time.Second // older measurements do not belong to the open span
	recentSpans  = 3               // samples that describe the present
	minSpan      = time.Second / 2 // a shorter time counts for no span of waiting
)

// Track is what is known of one pod beside its samples. A span without a measurement is a gap.
type Track struct {
	UID  string
	Rest int16 // spans for which other victims are preferred
	Used int16 // samples of its CPU use up to now without a gap
	Wait int16 // samples of its waiting up to now without a gap

	UsedAt time.Duration // of the last measurement of its CPU use
	Sum    int64         // of the measurements in the open span, in milli-cores
	Count  int16         // number of them
	Began  model.Lack    // what it had lacked when the open span began
	Lacked model.Lack    // what it had lacked when that was last measured
}

// Row is the samples of one pod. All rows are copied in each span, so they are small.
type Row struct {
	UID  string
	Used ring[int32] // CPU use in milli-cores
	Wait ring[int16] // thousandths of the time, at most all of it
}

// ring is the samples of five minutes. It begins anew then: a new sample changes nothing else.
type ring[T int16 | int32] [maxSamples]T

// place returns where in a ring the sample stands that is so many spans old, while a span is open; 0 is the newest.
func place(open, age int64) int64 { return (open - 1 - age + maxSamples) % maxSamples }

// mean returns the mean of the n newest samples.
func (r *ring[T]) mean(open, n int64) int64 {
	sum := int64(0)
	for age := range n {
		sum += int64(r[place(open, age)])
	}
	return sum / n
}

// newest copies the newest samples, the oldest of them first.
func (r *ring[T]) newest(open int64, into []float64) {
	for i := range into {
		into[i] = float64(r[place(open, int64(len(into)-1-i))])
	}
}

// lowest returns the mean of the lowest quarter of the n newest samples.
func (r *ring[T]) lowest(open, n int64) int64 {
	var sorted ring[T]
	for age := range n {
		sorted[age] = r[place(open, age)]
	}
	slices.Sort(sorted[:n])
	sum := int64(0)
	for _, v := range sorted[:n/4] {
		sum += int64(v)
	}
	return sum / (n / 4)
}

// follow makes tracks and rows for the pods that there are now. The previous state keeps its own.
func (s *State) follow(pods []Pod) {
	before := *s
	s.Tracks = make([]Track, len(pods))
	same := slices.EqualFunc(pods, before.Rows, func(p Pod, r Row) bool { return p.UID == r.UID && !p.New })
	if !same {
		s.Rows = make([]Row, len(pods))
	}
	for i := range pods {
		p, t := &pods[i], &s.Tracks[i]
		t.UID = p.UID
		j, known := before.index(p.UID)
		known = known && !p.New && j < len(before.Rows)
		switch {
		case known:
			*t = before.Tracks[j]
		case p.New: // Before it was made it used nothing, which is as good as measured, in the open span too.
			t.Used, t.Count = int16(s.Length), 1
		}
		if same {
			continue
		}
		if known {
			s.Rows[i] = before.Rows[j]
		}
		s.Rows[i].UID = p.UID
	}
}

// index returns the place of a pod in the tracks.
func (s *State) index(uid string) (int, bool) {
	return model.IndexByUID(s.Tracks, uid, func(t *Track) string { return t.UID })
}

// turn completes the open span if its time is over, and reports whether it did. After a gap it drops all samples.
func (s *State) turn() bool {
	now := int64(s.Clock/spanLength) + 1
	switch {
	case now == s.Span:
		return false
	case now == s.Span+1:
		s.complete()
		s.Length = min(s.Length+1, maxSamples)
	default:
		for i := range s.Tracks {
			s.Tracks[i] = Track{UID: s.Tracks[i].UID}
		}
		s.Length = 0
	}
	s.Span = now
	return true
}

// complete makes the samples of the open span.
func (s *State) complete() {
	s.Rows = slices.Clone(s.Rows)
	at := s.Span % maxSamples
	for i := range s.Tracks {
		t, row := &s.Tracks[i], &s.Rows[i]
		if t.Count > 0 {
			row.Used[at], t.Used = int32(t.Sum/int64(t.Count)), min(t.Used+1, maxSamples)
		} else {
			t.Used = 0
		}
		t.Sum, t.Count = 0, 0
		length, waited := t.Lacked.At-t.Began.At, t.Lacked.Wait-t.Began.Wait
		if minSpan <= length && length <= 2*spanLength {
			// The kernel accounts a wait when it ends, so a span may show more than all of its time.
			row.Wait[at], t.Wait = int16(min(waited*1000/length, 1000)), min(t.Wait+1, maxSamples)
		} else {
			t.Wait = 0
		}
		t.Began = t.Lacked
	}
}

// measure adds the measurements of a second to the open span, those that are new and belong there.
func (t *Track) measure(now time.Duration, p *Pod) {
	belongs := func(at, last time.Duration) bool { return at > last && at <= now && now-at <= maxSampleAge }
	if belongs(p.UsedAt, t.UsedAt) {
		t.UsedAt = p.UsedAt
		t.Sum += min(max(p.Used, 0), maxUsed)
		t.Count++
	}
	if belongs(p.Lacked.At, t.Lacked.At) {
		before := t.Lacked
		t.Lacked = p.Lacked
		if t.Lacked.At-before.At > 2*spanLength || t.Lacked.Wait < before.Wait { // after a gap, or the sum began anew
			t.Began = t.Lacked
		}
	}
}
