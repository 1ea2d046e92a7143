package guardlog

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/model"
)

// nine is when the records of these tests were written.
var nine = time.Date(2026, 11, 25, 9, 0, 0, 123456789, time.UTC)

// containerOf returns the id of a container.
func containerOf(n int) string { return fmt.Sprintf("container_1795520061459_0001_01_%06d", n) }

// TestBrief checks what stays of each kind of record.
func TestBrief(t *testing.T) {
	at := nine.Truncate(time.Second)
	term := Try{At: nine, Signal: "TERM", Reason: "DeadlineMissed"}
	whole := Try{At: at, Signal: "TERM", Reason: "DeadlineMissed"}
	kill := Try{At: at, Signal: "KILL", Reason: "TermIgnored"}
	id := containerOf(2)
	for name, c := range map[string]struct{ record, want Record }{ // an empty want: nothing stays
		"signalled": {
			Record{At: nine, Container: id, Application: "application_1_0001", User: "alice", Signal: "KILL", Processes: 2,
				Reason: "TermIgnored", Why: "after=10s", Operands: []model.Operand{{}}, Tried: []Try{term}},
			Record{At: at, Container: id, User: "alice", Tried: []Try{whole, kill}},
		},
		"asked": {
			Record{At: nine, Container: id, Signal: "TERM", Asked: true, Reason: "DeadlineMissed", Master: true},
			Record{At: at, Container: id, Master: true, Tried: []Try{whole}},
		},
		"not delivered": {Record{At: nine, Container: id, Signal: "TERM", Reason: "DeadlineMissed", Error: "no"}, Record{}},
		"refused":       {Record{At: nine, Container: id, Asked: true, Error: "status 403"}, Record{}},
		"left after a signal": {
			Record{At: nine, Container: id, User: "alice", Left: true, Tried: []Try{term}},
			Record{At: at, Container: id, User: "alice", Left: true, Tried: []Try{whole}},
		},
		"ended by another": {
			Record{At: nine, Container: id, Left: true, Exit: -106, Why: "killed\n\x1b[31m" + strings.Repeat("é", 100),
				Allowed: &shed.Allowance{VCores: 1}},
			Record{At: at, Container: id, Left: true, Exit: -106, Why: "killed [31m" + strings.Repeat("é", 69)},
		},
		"with its worker": {
			Record{At: nine, Container: id, Left: true, WithWorker: true},
			Record{At: at, Container: id, Left: true, WithWorker: true},
		},
		"no container": {Record{At: nine, Container: "container_1_2_3_../../etc", Left: true}, Record{}},
		"forged": {
			Record{At: nine, Container: id, User: strings.Repeat("u", 1000), Left: true, Signal: "PWR",
				Tried: []Try{{Signal: "\x1b[31m"}, {At: nine, Signal: "PWR", Reason: strings.Repeat("r", 1000)}}},
			Record{At: at, Container: id, User: strings.Repeat("u", 64), Left: true,
				Tried: []Try{{At: at, Signal: "PWR", Reason: strings.Repeat("r", 40)}}},
		},
	} {
		got, ok := c.record.Brief()
		if stays := c.want.Container != ""; ok != stays || stays && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v\n%+v\nwant\n%+v", name, ok, got, c.want)
		}
		if again, _ := got.Brief(); ok && !reflect.DeepEqual(got, again) {
			t.Errorf("%s: brief once\n%+v\nand twice\n%+v", name, got, again)
		}
	}
	many := Record{Container: id, Left: true}
	for i := range 20 {
		many.Tried = append(many.Tried, Try{At: nine.Add(time.Duration(i) * time.Second), Signal: "TERM"})
	}
	got, _ := many.Brief()
	if len(got.Tried) != messageTries || !got.Tried[messageTries-1].At.Equal(at.Add(19*time.Second)) {
		t.Errorf("tried %+v", got.Tried)
	}
}

// TestMessage checks that a message has the first records, in whole lines and no more than the kubelet keeps, and that
// what is no record in it does not count.
func TestMessage(t *testing.T) {
	var all []Record
	for n := range 200 {
		all = append(all, Record{At: nine, Container: containerOf(n), User: "alice", Left: true, Exit: -106})
	}
	text := WriteMessage(all)
	read := ReadMessage(text)
	if len(text) > MessageBytes || len(text) < MessageBytes-200 || len(read) < 20 {
		t.Fatalf("%d bytes, %d records", len(text), len(read))
	}
	for n, r := range read {
		if want, _ := all[n].Brief(); !reflect.DeepEqual(r, want) {
			t.Errorf("%d: %+v", n, r)
		}
	}
	if cut := ReadMessage(text[:len(text)-3]); len(cut) != len(read)-1 {
		t.Errorf("%d records of a message that was cut off, want %d", len(cut), len(read)-1)
	}
	junk := "x\n{}\n[]\n" + `{"container":"container_1_0001_01_000002","left":true,"at":7}` + "\n" +
		`{"container":"../etc","left":true}` + "\n\x00\xff\n"
	twice := ReadMessage([]byte(junk + string(text) + string(text)))
	if len(twice) != len(read) {
		t.Errorf("%d records of a message with other lines, and twice; want %d", len(twice), len(read))
	}
}

// TestGone checks that a ConfigMap has the pods that went last, within its bounds, and each once.
func TestGone(t *testing.T) {
	pod := func(n, containers int) Gone {
		g := Gone{Worker: "night-0", Pod: fmt.Sprint("u", n), Node: "n1", At: nine.Add(time.Duration(n) * time.Minute)}
		for i := range containers {
			g.Containers = append(g.Containers, Record{At: nine, Container: containerOf(i), Left: true, User: "alice"})
		}
		return g
	}
	pods := func(content string) string {
		names := ""
		for _, g := range ReadGone(content) {
			names += g.Pod + " "
		}
		return names
	}
	content := "unreadable"
	var err error
	for _, more := range [][]Gone{{pod(0, 1)}, {pod(1, 1), pod(2, 1)}, {pod(2, 1)}} {
		if content, err = AddGone(content, more); err != nil {
			t.Fatal(err)
		}
	}
	if got := pods(content); got != "u2 u1 u0 " {
		t.Errorf("pods %s", got)
	}
	for n := range 200 {
		if content, err = AddGone(content, []Gone{pod(n, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Fields(pods(content)); len(got) != gonePods || got[0] != "u199" || got[gonePods-1] != "u72" {
		t.Errorf("%d pods: %s", len(got), got)
	}
	for n := range 60 {
		if content, err = AddGone(content, []Gone{pod(1000+n, 50)}); err != nil {
			t.Fatal(err)
		}
	}
	got := strings.Fields(pods(content))
	if len(content) > goneBytes || len(content) < goneBytes-10_000 || len(got) < 10 || got[0] != "u1059" {
		t.Errorf("%d bytes, %d pods, the first %v", len(content), len(got), got[:1])
	}
	// Who may write ConfigMaps makes no terminal obey.
	forged, err := json.Marshal([]Gone{{Worker: "w", Containers: []Record{{Container: "x", Left: true}, {
		Container: containerOf(1), Left: true, User: "a\x1b[31m",
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	if all := ReadGone(string(forged)); len(all) != 1 || len(all[0].Containers) != 1 ||
		all[0].Containers[0].User != "a [31m" {
		t.Errorf("%+v", all)
	}
	parts := map[string]bool{}
	for n := range 1000 {
		parts[GonePart("night", fmt.Sprint("night-", n))] = true
	}
	if len(parts) != goneParts || !parts["night-gone-0"] || !parts["night-gone-15"] {
		t.Errorf("parts: %v", parts)
	}
}

// FuzzMessage checks that no text makes a message panic, or have more than its bounds.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"at":"2026-11-25T09:00:00Z","container":"container_1_0001_01_000002","left":true}` + "\n"))
	f.Fuzz(func(t *testing.T, message []byte) {
		all := ReadMessage(message)
		for _, r := range all {
			if !IsContainer(r.Container) || len(r.Tried) > messageTries || strings.ContainsAny(r.User+r.Why, "\n\x1b") {
				t.Errorf("%+v", r)
			}
		}
		if n := len(WriteMessage(all)); n > MessageBytes {
			t.Errorf("%d bytes", n)
		}
	})
}
