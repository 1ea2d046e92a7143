package experiment

import (
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
	"github.com/waterline-io/waterline/internal/model"
)

// Experiment transcode runs on a cluster, and so in a package of its own. What is made of its figures is here.
const (
	TranscodeName    = "transcode"
	TranscodeAbout   = "Real ffmpeg jobs begin together on a node of a cluster, half of them annotated 262144: these take less time."
	TranscodeSeconds = 20              // of media in each job, by default
	TranscodeShares  = model.MaxShares // what half of the jobs are annotated with

	transcodeGoal = 16 // percent less time
)

// Transcodes are the jobs of one run, half of them weighted, which all had the same work and began together.
type Transcodes struct {
	When    time.Time
	Machine string  // the node
	CPUs    float64 // that pods may use there
	Seconds int     // of media in each job
	Threads int     // of each job's encoder
	Shares  int64   // of a job without a weight
	Jobs    []TranscodeJob

	Seen   int64  // shares that the kernel held for each weighted job, the fewest of them; 0: nobody could say
	Unseen string // why that is not what they are annotated with; "": it is
}

// TranscodeJob is one of [Transcodes] that has ended.
type TranscodeJob struct {
	Name     string
	Weighted bool
	Took     time.Duration // from its start to its end
	CPU      time.Duration // used
}

// Result compares the weighted jobs with the others. Metrics: time_per_media_second_weighted and
// time_per_media_second_plain, in seconds, the means of all jobs of a kind; reduction_percent, from the second to the first.
func (t *Transcodes) Result() Result {
	r := Result{Name: TranscodeName, About: TranscodeAbout, When: t.When, Machine: t.Machine}
	weighted, plain := t.kind(true), t.kind(false)
	reduction := -off(weighted.mean(), plain.mean())
	theory := 100 * (1 - t.theory())
	var cpu, last time.Duration
	for _, j := range t.Jobs {
		cpu, last = cpu+j.CPU, max(last, j.Took)
	}
	won := cpu.Seconds() / max(last.Seconds(), 1e-3)
	r.Metrics = map[string]float64{
		"time_per_media_second_weighted": round(weighted.mean(), 4),
		"time_per_media_second_plain":    round(plain.mean(), 4),
		"reduction_percent":              round(reduction, 2),
		"theory_reduction_percent":       round(theory, 2),
		"jobs":                           float64(len(t.Jobs)),
		"media_seconds":                  float64(t.Seconds),
		"threads":                        float64(t.Threads),
		"weight_seen_shares":             float64(t.Seen),
		"cpus_won":                       round(won, 3),
		"cpus_machine":                   t.CPUs,
	}
	r.Series = map[string][]float64{"weighted_s": weighted.perSecond, "plain_s": plain.perSecond}
	r.Headline = Headline{
		Value: less(reduction), Goal: fmt.Sprintf("≥ %d %% less", transcodeGoal), Met: reduction >= transcodeGoal,
	}
	switch {
	case t.Seen == 0:
		r.Headline.Value += ", weights not seen in the kernel"
	case t.Seen != TranscodeShares:
		r.Headline.Value += fmt.Sprintf(", with a weight of %d", t.Seen)
	}
	r.Table.Head = []string{"jobs", "annotated", "number", "time / media s", "fastest", "slowest", "CPU time / media s"}
	bars := chart.Bars{
		Title: "Time per second of media", Caption: "time per second of media; 100 %: jobs without a weight",
		Desc: "Bars: mean of the jobs of each kind, where that of the jobs without a weight is 100 %. Marks: theory.",
	}
	for _, k := range []struct {
		kind
		name      string
		annotated int64
		theory    float64
	}{{weighted, "weighted", TranscodeShares, t.theory()}, {plain, "plain", 0, 1}} {
		r.Table.Rows = append(r.Table.Rows, []string{
			k.name, shares(k.annotated), fmt.Sprint(len(k.perSecond)),
			perSecond(k.mean()), perSecond(k.fastest), perSecond(k.slowest), perSecond(k.cpu),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: k.name, Note: perSecond(k.mean()), Value: 100 * k.mean() / plain.mean(), Theory: 100 * k.theory, Strong: k.annotated != 0,
		})
	}
	r.Chart = bars
	r.Notes = t.notes(won, theory)
	return r
}

// kind sums up the weighted jobs or the others. All figures are seconds per second of media.
type kind struct {
	perSecond             []float64
	fastest, slowest, cpu float64
}

func (t *Transcodes) kind(weighted bool) kind {
	var k kind
	for _, j := range t.Jobs {
		if j.Weighted != weighted {
			continue
		}
		took := j.Took.Seconds() / float64(t.Seconds)
		if len(k.perSecond) == 0 || took < k.fastest {
			k.fastest = took
		}
		k.slowest = max(k.slowest, took)
		k.cpu += j.CPU.Seconds() / float64(t.Seconds)
		k.perSecond = append(k.perSecond, round(took, 4))
	}
	k.cpu /= float64(max(len(k.perSecond), 1))
	return k
}

func (k kind) mean() float64 { return mean(k.perSecond) }

// less says in words how much less time something takes, or more.
func less(percent float64) string {
	if percent < 0 {
		return fmt.Sprintf("%.1f %% more time", -percent)
	}
	return fmt.Sprintf("%.1f %% less time", percent)
}

func perSecond(seconds float64) string { return fmt.Sprintf("%.2f s", seconds) }

// theory returns the time of a weighted job as a part of that of the others, if all CPUs go to the jobs alone, by the
// weights that the kernel was seen to hold, and as many of them to one job as its encoder has threads. When the weighted
// jobs have ended, the others have everything.
func (t *Transcodes) theory() float64 {
	half := float64(len(t.Jobs)) / 2
	limit := half * float64(t.Threads)
	weight := max(t.Seen, t.Shares)
	cpus := model.Divide(t.CPUs, []model.Claim{{Weight: half * float64(weight), Limit: limit}, {Weight: half * float64(t.Shares), Limit: limit}})
	first := half / cpus[0] // when the weighted jobs end, each of which is one CPU second
	left := half - first*cpus[1]
	return first / (first + left/min(t.CPUs, limit))
}

func (t *Transcodes) notes(won, theory float64) []string {
	notes := []string{fmt.Sprintf("%d jobs of %d s of media, each with an encoder of %d threads, began together on %.1f CPUs. In theory, with the machine to themselves, the weighted ones take %s.",
		len(t.Jobs), t.Seconds, t.Threads, t.CPUs, less(theory))}
	switch {
	case t.Seen == TranscodeShares:
		notes = append(notes, fmt.Sprintf("The agent on the node read %d shares from the kernel for each weighted job just before they began.", t.Seen))
	case t.Seen != 0:
		notes = append(notes, fmt.Sprintf("The kernel held %d shares for the weighted jobs, not %d: %s. What the policy must say is in \"waterline experiment transcode --help\".", t.Seen, TranscodeShares, t.Unseen))
	default:
		notes = append(notes, "Whether the kernel held the weights could not be seen, and without an agent on the node an annotation does nothing: "+t.Unseen)
	}
	if won < 0.9*t.CPUs {
		notes = append(notes, fmt.Sprintf("The jobs used %.1f of the node's %.1f CPUs, on average until the last of them ended: others took the rest, or there were too few jobs to use it.", won, t.CPUs))
	}
	return notes
}
