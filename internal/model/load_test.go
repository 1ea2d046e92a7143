package model

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLoadJSON checks that every field of a load survives encoding and decoding, and that unmeasured usage takes no
// space.
func TestLoadJSON(t *testing.T) {
	var u Usage
	for i, n := range u.row() {
		*n = int64(i + 1)
	}
	load := Load{
		Clock: 5, CPUMilli: 4000, Classes: [3]Usage{u}, Pods: []PodUsage{{UID: "a", New: true}, {UID: "b", Usage: u}},
	}
	text, err := json.Marshal(load)
	if err != nil {
		t.Fatal(err)
	}
	var back Load
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if d := cmp.Diff(load, back); d != "" {
		t.Errorf("%s: decoded with differences (-want +got):\n%s", text, d)
	}
	if text, _ := json.Marshal(Usage{}); string(text) != "[]" {
		t.Errorf("an empty usage is encoded as %s", text)
	}
	for _, bad := range []string{`{}`, `[1.5]`, `[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]`} {
		if err := json.Unmarshal([]byte(bad), &u); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

// TestUsageOfOldJournals checks that the three numbers of run-queue delay that rows once had are ignored.
func TestUsageOfOldJournals(t *testing.T) {
	var u, want Usage
	for i, n := range want.row() {
		*n = int64(i + 1)
	}
	for _, row := range []string{
		`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]`, `[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]`,
	} {
		if err := json.Unmarshal([]byte(row), &u); err != nil || u != want {
			t.Errorf("%s: %+v, %v", row, u, err)
		}
	}
}

func TestLoadPod(t *testing.T) {
	load := Load{Clock: 100, Pods: []PodUsage{{UID: "b"}, {UID: "d"}}}
	for uid, found := range map[string]bool{"a": false, "b": true, "c": false, "d": true, "e": false} {
		if p := load.Pod(uid); (p != nil) != found || found && p.UID != uid {
			t.Errorf("%s: %+v", uid, p)
		}
	}
	if load.Age(40) != 60 || load.Age(0) != 100 || load.Age(150) != 0 {
		t.Error("wrong ages")
	}
}
