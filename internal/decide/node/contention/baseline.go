package contention

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

const (
	bins          = 12 // of CPU use, each twice the one before
	firstBinMilli = 25 // milli-cores up to which the first bin goes
	meanSamples   = 16 // a sample changes a mean by at least one part of this many
	minBinSamples = 3  // samples from which a bin of a baseline counts
	// Nothing is learned while online pods and the system use so much of the node, in thousandths, or have it for
	// themselves: pods wait for them then.
	nearlyFull   = 900
	maxLearned   = 1000               // thousandths of running that a sample counts with at most
	baselineTTL  = 7 * 24 * time.Hour // a baseline that was not used
	maxBaselines = 256                // baselines of a node
)

// Baseline is how long pods of one template wait for a CPU while batch is quiet. A pod that uses more waits more, for
// itself, so there is one figure for each bin of CPU use.
type Baseline struct {
	Key  string
	Used time.Duration // when it was learned last
	Bins Bins
}

// Bins are the waits of a template by its CPU use.
type Bins [bins]Bin

// Bin is a mean of samples: of the wait at one level of CPU use, in millionths of the time that the pod ran, or of what
// a pod lacks, in thousandths of a milli-core.
type Bin struct {
	Mean    int64
	Differs int64 // mean difference of a sample from the mean
	Samples int64 // at most weight
}

// MarshalJSON encodes the bins as an array of numbers without trailing zeros: every round of the journal has them.
func (b Bins) MarshalJSON() ([]byte, error) {
	row := make([]int64, 0, 3*bins)
	for _, bin := range b {
		row = append(row, bin.Mean, bin.Differs, bin.Samples)
	}
	for len(row) > 0 && row[len(row)-1] == 0 {
		row = row[:len(row)-1]
	}
	return json.Marshal(row)
}

// UnmarshalJSON decodes the output of [Bins.MarshalJSON].
func (b *Bins) UnmarshalJSON(text []byte) error {
	var row [3 * bins]int64
	if err := json.Unmarshal(text, &row); err != nil {
		return fmt.Errorf("reading a baseline: %w", err)
	}
	for i := range b {
		b[i] = Bin{row[3*i], row[3*i+1], row[3*i+2]}
	}
	return nil
}

// binOf returns the bin of a use in milli-cores.
func binOf(milli int64) int {
	b := 0
	for milli > firstBinMilli && b < bins-1 {
		milli /= 2
		b++
	}
	return b
}

// at returns what a pod waits when it uses this much, in thousandths. A bin with too few samples has what its neighbour
// has, of two the lower; from further away nothing follows.
func (b *Baseline) at(milli int64) int64 {
	if b == nil {
		return 0
	}
	i := binOf(milli)
	if b.Bins[i].Samples >= minBinSamples {
		return b.Bins[i].high()
	}
	near := int64(-1)
	for _, i := range []int{i - 1, i + 1} {
		if 0 <= i && i < bins && b.Bins[i].Samples >= minBinSamples && (near < 0 || b.Bins[i].high() < near) {
			near = b.Bins[i].high()
		}
	}
	return max(near, 0)
}

// high returns a value that samples hardly exceed, in the unit of the samples.
func (b *Bin) high() int64 { return (b.Mean + 2*b.Differs + 999) / 1000 }

// add adds a sample.
func (b *Bin) add(sample int64) {
	sample *= 1000
	if b.Samples == 0 {
		*b = Bin{Mean: sample, Samples: 1}
		return
	}
	b.Samples = min(b.Samples+1, meanSamples)
	differs := sample - b.Mean
	b.Mean += differs / b.Samples
	if differs < 0 {
		differs = -differs
	}
	b.Differs += (differs - b.Differs) / b.Samples
}

// find returns the index of the baseline of a key, or where it would be.
func (s *State) find(key string) (int, bool) {
	return sort.Find(len(s.Baselines), func(i int) int { return strings.Compare(key, s.Baselines[i].Key) })
}

// baseline returns the baseline of a key; nil if there is none.
func (s *State) baseline(key string) *Baseline {
	i, found := s.find(key)
	if !found {
		return nil
	}
	return &s.Baselines[i]
}

// learn adds a sample to the baseline of a key. The previous state keeps its baselines.
func (r *round) learn(key string, milli, ratio int64) {
	if !r.baselinesCopied {
		r.state.Baselines, r.baselinesCopied = slices.Clone(r.state.Baselines), true
	}
	i, found := r.state.find(key)
	if !found {
		r.state.Baselines = slices.Insert(r.state.Baselines, i, Baseline{Key: key})
	}
	r.state.Baselines[i].Used = r.now
	r.state.Baselines[i].Bins[binOf(milli)].add(ratio)
}

// forget returns the baselines without those that nothing has used for a week. Where there are too many, the namespace
// that has most of them loses its oldest: no tenant displaces what was learned of another.
func forget(all []Baseline, now time.Duration) []Baseline {
	old := func(b Baseline) bool { return now-b.Used > baselineTTL }
	if len(all) <= maxBaselines && !slices.ContainsFunc(all, old) {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), old)
	for len(all) > maxBaselines {
		counts := map[string]int{}
		most := 0
		for i := range all {
			counts[spaceOf(all[i].Key)]++
			most = max(most, counts[spaceOf(all[i].Key)])
		}
		oldest := -1
		for i := range all {
			if counts[spaceOf(all[i].Key)] == most && (oldest < 0 || all[i].Used < all[oldest].Used) {
				oldest = i
			}
		}
		all = slices.Delete(all, oldest, oldest+1)
	}
	return all
}

// keyOf returns the key of the baseline of a pod, which begins with its namespace: pods of one template wait alike.
func keyOf(pod *model.Pod) string {
	for _, label := range []string{"pod-template-hash", "controller-revision-hash"} {
		if hash := pod.Labels[label]; hash != "" && pod.Owner != "" {
			return pod.Namespace + ":" + pod.Owner + "/" + hash
		}
	}
	return pod.Namespace + ":" + pod.UID
}

// spaceOf returns the namespace of a key.
func spaceOf(key string) string {
	space, _, _ := strings.Cut(key, ":")
	return space
}
