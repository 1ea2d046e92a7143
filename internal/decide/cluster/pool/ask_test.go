package pool

import (
	"testing"
	"time"
)

// TestReadLabels checks that no pod is made by labels that were read in an earlier round, that they are read for the
// next round then, and also when a NodeManager may register or has another label, but not while nothing happens.
func TestReadLabels(t *testing.T) {
	now := time.Now()
	manager := func(label string) []Manager {
		return []Manager{{State: running, Label: label, Total: Size{1024, 1}}}
	}
	pod := &Pod{Started: now.Add(-time.Minute)}
	for _, c := range []struct {
		about   string
		w       Worker
		missing bool // the label
		stale   bool
		want    Verb
		read    bool
	}{
		{"a pod by labels of now", Worker{Label: "elastic"}, false, false, CreatePod, true},
		{"a pod by labels of before", Worker{Label: "elastic"}, false, true, Wait, true},
		{"its host has no label", Worker{}, false, true, LabelHost, true},
		{"the label is missing", Worker{Label: "elastic"}, true, true, Wait, true},
		{"it starts", Worker{Label: "elastic", Pod: pod}, false, true, Wait, true},
		{"it runs", Worker{Label: "elastic", Pod: pod, Managers: manager("elastic")}, false, true, Wait, false},
		{"it runs without the label", Worker{Label: "elastic", Pod: pod, Managers: manager("")}, false, true, LabelHost, true},
	} {
		c.w.Wanted, c.w.Room = true, true
		in := &Input{Now: now, RM: RM{Known: true, Labels: !c.missing, StaleLabels: c.stale}, Workers: []Worker{c.w},
			Settings: Settings{Label: "elastic", Attempts: 2, Register: time.Hour, Floor: Size{1024, 1}, Ceiling: Size{1024, 1}}}
		steps := Next(in)
		if got := ReadLabels(in, steps); steps[0].Verb != c.want || got != c.read {
			t.Errorf("%s: %s, read %v; want %s, read %v", c.about, steps[0].Verb, got, c.want, c.read)
		}
	}
	in := &Input{Now: now, Workers: []Worker{}}
	if !ReadLabels(in, nil) {
		t.Error("after silence, old labels count")
	}
}
