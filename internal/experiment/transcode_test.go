package experiment

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/experiment/chart"
)

// transcodes is a run on two CPUs whose weighted jobs took half the time of the others.
func transcodes() *Transcodes {
	job := func(name string, weighted bool, took time.Duration) TranscodeJob {
		return TranscodeJob{Name: name, Weighted: weighted, Took: took, CPU: 20 * time.Second}
	}
	return &Transcodes{
		CPUs: 2, Seconds: 10, Threads: 2, Shares: 102, Seen: TranscodeShares,
		Jobs: []TranscodeJob{
			job("weighted-1", true, 19*time.Second), job("weighted-2", true, 21*time.Second),
			job("plain-1", false, 39*time.Second), job("plain-2", false, 41*time.Second),
		},
	}
}

func TestTranscodes(t *testing.T) {
	r := transcodes().Result()
	for key, want := range map[string]float64{
		"time_per_media_second_weighted": 2, "time_per_media_second_plain": 4, "reduction_percent": 50,
		"jobs": 4, "media_seconds": 10, "weight_seen_shares": 262144, "cpus_won": 1.951,
	} {
		if got := r.Metrics[key]; got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if got := r.Headline.String(); got != "50.0 % less time (goal: ≥ 16 % less; met)" {
		t.Error(got)
	}
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[1], "read 262144 shares") {
		t.Errorf("%q", r.Notes)
	}
	const table = `jobs      annotated  number  time / media s  fastest  slowest  CPU time / media s
────────  ─────────  ──────  ──────────────  ───────  ───────  ──────────────────
weighted     262144       2          2.00 s   1.90 s   2.10 s              2.00 s
plain             –       2          4.00 s   3.90 s   4.10 s              2.00 s
`
	if got := r.Table.String(); got != table {
		t.Errorf("%s\nnot\n%s", got, table)
	}
	if svg := chart.Standalone(r.Chart); !strings.Contains(svg, "50.0 %") {
		t.Error(svg)
	}
}

// What a reader must know to judge the figures is said, where they stand out and in full.
func TestTranscodesDoubts(t *testing.T) {
	for _, tc := range []struct {
		seen                    int64
		unseen, headline, notes string
	}{
		{0, "no agent runs there", "weights not seen in the kernel", "no agent runs there"},
		{16384, "WeightClamped", "with a weight of 16384", "16384 shares for the weighted jobs, not 262144: WeightClamped"},
	} {
		run := transcodes()
		run.Seen, run.Unseen = tc.seen, tc.unseen
		r := run.Result()
		if got := r.Headline.String(); !strings.Contains(got, tc.headline) {
			t.Error(got)
		}
		if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, tc.notes) {
			t.Error(got)
		}
	}
	run := transcodes()
	run.Jobs[0].Weighted, run.Jobs[2].Weighted = false, true
	run.Jobs[1].Weighted, run.Jobs[3].Weighted = false, true
	if got := run.Result().Headline.String(); got != "100.0 % more time (goal: ≥ 16 % less; NOT met)" {
		t.Error(got)
	}
	run = transcodes()
	run.CPUs = 4
	if got := strings.Join(run.Result().Notes, "\n"); !strings.Contains(got, "used 2.0 of the node's 4.0 CPUs") {
		t.Error(got)
	}
}

func TestTranscodesTheory(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cpus    float64
		threads int
		seen    int64
		want    float64
	}{
		{"weighted jobs end before the others get anything", 2, 2, 262144, 0.5},
		{"no weight seen", 2, 2, 0, 1},
		{"twice the weight: 4/3 and 2/3 of a CPU, then everything", 2, 2, 204, 0.75},
		{"CPU for all", 4, 1, 262144, 1},
		{"three CPUs for four threads: the others have one until the weighted end, then two", 3, 1, 262144, 1 / 1.5},
	} {
		run := transcodes()
		run.CPUs, run.Threads, run.Seen = tc.cpus, tc.threads, tc.seen
		if got := run.theory(); math.Abs(got-tc.want) > 0.001 {
			t.Errorf("%s: %.4f, not %.4f", tc.name, got, tc.want)
		}
	}
}
