package transcode

import (
	"fmt"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/chart"
	"github.com/waterline-io/waterline/lab/measure"
)

const goalPercent = 16 // less time

// outcome is what became of the jobs of one run, which all had the same work and began together.
type outcome struct {
	cpus    float64 // of the node that pods may use
	seconds int     // of media in each job
	threads int     // of each job's encoder
	shares  int64   // weight of a job without an annotation
	jobs    []job

	seen   int64  // least weight, in shares, that the kernel held for a weighted job; 0: unknown
	unseen string // why it is not that of the annotation; "": it is
}

// job is a job that has ended.
type job struct {
	weighted bool
	took     time.Duration // from the common start to its end
	cpu      time.Duration // used
}

// report compares the weighted jobs with the plain ones. Metrics: time_per_media_second_weighted and
// time_per_media_second_plain, in seconds, the means of all jobs of a kind; reduction_percent, from the second to the
// first.
func (o *outcome) report(r *report.Result) {
	weighted, plain := o.kind(true), o.kind(false)
	reduction := -measure.PercentOff(weighted.mean(), plain.mean())
	theory := 100 * (1 - o.theory())
	var cpu, last time.Duration
	for _, j := range o.jobs {
		cpu, last = cpu+j.cpu, max(last, j.took)
	}
	won := cpu.Seconds() / max(last.Seconds(), 1e-3)
	r.Metrics = map[string]float64{
		"time_per_media_second_weighted": measure.Round(weighted.mean(), 4),
		"time_per_media_second_plain":    measure.Round(plain.mean(), 4),
		"reduction_percent":              measure.Round(reduction, 2),
		"theory_reduction_percent":       measure.Round(theory, 2),
		"jobs":                           float64(len(o.jobs)),
		"media_seconds":                  float64(o.seconds),
		"threads":                        float64(o.threads),
		"weight_seen_shares":             float64(o.seen),
		"cpus_won":                       measure.Round(won, 3),
		"cpus_machine":                   o.cpus,
	}
	r.Series = map[string][]float64{"weighted_s": weighted.perSecond, "plain_s": plain.perSecond}
	r.Headline = report.Headline{
		Value: lessTime(reduction), Goal: fmt.Sprintf("≥ %d %% less", goalPercent), Met: reduction >= goalPercent,
	}
	switch {
	case o.seen == 0:
		r.Headline.Value += ", weights not seen in the kernel"
	case o.seen != weightedShares:
		r.Headline.Value += fmt.Sprintf(", with a weight of %d", o.seen)
	}
	r.Table.Head = []string{"jobs", "annotated", "number", "time / media s", "fastest", "slowest", "CPU time / media s"}
	bars := chart.Bars{
		Title: "Time per second of media", Caption: "time per second of media; 100 %: jobs without a weight",
		Desc: "Bars: mean of the jobs of each kind; that of the jobs without a weight is 100 %. Marks: theory.",
	}
	for _, k := range []struct {
		kind
		name      string
		annotated int64
		theory    float64
	}{{weighted, "weighted", weightedShares, o.theory()}, {plain, "plain", 0, 1}} {
		r.Table.Rows = append(r.Table.Rows, []string{
			k.name, measure.Shares(k.annotated), fmt.Sprint(len(k.perSecond)),
			inSeconds(k.mean()), inSeconds(k.fastest), inSeconds(k.slowest), inSeconds(k.cpu),
		})
		bars.Bars = append(bars.Bars, chart.Bar{
			Label: k.name, Note: inSeconds(k.mean()), Value: 100 * k.mean() / plain.mean(), Theory: 100 * k.theory,
			Strong: k.annotated != 0,
		})
	}
	r.Chart = bars
	r.Notes = o.notes(won, theory)
}

// kind sums up the jobs of one kind. All figures are seconds per second of media.
type kind struct {
	perSecond             []float64
	fastest, slowest, cpu float64
}

func (o *outcome) kind(weighted bool) kind {
	var k kind
	for _, j := range o.jobs {
		if j.weighted != weighted {
			continue
		}
		took := j.took.Seconds() / float64(o.seconds)
		if len(k.perSecond) == 0 || took < k.fastest {
			k.fastest = took
		}
		k.slowest = max(k.slowest, took)
		k.cpu += j.cpu.Seconds() / float64(o.seconds)
		k.perSecond = append(k.perSecond, measure.Round(took, 4))
	}
	k.cpu /= float64(max(len(k.perSecond), 1))
	return k
}

func (k kind) mean() float64 { return measure.Mean(k.perSecond) }

func lessTime(percent float64) string {
	if percent < 0 {
		return fmt.Sprintf("%.1f %% more time", -percent)
	}
	return fmt.Sprintf("%.1f %% less time", percent)
}

func inSeconds(seconds float64) string { return fmt.Sprintf("%.2f s", seconds) }

// theory returns the time of a weighted job as a part of that of a plain one. It assumes that all CPUs go to the jobs
// alone, by the weights that the kernel was seen to hold, and to one job as many as its encoder has threads. When the
// weighted jobs have ended, the plain ones have all CPUs.
func (o *outcome) theory() float64 {
	half := float64(len(o.jobs)) / 2
	limit := half * float64(o.threads)
	weight := max(o.seen, o.shares)
	cpus := model.Divide(o.cpus, []model.Claim{
		{Weight: half * float64(weight), Limit: limit}, {Weight: half * float64(o.shares), Limit: limit},
	})
	first := half / cpus[0] // when the weighted jobs end, each of which is one CPU second
	left := half - first*cpus[1]
	return first / (first + left/min(o.cpus, limit))
}

func (o *outcome) notes(won, theory float64) []string {
	notes := []string{fmt.Sprintf("%d jobs of %d s of media, each with an encoder of %d threads, began together on "+
		"%.1f CPUs. "+
		"In theory, with the machine to themselves, the weighted ones take %s.",
		len(o.jobs), o.seconds, o.threads, o.cpus, lessTime(theory))}
	switch {
	case o.seen == weightedShares:
		notes = append(notes, fmt.Sprintf("The agent on the node read %d shares from the kernel for each weighted job just "+
			"before they began.", o.seen))
	case o.seen != 0:
		notes = append(notes, fmt.Sprintf("The kernel held %d shares for the weighted jobs, not %d: %s. For the policy that "+
			"allows it see \"lab transcode --help\".", o.seen, int64(weightedShares), o.unseen))
	default:
		notes = append(notes, "The weights in the kernel could not be read, and without an agent on the node an "+
			"annotation has "+
			"no effect: "+o.unseen)
	}
	if won < 0.9*o.cpus {
		notes = append(notes, fmt.Sprintf("The jobs used %.1f of the node's %.1f CPUs, on average until the last of them "+
			"ended: "+
			"other processes took the rest, or there were too few jobs to use it.", won, o.cpus))
	}
	return notes
}
