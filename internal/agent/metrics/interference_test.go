package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterline-io/waterline/internal/model"
)

func found(named time.Duration, undone string, throttles ...model.Throttle) *model.Interference {
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
	online := found(9, "")
	online.Named.Code = model.SuspectOnline
	for name, c := range map[string]struct {
		rounds []*model.Interference
		want   trials
	}{
		"nothing": {[]*model.Interference{nil, found(0, "")}, trials{}},
		"named once": {
			[]*model.Interference{nil, found(5, ""), found(5, ""), nil, found(5, "")}, trials{named: [2]uint64{0, 1}},
		},
		"named anew": {[]*model.Interference{found(5, ""), found(8, "")}, trials{named: [2]uint64{0, 2}}},
		"not batch":  {[]*model.Interference{online}, trials{named: [2]uint64{1, 0}}},
		"it helps": {
			[]*model.Interference{
				found(0, "", tried), found(0, "", tried), found(0, "", kept), found(0, "", kept),
			}, trials{helped: 1},
		},
		"it does not":                {[]*model.Interference{found(0, "", tried), found(0, "job"), nil}, trials{undone: 1}},
		"the deeper does not":        {[]*model.Interference{found(0, "", tried), found(0, "job", was)}, trials{undone: 1}},
		"the deeper is not known to": {[]*model.Interference{found(0, "", tried), found(0, "", was)}, trials{unclear: 1}},
		"the pod is gone":            {[]*model.Interference{found(0, "", tried), nil}, trials{unclear: 1}},
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
	got.collect(found(0, "", kept), func(_ prometheus.ValueType, name, _ string, value float64, labels ...string) {
		series[strings.Join(append([]string{name}, labels...), " ")] = value
	})
	for name, want := range map[string]float64{
		"waterline_interference_suspects_total batch true": 2, "waterline_interference_trials_total outcome undone": 4,
		"waterline_interference_throttled_pods": 1,
	} {
		if series[name] != want {
			t.Errorf("%s is %v, want %v, of %v", name, series[name], want, series)
		}
	}
}
