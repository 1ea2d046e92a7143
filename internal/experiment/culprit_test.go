package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/kube"
)

// suspected is a run in which pod 1 was guilty for 30 s, named after 12 s, throttled after 15 s, and had all back in the end. The server
// waits for all of the time until then.
func suspected(guilty int) culpritRun {
	r := newCulpritRun(guilty, 30)
	for i := range r.total() {
		second := culpritSecond{waits: 1, seen: unknown}
		if at := time.Duration(i) * time.Second; at >= r.begins() && at < r.begins()+15*time.Second {
			second = culpritSecond{waits: 90, seen: 50}
		}
		r.all = append(r.all, second)
		r.asked = append(r.asked, asked{due: time.Duration(i) * time.Second, ready: time.Duration(i)*time.Second + time.Duration(second.waits)*time.Millisecond})
	}
	r.window = window{length: r.length(), busy: 1, used: map[string]time.Duration{"online": r.length()}}
	return r
}

func accuse(r *culpritRun, who string) {
	for after, what := range map[time.Duration]model.Code{12: model.SuspectNamed, 15: model.ThrottleTried, 25: model.ThrottleKept, 45: model.ThrottleEased, 48: ""} {
		r.accusals = append(r.accusals, accusal{at: r.begins() + after*time.Second, who: who, what: what, score: 900})
	}
	slices.SortFunc(r.accusals, func(a, b accusal) int { return int(a.at - b.at) })
}

func TestCulpritFound(t *testing.T) {
	right, missed, wrong, calm, alarm := suspected(1), suspected(1), suspected(1), suspected(-1), suspected(-1)
	accuse(&right, "batch-1")
	accuse(&wrong, "batch-2")
	accuse(&alarm, "batch-1")
	f := CulpritFound{Seconds: 30, runs: []culpritRun{right, missed, wrong, calm, alarm}}
	r := f.Result()
	for name, want := range map[string]float64{
		"guilty_runs": 3, "nobody_runs": 2, "named_rightly_runs": 1, "named_wrongly_runs": 1, "false_alarm_runs": 1, "not_named_runs": 2,
		"seconds_to_name_median": 12, "seconds_to_name_max": 12, "trials": 1, "trials_kept": 1, "innocent_trials": 2, "given_back_runs": 1,
		"before_wait_percent": 1, "throttled_wait_percent": 1, "throttled_p99_ms": 1, "after_p99_ms": 1,
	} {
		if got := r.Metrics[name]; got != want {
			t.Errorf("%s is %v, not %v", name, got, want)
		}
	}
	if r.Headline.Met || len(r.Table.Rows) != 5 || len(r.Table.Rows[0]) != len(r.Table.Head) {
		t.Errorf("%s\n%s", r.Headline, r.Table)
	}
	if got := r.Series["given_back_after_seconds"]; !slices.Equal(got, []float64{18, unknown, unknown, unknown, unknown}) {
		t.Errorf("given back: %v", got)
	}
	if got := r.Table.Rows[0][:7]; !slices.Equal(got, []string{"1", "batch-1", "batch-1", "12", "0.90", "–", "kept"}) {
		t.Errorf("%q", got)
	}
	if got := right.figures(); got["waiting_wait_percent"] != 90 || got["waiting_seen_percent"] != 50 || got["waiting_p99_ms"] != 90 {
		t.Errorf("%v", got)
	}
	if story := right.story(0); !strings.HasPrefix(story, "Run 1, from when the guilty one began: 12 s batch-1 SuspectNamed, 15 s batch-1 ThrottleTried, 25 s") || calm.story(3) != "" {
		t.Error(story)
	}
	good := CulpritFound{Seconds: 30, runs: []culpritRun{right, calm}}
	if r := good.Result(); !r.Headline.Met {
		t.Errorf("not met: %s", r.Headline)
	}
}

// TestCulpritEarly: who is named before it does anything, or only when it is over, is named by chance.
func TestCulpritEarly(t *testing.T) {
	for _, at := range []time.Duration{-time.Second, 31 * time.Second} {
		r := suspected(1)
		r.accusals = []accusal{{at: r.begins() + at, who: "batch-1", what: model.SuspectNamed}}
		if a := r.rightly(); a != nil {
			t.Errorf("named %v after it began: rightly", at)
		}
		if wrong := r.wrongly() != nil; wrong != (at < 0) {
			t.Errorf("named %v after it began: wrongly is %v", at, wrong)
		}
	}
}

func TestTale(t *testing.T) {
	const rounds = `{"Node":{"Load":null},"Plan":{}}
{"Node":{"Load":{"Clock":5}},"Plan":{}}
{"Node":{"Load":{"Clock":9}},"Plan":{"Interference":{"Named":{"Suspect":"b","Code":"SuspectNamed","Score":700},"NamedAt":8}}}
{"Node":{"Load":{"Clock":10}},"Plan":{"Interference":{"Named":{"Suspect":"b","Code":"SuspectNamed","Score":700},"NamedAt":8,"Throttles":[{"UID":"b","Milli":4,"Code":"ThrottleTried"}]}}}
{"Node":{"Load":{"Clock":11}},"Plan":{"Interference":{"Throttles":[{"UID":"b","Milli":4,"Code":"ThrottleTried"},{"UID":"c","Milli":4,"Code":"ThrottleTried"}]}}}
{"Node":{"Load":{"Clock":12}},"Plan":{"Interference":{"Throttles":[{"UID":"b","Milli":4,"Code":"ThrottleKept"}],"Undone":{"UID":"c","Code":"ThrottleUndone"}}}}
{"Node":{"Load":{"Clock":13}},"Plan":{"Interference":{"Throttles":[{"UID":"b","Milli":2,"Code":"ThrottleTried"}]}}}
{"Node":{"Load":{"Clock":14}},"Plan":{"Interference":{"Throttles":[{"UID":"b","Milli":4,"Code":"ThrottleKept"}]}}}
{"Node":{"Load":{"Clock":15}},"Plan":{}}
`
	var told tale
	if err := eachRound(journalOf(t, rounds), told.take); err != nil {
		t.Fatal(err)
	}
	want := []accusal{
		{8, "b", model.SuspectNamed, 700}, {10, "b", model.ThrottleTried, 0}, {11, "c", model.ThrottleTried, 0},
		{12, "c", model.ThrottleUndone, 0}, {12, "b", model.ThrottleKept, 0}, {13, "b", model.ThrottleTried, 0},
		{14, "b", trialVoid, 0}, {15, "b", "", 0},
	}
	if !slices.Equal(told.all, want) {
		t.Errorf("%+v", told.all)
	}
}

func TestNeighbours(t *testing.T) {
	for guilty := -1; guilty < culpritPods; guilty++ {
		r := newCulpritRun(guilty, 100)
		here, biggest := 0, 0
		for _, n := range neighbours(&r) {
			if n.cpu != 0 {
				if n.pod.batchMilli == 1000 {
					biggest++
				}
				continue
			}
			here++
			if name := n.pod.name; name != r.name() && (guilty >= 0 || name != outsiderName) {
				t.Errorf("%s runs where the server does, and %q is guilty", name, r.name())
			}
			if n.runs(0) || n.runs(r.begins()-1) || !n.runs(r.begins()) || n.runs(r.ends()) {
				t.Errorf("%s runs at another time", n.pod.name)
			}
		}
		if here != 1 || biggest != 1 {
			t.Errorf("%d: %d with the server, %d big ones", guilty, here, biggest)
		}
	}
	cfg := CulpritConfig{Repeats: 5, Nobody: 2}
	order := cfg.order()
	slices.Sort(order)
	if len(order) != 7 || order[1] != -1 || len(slices.Compact(order)) != 1+culpritPods {
		t.Errorf("%v", order)
	}
}

// TestCulpritPolicy: what the experiment says of the policy is what the agent reads.
func TestCulpritPolicy(t *testing.T) {
	policy, err := kube.ParsePolicy([]byte(culpritPolicy))
	if p := &policy.Policy; err != nil || p.Mode != model.ModeEnforce || !p.Protect.Interference || p.Suppress.By != model.SuppressByNone {
		t.Errorf("%+v, %v", policy, err)
	}
}
