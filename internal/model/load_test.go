package model

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestLoadJSON checks that a load survives being written, whatever is in it, and that what was not measured takes no room.
func TestLoadJSON(t *testing.T) {
	var u Usage
	for i, n := range u.row() {
		*n = int64(i + 1)
	}
	load := Load{Clock: 5, CPUMilli: 4000, Classes: [3]Usage{u}, Pods: []PodUsage{{UID: "a", New: true}, {UID: "b", Usage: u}}}
	text, err := json.Marshal(load)
	if err != nil {
		t.Fatal(err)
	}
	var back Load
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, load) {
		t.Errorf("%s: read back as %+v, %v", text, back, err)
	}
	if text, _ := json.Marshal(Usage{}); string(text) != "[]" {
		t.Errorf("nothing is written as %s", text)
	}
	for _, bad := range []string{`{}`, `[1.5]`, `[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]`} {
		if err := json.Unmarshal([]byte(bad), &u); err == nil {
			t.Errorf("%s was read", bad)
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
