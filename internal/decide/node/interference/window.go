package interference

import (
	"slices"
	"strings"
	"time"
)

const (
	span    = 5 * time.Second // of which one sample is the mean
	samples = 60              // that are kept: five minutes
	fresh   = 2 * time.Second // what was measured before that is not of now
	grain   = 4               // milli-cores: the unit in which use is kept, so that 262 CPUs fit
	recent  = 3               // samples that are taken for now
)

// track is what is remembered of one pod: about 330 bytes.
type track struct {
	uid   string
	used  series // in grains
	wait  series // in thousandths of the time
	score float32
	slope float32 // thousandths of the victim's time a grain
	rest  int8    // spans for which other victims come first
}

// series is what was measured of one thing, a sample a span. All have the same slot for the same span.
type series struct {
	values [samples]uint16
	full   int           // of them, in a row up to now; a span in which nothing was measured leaves 0
	at     time.Duration // of the last measurement
	sum, n int64         // in the span that is open
}

// take takes in a measurement, once, and only if it is of now.
func (s *series) take(now, at time.Duration, value int64) {
	if at <= s.at || at > now || now-at > fresh {
		return
	}
	s.at = at
	s.sum += min(max(value, 0), 1<<16-1)
	s.n++
}

// finish completes the span that is open.
func (s *series) finish(slot int) {
	if s.n == 0 {
		s.full = 0
	} else {
		s.values[slot] = uint16(s.sum / s.n)
		s.full = min(s.full+1, samples)
	}
	s.sum, s.n = 0, 0
}

// forget leaves nothing that was measured before now.
func (s *series) forget() { s.full, s.sum, s.n = 0, 0, 0 }

// mean returns that of the last samples before a slot, of which there must be so many.
func (s *series) mean(slot, n int) int64 {
	sum := int64(0)
	for i := range n {
		sum += int64(s.values[(slot+samples-1-i)%samples])
	}
	return sum / int64(n)
}

// last copies the last samples before a slot, the oldest first.
func (s *series) last(slot int, into []float64) {
	from := (slot + samples - len(into)) % samples
	for i := range into {
		into[i] = float64(s.values[from])
		if from++; from == samples {
			from = 0
		}
	}
}

// low returns the mean of the quarter of the last samples before a slot that are lowest.
func (s *series) low(slot, n int) int64 {
	var sorted [samples]uint16
	for i := range n {
		sorted[i] = s.values[(slot+samples-1-i)%samples]
	}
	slices.Sort(sorted[:n])
	sum := int64(0)
	for _, v := range sorted[:n/4] {
		sum += int64(v)
	}
	return sum / int64(n/4)
}

// follow brings the tracks to the pods that there are.
func (s *State) follow(pods []Pod) {
	same := len(pods) == len(s.tracks)
	for i := 0; same && i < len(pods); i++ {
		same = pods[i].UID == s.tracks[i].uid && !pods[i].New
	}
	if same {
		return
	}
	tracks := make([]track, len(pods))
	for i := range pods {
		p, t := &pods[i], &tracks[i]
		j, found := slices.BinarySearchFunc(s.tracks, p.UID, func(t track, uid string) int { return strings.Compare(t.uid, uid) })
		switch {
		case p.New:
			// Before it was made it used nothing, which is as good as measured, in the span that is open too.
			t.used.full, t.wait.full = s.length, s.length
			t.used.n, t.wait.n = 1, 1
		case found:
			*t = s.tracks[j]
		}
		t.uid = p.UID
	}
	s.tracks = tracks
}

// turn completes the span that is open if its time is over, and reports whether it did. Where nobody looked for longer, all that
// was measured before is of no use.
func (s *State) turn() bool {
	now := int64(s.Clock/span) + 1
	switch {
	case now == s.open:
		return false
	case now == s.open+1:
		for i := range s.tracks {
			s.tracks[i].used.finish(s.slot)
			s.tracks[i].wait.finish(s.slot)
		}
		s.slot = (s.slot + 1) % samples
		s.length = min(s.length+1, samples)
	default:
		for i := range s.tracks {
			s.tracks[i].used.forget()
			s.tracks[i].wait.forget()
		}
		s.length = 0
	}
	s.open = now
	return true
}
