package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/model"
)

func blamed(named time.Duration, undone string, throttles ...model.Throttle) *model.Interference {
	b := &model.Interference{Throttles: throttles, Undone: model.Throttle{UID: undone}}
	if named > 0 {
		b.Named, b.NamedAt = model.Finding{Victim: "web", Suspect: "job", Code: model.SuspectNamed}, named
	}
	return b
}

// TestTrials counts what rounds say, one after the other.
func TestTrials(t *testing.T) {
	tried := model.Throttle{UID: "job", Code: model.ThrottleTried, Times: 250}
	kept := model.Throttle{UID: "job", Code: model.ThrottleKept, Times: 250}
	was := model.Throttle{UID: "job", Code: model.ThrottleKept, Times: 500}
	online := blamed(9, "")
	online.Named.Code = model.SuspectOnline
	for name, c := range map[string]struct {
		rounds []*model.Interference
		want   trials
	}{
		"nothing":                    {[]*model.Interference{nil, blamed(0, "")}, trials{}},
		"named once":                 {[]*model.Interference{nil, blamed(5, ""), blamed(5, ""), nil, blamed(5, "")}, trials{named: [2]uint64{0, 1}}},
		"named anew":                 {[]*model.Interference{blamed(5, ""), blamed(8, "")}, trials{named: [2]uint64{0, 2}}},
		"not batch":                  {[]*model.Interference{online}, trials{named: [2]uint64{1, 0}}},
		"it helps":                   {[]*model.Interference{blamed(0, "", tried), blamed(0, "", tried), blamed(0, "", kept), blamed(0, "", kept)}, trials{helped: 1}},
		"it does not":                {[]*model.Interference{blamed(0, "", tried), blamed(0, "job"), nil}, trials{undone: 1}},
		"the deeper does not":        {[]*model.Interference{blamed(0, "", tried), blamed(0, "job", was)}, trials{undone: 1}},
		"the deeper is not known to": {[]*model.Interference{blamed(0, "", tried), blamed(0, "", was)}, trials{unclear: 1}},
		"the pod is gone":            {[]*model.Interference{blamed(0, "", tried), nil}, trials{unclear: 1}},
	} {
		var got trials
		var before *model.Interference
		for _, b := range c.rounds {
			got.note(before, b)
			before = b
		}
		got.last = 0
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	series := map[string]float64{}
	got := trials{named: [2]uint64{1, 2}, helped: 3, undone: 4, unclear: 5}
	got.collect(blamed(0, "", kept), func(_ prometheus.ValueType, name, _ string, value float64, labels ...string) {
		series[strings.Join(append([]string{name}, labels...), " ")] = value
	})
	for name, want := range map[string]float64{
		"waterline_interference_suspects_total batch true": 2, "waterline_interference_trials_total outcome undone": 4, "waterline_interference_throttled_pods": 1,
	} {
		if series[name] != want {
			t.Errorf("%s is %v, want %v, of %v", name, series[name], want, series)
		}
	}
}

// TestWaiting checks what is told of a node, and of each pod what is about it.
func TestWaiting(t *testing.T) {
	pods := []*model.Pod{{UID: "job", Namespace: "batch", Name: "job-0"}, {UID: "web", Namespace: "shop", Name: "web-0"}}
	b := &model.Interference{
		Finding: model.Finding{Victim: "web", Suspect: "other", Code: model.SuspectNamed, Wait: 200}, Waits: true,
		Throttles: []model.Throttle{{UID: "job", Victim: "web", Milli: 1500, Code: model.ThrottleKept}},
	}
	waits, throttled := "shop/web-0 waits for CPUs, likely for other, which is not throttled now: SuspectNamed wait=200/1000", "batch/job-0 may use 1.50 CPU, for shop/web-0: ThrottleKept most=1500mCPU"
	for uid, want := range map[string][]string{"": {waits, throttled}, "web": {waits, throttled}, "other": {waits}, "job": {throttled}, "none": nil} {
		got := waiting(b, pods, uid)
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("of %q: %q", uid, got)
		}
	}
	if got := waiting(nil, pods, ""); got != nil {
		t.Errorf("of nothing: %q", got)
	}
}

// TestSameBlame: what is told anew, or done to anybody, is written down; that somebody still waits is not.
func TestSameBlame(t *testing.T) {
	tried := model.Throttle{UID: "job", Code: model.ThrottleTried}
	waits := &model.Interference{Finding: model.Finding{Victim: "web", Wait: 300}}
	for name, c := range map[string]struct {
		a, b *model.Interference
		same bool
	}{
		"somebody waits":      {nil, waits, true},
		"somebody is named":   {waits, blamed(5, ""), false},
		"somebody is tried":   {waits, blamed(0, "", tried), false},
		"it was given back":   {nil, blamed(0, "job"), false},
		"all is as it was":    {blamed(5, "", tried), blamed(5, "", tried), true},
		"nobody is throttled": {blamed(0, "", tried), nil, false},
	} {
		if same := sameDecisions(&model.Plan{Interference: c.a}, &model.Plan{Interference: c.b}); same != c.same {
			t.Errorf("%s: the same: %v", name, same)
		}
	}
}
