package interference

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
	"github.com/waterline-io/waterline/internal/report"
	"github.com/waterline-io/waterline/lab/agentrun"
	"github.com/waterline-io/waterline/lab/load"
	"github.com/waterline-io/waterline/lab/measure"
)

// measured is a run in which a pod is guilty for 30 s. For the first 15 s of them the server waits for most of the
// time.
func measured(guilty int) run {
	r := newRun(guilty, 30)
	for i := range r.total() {
		s := second{waits: 1, seen: unknown}
		if at := time.Duration(i) * time.Second; at >= r.begins() && at < r.begins()+15*time.Second {
			s = second{waits: 90, seen: 50}
		}
		r.seconds = append(r.seconds, s)
		due := time.Duration(i) * time.Second
		r.requests = append(r.requests, load.Request{Due: due, Ready: due + time.Duration(s.waits)*time.Millisecond})
	}
	r.window = measure.Window{Length: r.length(), Busy: 1, Used: map[string]time.Duration{"online": r.length()}}
	return r
}

// name adds that a pod is named after 12 s, throttled after 15 s, and free after 48 s.
func name(r *run, pod string) {
	for _, e := range []event{
		{at: 12, code: model.SuspectNamed}, {at: 15, code: model.ThrottleTried}, {at: 25, code: model.ThrottleKept},
		{at: 45, code: model.ThrottleEased}, {at: 48, code: restored},
	} {
		r.events = append(r.events, event{at: r.begins() + e.at*time.Second, pod: pod, code: e.code, score: 900})
	}
}

func resultOf(runs ...run) *report.Result {
	o := outcome{seconds: 30, runs: runs}
	r := report.Begin(Name, About)
	o.report(&r)
	return &r
}

func TestResult(t *testing.T) {
	right, missed, wrong, calm, alarm := measured(1), measured(1), measured(1), measured(noPod), measured(noPod)
	name(&right, "batch-1")
	name(&wrong, "batch-2")
	name(&alarm, "batch-1")
	r := resultOf(right, missed, wrong, calm, alarm)
	for key, want := range map[string]float64{
		"guilty_runs": 3, "nobody_runs": 2, "named_rightly_runs": 1, "named_wrongly_runs": 1, "false_alarm_runs": 1,
		"not_named_runs": 2, "seconds_to_name_median": 12, "seconds_to_name_max": 12, "trials": 1, "trials_kept": 1,
		"innocent_trials": 2, "given_back_runs": 1,
		"before_wait_percent": 1, "throttled_wait_percent": 1, "throttled_p99_ms": 1, "after_p99_ms": 1,
	} {
		if got := r.Metrics[key]; got != want {
			t.Errorf("%s is %v, not %v", key, got, want)
		}
	}
	if r.Headline.Met || len(r.Table.Rows) != 5 || len(r.Table.Rows[0]) != len(r.Table.Head) {
		t.Errorf("%s\n%s", r.Headline, r.Table)
	}
	want := []float64{18, unknown, unknown, unknown, unknown}
	if got := r.Series["given_back_after_seconds"]; !slices.Equal(got, want) {
		t.Errorf("given back: %v", got)
	}
	row := []string{"1", "batch-1", "batch-1", "12", "0.90", "–", "kept"}
	if got := r.Table.Rows[0][:7]; !slices.Equal(got, row) {
		t.Errorf("%q", got)
	}
	got := right.figures()
	if got["waiting_wait_percent"] != 90 || got["waiting_seen_percent"] != 50 || got["waiting_p99_ms"] != 90 {
		t.Errorf("%v", got)
	}
	const begin = "Run 1, from when the guilty pod began: 12 s batch-1 SuspectNamed, 15 s batch-1 ThrottleTried, 25 s"
	if story := right.story(0); !strings.HasPrefix(story, begin) || calm.story(3) != "" {
		t.Error(story)
	}
	if r := resultOf(right, calm); !r.Headline.Met {
		t.Errorf("not met: %s", r.Headline)
	}
}

// TestNamedByChance checks that a pod that is named before it is guilty, or only afterwards, is not named rightly.
func TestNamedByChance(t *testing.T) {
	for _, at := range []time.Duration{-time.Second, 31 * time.Second} {
		r := measured(1)
		r.events = []event{{at: r.begins() + at, pod: "batch-1", code: model.SuspectNamed}}
		if e := r.namedRightly(); e != nil {
			t.Errorf("named %v after it began: rightly", at)
		}
		if wrong := r.namedWrongly() != nil; wrong != (at < 0) {
			t.Errorf("named %v after it began: wrongly is %v", at, wrong)
		}
	}
}

func TestHistory(t *testing.T) {
	const rounds = `{"Node":{"Load":null},"Plan":{}}
{"Node":{"Load":{"Clock":5}},"Plan":{}}
{"Node":{"Load":{"Clock":9}},"Plan":{"Interference":{NAMED}}}
{"Node":{"Load":{"Clock":10}},"Plan":{"Interference":{NAMED,"Throttles":[TRIED]}}}
{"Node":{"Load":{"Clock":11}},"Plan":{"Interference":{"Throttles":[TRIED,{"UID":"c","Milli":4,"Code":"ThrottleTried"}]}}}
{"Node":{"Load":{"Clock":12}},"Plan":{"Interference":{"Throttles":[KEPT],"Undone":{"UID":"c","Code":"ThrottleUndone"}}}}
{"Node":{"Load":{"Clock":13}},"Plan":{"Interference":{"Throttles":[{"UID":"b","Milli":2,"Code":"ThrottleTried"}]}}}
{"Node":{"Load":{"Clock":14}},"Plan":{"Interference":{"Throttles":[KEPT]}}}
{"Node":{"Load":{"Clock":15}},"Plan":{}}
`
	text := strings.NewReplacer(
		`"Node":{`, `"Node":{"Now":"2026-01-01T12:00:00Z",`,
		"NAMED", `"Named":{"Suspect":"b","Code":"SuspectNamed","Score":700},"NamedAt":8`,
		"TRIED", `{"UID":"b","Milli":4,"Code":"ThrottleTried"}`, "KEPT", `{"UID":"b","Milli":4,"Code":"ThrottleKept"}`,
	).Replace(rounds)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal.jsonl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var h history
	if err := agentrun.EachRound(dir, h.add); err != nil {
		t.Fatal(err)
	}
	want := []event{
		{8, "b", model.SuspectNamed, 700}, {10, "b", model.ThrottleTried, 0}, {11, "c", model.ThrottleTried, 0},
		{12, "c", model.ThrottleUndone, 0}, {12, "b", model.ThrottleKept, 0}, {13, "b", model.ThrottleTried, 0},
		{14, "b", trialVoid, 0}, {15, "b", restored, 0},
	}
	if !slices.Equal(h.events, want) {
		t.Errorf("%+v", h.events)
	}
}

func TestNeighbours(t *testing.T) {
	for guilty := noPod; guilty < batchPods; guilty++ {
		r := newRun(guilty, 100)
		here, biggest := 0, 0
		for _, n := range neighbours(&r) {
			if n.cpu != 0 {
				if n.pod.BatchMilli == 1000 {
					biggest++
				}
				continue
			}
			here++
			if pod := n.pod.Name; pod != r.name() && (guilty != noPod || pod != outsiderName) {
				t.Errorf("%s runs where the server does, and %q is guilty", pod, r.name())
			}
			if n.runs(0) || n.runs(r.begins()-1) || !n.runs(r.begins()) || n.runs(r.ends()) {
				t.Errorf("%s runs at another time", n.pod.Name)
			}
		}
		if here != 1 || biggest != 1 {
			t.Errorf("%d: %d with the server, %d big ones", guilty, here, biggest)
		}
	}
	cfg := Config{Repeats: 5, Nobody: 2}
	order := cfg.order()
	slices.Sort(order)
	if len(order) != 7 || order[1] != noPod || len(slices.Compact(order)) != 1+batchPods {
		t.Errorf("%v", order)
	}
}

// TestPolicy checks what the agent reads from the policy.
func TestPolicy(t *testing.T) {
	got, err := kube.ParsePolicy([]byte(policy))
	if p := &got.Policy; err != nil || p.Mode != model.ModeEnforce || !p.Protect.Interference ||
		p.Suppress.By != model.SuppressByNone {
		t.Errorf("%+v, %v", got, err)
	}
}
