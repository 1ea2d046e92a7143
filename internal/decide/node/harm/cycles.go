package harm

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/waterline-io/waterline/internal/model"
)

// How harm is found by the cycles that pods need for each instruction, which grow when others use the same core, caches
// or memory bandwidth. Ratios are in cycles for 1000 instructions.
const (
	mostCounted = 16                     // pods, because each costs two files for each CPU
	slower      = 100                    // what is no harm beyond the baseline, in thousandths of it
	costs       = 50                     // of the pod's CPU use, in thousandths: less lacking CPU is no harm
	known       = 4                      // samples without which a bin says nothing
	mostCycles  = 1 << 20                // for 1000 instructions; no CPU is so slow
	fewest      = 1_000_000              // instructions in a sample that says something
	oneSecond   = 900 * time.Millisecond // between two samples that are compared, at least
	seconds     = 3 * time.Second        // at most
)

// Counted is what is known of one online pod whose cycles are counted.
type Counted struct {
	UID          string
	At           time.Duration // of the sample up to which it was judged; 0: none
	Cycles       int64         // sums of that sample
	Instructions int64
	Learned      time.Duration `json:",omitempty"` // when it was added to a baseline; 0: never
	Harm         model.PodHarm `json:",omitzero"`  // when it was judged last
	Fault                      // in cycles for 1000 instructions
}

// cycles judges the pods whose cycles are counted, and chooses which are counted from now on.
func (j *judge) cycles(last []Counted) {
	now := j.n.Load.Clock
	if slices.ContainsFunc(last, func(c Counted) bool { return c.At > now }) {
		last = nil // from another boot
	}
	copied := false
	next := 0
	for _, pod := range j.toCount(last) {
		for next < len(last) && last[next].UID < pod.UID {
			next++
		}
		c := Counted{UID: pod.UID}
		if next < len(last) && last[next].UID == pod.UID {
			c = last[next]
		}
		sum, u := model.FindCycles(j.n.Cycles, pod.UID), j.n.Load.Pod(pod.UID)
		if sum == nil || sum.At == 0 || u == nil {
			j.state.Counted = append(j.state.Counted, Counted{UID: c.UID, Fault: c.Fault})
			continue
		}
		key := keyOf(pod)
		before := find(j.state.CycleBaselines, key)
		milli := min(max(u.CPU.Milli, 0), model.MaxCPUs*1000)
		ratio := c.judge(sum, before, milli, now, j.quiet, j.useless)
		if j.quiet && ratio > 0 && now-c.Learned >= seldom-seconds/2 {
			j.state.CycleBaselines = learn(j.state.CycleBaselines, !copied, key, now, milli, ratio)
			copied, c.Learned = true, now
		}
		if c.Harm.Milli > 0 {
			j.result.Deep = true
			j.add(&c.Harm)
		}
		j.state.Counted = append(j.state.Counted, c)
	}
}

// judge compares what a pod took since the last sample with its baseline, and sets its harm. It returns the cycles for
// 1000 instructions; 0: too little was counted.
func (c *Counted) judge(
	sum *model.PodCycles, b *Baseline, milli int64, now time.Duration, quiet, useless bool,
) (ratio int64) {
	since := sum.At - c.At
	if 0 <= since && since < oneSecond {
		if now-c.At > moment {
			c.Harm = model.PodHarm{}
		}
		return 0
	}
	cycles, instructions := sum.Cycles-c.Cycles, sum.Instructions-c.Instructions
	first := c.At == 0
	c.At, c.Cycles, c.Instructions, c.Harm = sum.At, sum.Cycles, sum.Instructions, model.PodHarm{}
	c.fade(now)
	const most = 1 << 52 // its thousandfold is in bounds
	if first || since < 0 || since > seconds || now-sum.At > seconds || milli < uses ||
		instructions < fewest || instructions > most || cycles <= 0 || cycles > most {
		return 0
	}
	ratio = min(max(cycles*1000/instructions, 1), mostCycles)
	allowed, judged := b.cycles(milli)
	if quiet || !judged {
		return ratio
	}
	if useless && ratio > allowed {
		c.Own, c.OwnAt = max(c.Own, ratio-allowed), now
	}
	allowed += c.Own
	if lacks := milli - milli*allowed/ratio; lacks > noise && lacks*1000 >= milli*costs {
		c.Harm = model.PodHarm{UID: c.UID, Milli: lacks, Waits: ratio, Allowed: allowed, By: model.HarmByCycles}
	}
	return ratio
}

// cycles returns how many cycles a pod may need for 1000 instructions when it uses this much; false if that was not
// learned. More use may mean fewer cycles, so that other bins say nothing.
func (b *Baseline) cycles(milli int64) (allowed int64, judged bool) {
	if b == nil {
		return 0, false
	}
	bin := &b.Bins[binOf(milli)]
	if bin.Samples < known {
		return 0, false
	}
	return (bin.Mean*(1000+slower)/1000 + 2*bin.Differs) / 1000, true
}

// Count returns which pods must be counted until the next round, in the order of their UIDs.
func Count(s *State) []string {
	var uids []string
	for i := range s.Counted {
		uids = append(uids, s.Counted[i].UID)
	}
	return uids
}

// toCount returns the online pods that use most CPU, ordered by UID. A pod that is counted stays unless another uses
// twice as much: otherwise two alike would take turns.
func (j *judge) toCount(last []Counted) []*model.Pod {
	type candidate struct {
		pod *model.Pod
		use int64
	}
	var all []candidate
	for i, pod := range j.n.Pods {
		if !watched(j.n, pod) || i > 0 && j.n.Pods[i-1].UID == pod.UID {
			continue
		}
		c := candidate{pod: pod}
		if u := j.n.Load.Pod(pod.UID); u != nil {
			c.use = min(max(u.CPU.Milli, 0), model.MaxCPUs*1000)
		}
		_, counted := slices.BinarySearchFunc(last, pod.UID, func(c Counted, uid string) int {
			return strings.Compare(c.UID, uid)
		})
		if counted {
			c.use *= 2
		}
		if counted || c.use >= uses {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.use, a.use) })
	all = all[:min(len(all), mostCounted)]
	pods := make([]*model.Pod, len(all))
	for i := range all {
		pods[i] = all[i].pod
	}
	slices.SortFunc(pods, func(a, b *model.Pod) int { return strings.Compare(a.UID, b.UID) })
	return pods
}
