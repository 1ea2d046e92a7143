package harm

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

const (
	bins    = 8                  // of CPU use, each twice the one before
	lowest  = 25                 // milli-cores up to which the first bin goes
	weight  = 16                 // a sample changes a mean by at least one part of this many
	forgets = 7 * 24 * time.Hour // a baseline that was not used
	capped  = 256                // baselines of a node
)

// Baseline is how long pods of one template wait for a CPU while batch is quiet, or how many cycles they need. A pod
// that uses more waits more, for itself, so there is one figure for each bin of CPU use.
type Baseline struct {
	Key  string
	Used time.Duration // when it was learned last
	Bins Bins
}

// Bins are the waits of a template, or its cycles, by its CPU use.
type Bins [bins]Bin

// Bin is the wait at one level of CPU use, in millionths of the time that the pod ran, or the cycles for a million
// instructions.
type Bin struct {
	Mean    int64
	Differs int64 // mean difference of a sample from the mean
	Samples int64 // at most weight
}

// MarshalJSON encodes the bins as an array of numbers without trailing zeros: every round of the journal has them.
func (b Bins) MarshalJSON() ([]byte, error) {
	row := b.row()
	n := len(row)
	for n > 0 && *row[n-1] == 0 {
		n--
	}
	return json.Marshal(row[:n])
}

// UnmarshalJSON decodes the output of [Bins.MarshalJSON].
func (b *Bins) UnmarshalJSON(text []byte) error {
	var numbers []int64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return fmt.Errorf("reading a baseline: %w", err)
	}
	*b = Bins{}
	row := b.row()
	if len(numbers) > len(row) {
		return fmt.Errorf("reading a baseline: %d numbers, not %d", len(numbers), len(row))
	}
	for i, n := range numbers {
		*row[i] = n
	}
	return nil
}

// row returns pointers to all numbers in the order of their encoding.
func (b *Bins) row() [3 * bins]*int64 {
	var row [3 * bins]*int64
	for i := range b {
		row[3*i], row[3*i+1], row[3*i+2] = &b[i].Mean, &b[i].Differs, &b[i].Samples
	}
	return row
}

// binOf returns the bin of a use in milli-cores.
func binOf(milli int64) int {
	b := 0
	for milli > lowest && b < bins-1 {
		milli /= 2
		b++
	}
	return b
}

// at returns what a pod waits when it uses this much, in thousandths. A bin without samples has what the nearest one
// has, of two the lower.
func (b *Baseline) at(milli int64) int64 {
	if b == nil {
		return 0
	}
	own := binOf(milli)
	for away := range bins {
		for _, i := range []int{own - away, own + away} {
			if 0 <= i && i < bins && b.Bins[i].Samples > 0 {
				return (b.Bins[i].Mean + 2*b.Bins[i].Differs + 999) / 1000
			}
		}
	}
	return 0
}

// add adds a sample in thousandths.
func (b *Bin) add(ratio int64) {
	ratio *= 1000
	if b.Samples == 0 {
		*b = Bin{Mean: ratio, Samples: 1}
		return
	}
	b.Samples = min(b.Samples+1, weight)
	differs := ratio - b.Mean
	b.Mean += differs / b.Samples
	if differs < 0 {
		differs = -differs
	}
	b.Differs += (differs - b.Differs) / b.Samples
}

// baseline returns the baseline of a key; nil if there is none.
func (s *State) baseline(key string) *Baseline { return find(s.Baselines, key) }

// find returns the baseline of a key; nil if there is none.
func find(all []Baseline, key string) *Baseline {
	i, found := slices.BinarySearchFunc(all, key, compareKey)
	if !found {
		return nil
	}
	return &all[i]
}

// learn adds a sample to the baseline of a key. The previous state keeps its baselines.
func (j *judge) learn(key string, milli, ratio int64) {
	j.state.Baselines = learn(j.state.Baselines, !j.learned, key, j.n.Load.Clock, milli, ratio)
	j.learned = true
}

// learn returns baselines to which a sample was added, of one key at one use. Shared ones stay as they are.
func learn(all []Baseline, shared bool, key string, now time.Duration, milli, ratio int64) []Baseline {
	i, found := slices.BinarySearchFunc(all, key, compareKey)
	if shared {
		all = slices.Clone(all)
	}
	if !found {
		all = slices.Insert(all, i, Baseline{Key: key})
	}
	all[i].Used = now
	all[i].Bins[binOf(milli)].add(ratio)
	return all
}

// Learned returns the part of a state that counts after a reboot, when the clock starts anew.
func (s State) Learned() State {
	unused := func(all []Baseline) []Baseline {
		all = slices.Clone(all)
		for i := range all {
			all[i].Used = 0
		}
		return all
	}
	return State{Baselines: unused(s.Baselines), CycleBaselines: unused(s.CycleBaselines)}
}

// forget returns the baselines without those that nothing has used for a week, and without the oldest where there are
// too many.
func forget(all []Baseline, now time.Duration) []Baseline {
	old := func(b Baseline) bool { return now-b.Used > forgets }
	if len(all) > capped {
		times := make([]time.Duration, len(all))
		for i := range all {
			times[i] = all[i].Used
		}
		slices.Sort(times)
		last := times[len(all)-capped]
		old = func(b Baseline) bool { return b.Used < last }
	}
	if !slices.ContainsFunc(all, old) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), old)
}
