package transcode

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/internal/report/chart"
)

// transcodes is a run on two CPUs whose weighted jobs took half the time of the others.
func transcodes() *outcome {
	made := func(weighted bool, seconds time.Duration) job {
		return job{weighted: weighted, took: seconds * time.Second, cpu: 20 * time.Second}
	}
	return &outcome{
		cpus: 2, seconds: 10, threads: 2, shares: 102, seen: weightedShares,
		jobs: []job{made(true, 19), made(true, 21), made(false, 39), made(false, 41)},
	}
}

func resultOf(o *outcome) *report.Result {
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestResult(t *testing.T) {
	r := resultOf(transcodes())
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

// TestResultDoubts checks that headline and notes name what makes the figures doubtful.
func TestResultDoubts(t *testing.T) {
	for _, tc := range []struct {
		seen                    int64
		unseen, headline, notes string
	}{
		{0, "no agent runs there", "weights not seen in the kernel", "no agent runs there"},
		{16384, "WeightClamped", "with a weight of 16384", "16384 shares for the weighted jobs, not 262144: WeightClamped"},
	} {
		run := transcodes()
		run.seen, run.unseen = tc.seen, tc.unseen
		r := resultOf(run)
		if got := r.Headline.String(); !strings.Contains(got, tc.headline) {
			t.Error(got)
		}
		if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, tc.notes) {
			t.Error(got)
		}
	}
	run := transcodes()
	run.jobs[0].weighted, run.jobs[2].weighted = false, true
	run.jobs[1].weighted, run.jobs[3].weighted = false, true
	if got := resultOf(run).Headline.String(); got != "100.0 % more time (goal: ≥ 16 % less; NOT met)" {
		t.Error(got)
	}
	run = transcodes()
	run.cpus = 4
	if got := strings.Join(resultOf(run).Notes, "\n"); !strings.Contains(got, "used 2.0 of the node's 4.0 CPUs") {
		t.Error(got)
	}
}

func TestTheory(t *testing.T) {
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
		run.cpus, run.threads, run.seen = tc.cpus, tc.threads, tc.seen
		if got := run.theory(); math.Abs(got-tc.want) > 0.001 {
			t.Errorf("%s: %.4f, not %.4f", tc.name, got, tc.want)
		}
	}
}

func TestParseWeight(t *testing.T) {
	const class = `{"Dir": "kubepods/burstable", "Knob": "cpu.shares", "Is": 2048}`
	const uid = "6016fc45-0a1b-4c2d-8e3f-123456789abc"
	const slice = "kubepods.slice/kubepods-burstable.slice/" +
		"kubepods-burstable-pod6016fc45_0a1b_4c2d_8e3f_123456789abc.slice"
	for _, tc := range []struct {
		name, mode, files string
		want              Weight
	}{
		{"cgroupfs", "Enforce", class + `, {"Dir": "kubepods/burstable/pod` + uid +
			`", "Knob": "cpu.shares", "Is": 262144, "Why": "Weighted"}`,
			Weight{Shares: 262144, Why: "Weighted"}},
		{"systemd, and deferred", "Observe", `{"Dir": "` + slice +
			`", "Knob": "cpu.shares", "Is": 102, "Why": "Weighted", "Deferred": "ObserveOnly"}`,
			Weight{Shares: 102, Why: "Weighted; ObserveOnly"}},
		{"none", "Observe", class, Weight{Why: "the agent gives the pods no weight: policy Observe"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseWeight([]byte(`{"UID": "` + uid + `", "Mode": "` + tc.mode + `", "Files": [` + tc.files + `]}`))
			if err != nil || got != tc.want {
				t.Errorf("%+v, %v, not %+v", got, err, tc.want)
			}
		})
	}
	if _, err := parseWeight([]byte("x")); err == nil {
		t.Error("no error for malformed output")
	}
}
