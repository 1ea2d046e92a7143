package interference

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	span    = 5 * time.Second // one sample is the mean of a span
	samples = 60              // kept: five minutes
	fresh   = 2 * time.Second // older measurements do not belong to the open span
	grain   = 4               // milli-cores: the unit of CPU use in samples, so that 262 CPUs fit into 16 bits
	recent  = 3               // samples that describe the present
)

// Column holds one sample of each pod, by the pod's slot. It is never changed once it is in a state.
type Column struct {
	Used []uint16 // CPU use in grains
	Wait []uint16 // thousandths of the time, at most all of it
}

// Track is what is known of one pod. A pod keeps its slot for as long as it is there; then another pod may have it.
type Track struct {
	UID  string
	Slot uint16 // where its samples stand in columns
	Age  uint8  // complete spans in which it had the slot, at most samples; its samples before that are 0
	Rest uint8  // spans for which other victims are preferred
	Used Series
	Wait Series
	// The sum that the last value of Wait ended with; it has no UID.
	Lacked model.Lacked
}

// Series is one quantity of one pod.
type Series struct {
	At   time.Duration // of the last measurement
	Sum  int32         // of the measurements in the open span; each counts up to 65535
	N    int16         // number of them
	Full uint8         // samples up to now without a gap; a span without a measurement is a gap
}

// add adds a measurement to the open span, if it is new and belongs there.
func (s *Series) add(now, at time.Duration, value int64) {
	if at <= s.At || at > now || now-at > fresh {
		return
	}
	s.At = at
	s.Sum += int32(min(max(value, 0), 1<<16-1))
	s.N++
}

// finish completes the open span and returns its sample, which is no more than a bound.
func (s *Series) finish(most int32) uint16 {
	sample := uint16(0)
	if s.N == 0 {
		s.Full = 0
	} else {
		sample = uint16(min(s.Sum/int32(s.N), most))
		s.Full = min(s.Full+1, samples)
	}
	s.Sum, s.N = 0, 0
	return sample
}

// forget drops all that was measured so far.
func (s *Series) forget() { s.Full, s.Sum, s.N = 0, 0, 0 }

// quantity selects a series of a pod.
type quantity int

const (
	used quantity = iota
	wait
)

// sample returns the sample of a pod that is so many spans old; 0 is the newest.
func (s *State) sample(t *Track, q quantity, age int) uint16 {
	if age >= int(t.Age) || age >= len(s.Columns) {
		return 0
	}
	c := s.Columns[len(s.Columns)-1-age]
	if q == used {
		return c.Used[t.Slot]
	}
	return c.Wait[t.Slot]
}

// mean returns the mean of the n newest samples.
func (s *State) mean(t *Track, q quantity, n int) int64 {
	sum := int64(0)
	for age := range n {
		sum += int64(s.sample(t, q, age))
	}
	return sum / int64(n)
}

// newest copies the newest samples, the oldest of them first.
func (s *State) newest(t *Track, q quantity, into []float64) {
	for i := range into {
		into[i] = float64(s.sample(t, q, len(into)-1-i))
	}
}

// lowest returns the mean of the lowest quarter of the n newest samples.
func (s *State) lowest(t *Track, q quantity, n int) int64 {
	var sorted [samples]uint16
	for age := range n {
		sorted[age] = s.sample(t, q, age)
	}
	slices.Sort(sorted[:n])
	sum := int64(0)
	for _, v := range sorted[:n/4] {
		sum += int64(v)
	}
	return sum / int64(n/4)
}

// follow makes tracks for the pods that there are now.
func (s *State) follow(pods []Pod) {
	same := len(pods) == len(s.Tracks)
	for i := 0; same && i < len(pods); i++ {
		same = pods[i].UID == s.Tracks[i].UID && !pods[i].New
	}
	if same {
		s.Tracks = slices.Clone(s.Tracks)
		return
	}
	tracks := make([]Track, len(pods))
	taken := make([]bool, len(pods)+len(s.Tracks))
	for i := range pods {
		p, t := &pods[i], &tracks[i]
		if j, found := s.index(p.UID); found && !p.New {
			*t = s.Tracks[j]
			for len(taken) <= int(t.Slot) {
				taken = append(taken, false)
			}
			taken[t.Slot] = true
		}
	}
	free := 0
	for i := range pods {
		p, t := &pods[i], &tracks[i]
		if t.UID != "" {
			continue
		}
		for taken[free] {
			free++
		}
		*t, taken[free] = Track{UID: p.UID, Slot: uint16(free)}, true
		if p.New {
			// Before it was made it used nothing, which is as good as measured, in the open span too.
			t.Used = Series{Full: uint8(s.Length), N: 1}
			t.Wait = t.Used
		}
	}
	s.Tracks = tracks
}

// index returns the place of a pod in the tracks.
func (s *State) index(uid string) (int, bool) {
	return slices.BinarySearchFunc(s.Tracks, uid, func(t Track, uid string) int { return strings.Compare(t.UID, uid) })
}

// turn completes the open span if its time is over, and reports whether it did. After a gap it drops all samples.
func (s *State) turn() bool {
	now := int64(s.Clock/span) + 1
	switch {
	case now == s.Span:
		return false
	case now == s.Span+1:
		s.complete()
		s.Length = min(s.Length+1, samples)
	default:
		for i := range s.Tracks {
			s.Tracks[i].Used.forget()
			s.Tracks[i].Wait.forget()
		}
		s.Length, s.Columns = 0, nil
	}
	s.Span = now
	return true
}

// complete adds the column of the open span.
func (s *State) complete() {
	slots := 0
	for i := range s.Tracks {
		slots = max(slots, int(s.Tracks[i].Slot)+1)
	}
	c := &Column{Used: make([]uint16, slots), Wait: make([]uint16, slots)}
	for i := range s.Tracks {
		t := &s.Tracks[i]
		// The kernel accounts a wait when it ends. So a second may show more than all of its time, and only the span may not.
		c.Used[t.Slot], c.Wait[t.Slot] = t.Used.finish(math.MaxUint16), t.Wait.finish(1000)
		t.Age = min(t.Age+1, samples)
	}
	oldest := max(len(s.Columns)-samples+1, 0)
	s.Columns = append(slices.Clone(s.Columns[oldest:]), c)
}
