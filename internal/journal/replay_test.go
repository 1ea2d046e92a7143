package journal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterline-io/waterline/internal/decide/node"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/test/fixture"
)

// decided is a round of a node with one weighted pod, as the agent records it.
func decided() *node.Round {
	r := &node.Round{Node: fixture.Node(model.Amount{CPU: 4000}), Policy: fixture.Policy()}
	pod := fixture.Pod("a", model.Burstable)
	pod.Annotations.Shares = 4096
	fixture.Run(&r.Node, pod)
	r.Plan, _ = node.Decide(r.Node, r.Policy, r.State)
	return r
}

// TestReplay checks that a recorded plan agrees with itself, and that each kind of difference is found and named.
func TestReplay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *node.Round)
		want   []Difference
	}{
		"nothing": {func(*node.Round) {}, nil},
		"a value": {
			func(r *node.Round) { r.Plan.Settings[1].Value = model.Number(7) },
			[]Difference{{"Settings[kubepods/burstable/poda cpu.shares].Value", "7", "4096"}},
		},
		"a setting more": {
			func(r *node.Round) {
				r.Plan.Settings = append(r.Plan.Settings, model.Setting{File: model.File{Dir: "z", Knob: model.Quota},
					Value: model.Number(-1)})
			},
			[]Difference{
				{"Settings[z cpu.quota].Dir", `"z"`, ""}, {"Settings[z cpu.quota].Knob", "2", ""},
				{"Settings[z cpu.quota].Reason.Code", `""`, ""}, {"Settings[z cpu.quota].Reason.Fix", `""`, ""},
				{"Settings[z cpu.quota].Reason.Key", `""`, ""}, {"Settings[z cpu.quota].Reason.Text", `""`, ""},
				{"Settings[z cpu.quota].Release", "false", ""}, {"Settings[z cpu.quota].Value", "-1", ""},
			},
		},
		"a setting of a pod that the input lacks": {
			func(r *node.Round) { r.Plan.Report.Mode = model.ModeObserve },
			[]Difference{{"Report.Mode", `"Observe"`, `"Enforce"`}},
		},
		"an empty list": {func(r *node.Round) { r.Plan.Notices = []model.Notice{} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := decided()
			c.change(r)
			got, err := Replay(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReplayLacking checks that a plan of another version, which lacks a whole list, differs in each of its elements.
func TestReplayLacking(t *testing.T) {
	r := decided()
	r.Plan.Settings = nil
	got, err := Replay(r)
	if err != nil || len(got) == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, d := range got {
		if !strings.HasPrefix(d.Field, "Settings[kubepods/burstable") || d.Recorded != "" || d.Replayed == "" {
			t.Errorf("%+v", d)
		}
	}
}

// TestReplayCrash checks that an input on which decisions crash is a difference, and ends nothing.
func TestReplayCrash(t *testing.T) {
	r := decided()
	r.Node.Pods = append(r.Node.Pods, nil)
	got, err := Replay(r)
	if err != nil || len(got) != 1 || got[0].Field != WholePlan ||
		!strings.HasPrefix(got[0].Replayed, "none: this version crashes on the round: ") {
		t.Errorf("%+v, %v", got, err)
	}
}
