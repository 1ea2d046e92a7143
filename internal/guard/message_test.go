package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
)

// TestMessage checks that the termination message has one line for each container that left or was told to, the newest
// first, also after more containers than it has room for, and that no file is made where there is none.
func TestMessage(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	dir := t.TempDir()
	g.message.path = filepath.Join(dir, "termination-log")
	write := func(r guardlog.Record) {
		t.Helper()
		r.At = time.Now()
		if g.write(t.Context(), r); len(g.logged) > 0 {
			t.Fatal(g.logged)
		}
	}
	container := func(n int) string { return fmt.Sprintf("container_1_0001_01_%06d", n) }
	read := func() string {
		t.Helper()
		text, err := os.ReadFile(g.message.path)
		if err != nil {
			t.Fatal(err)
		}
		words := ""
		for _, r := range guardlog.ReadMessage(text) {
			words += strings.TrimLeft(r.Container[len(r.Container)-6:], "0")
			for _, try := range r.Tried {
				words += " " + try.Signal
			}
			if r.Left {
				words += " left"
			}
			words += ", "
		}
		return words
	}
	write(guardlog.Record{Container: container(1), Left: true})
	if _, err := os.Stat(g.message.path); !os.IsNotExist(err) {
		t.Fatalf("a file was made: %v", err)
	}
	// The kubelet makes the file.
	if err := os.WriteFile(g.message.path, []byte(strings.Repeat("x", 9000)), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	power := []guardlog.Try{{At: now, Signal: "PWR"}}
	write(guardlog.Record{Container: container(2), Signal: "TERM", Processes: 1, Tried: power})
	write(guardlog.Record{Container: container(3), Signal: "TERM", Error: "not permitted"})
	write(guardlog.Record{Container: container(4), Left: true, WithWorker: true})
	if got := read(); got != "4 left, 2 PWR TERM, 1 left, " {
		t.Errorf("the message: %s", got)
	}
	write(guardlog.Record{Container: container(2), Left: true, Tried: power})
	if got := read(); got != "2 PWR left, 4 left, 1 left, " {
		t.Errorf("the message: %s", got)
	}
	for n := range 500 {
		write(guardlog.Record{Container: container(100 + n), Left: true})
	}
	if got := read(); !strings.HasPrefix(got, "599 left, 598 left, ") || len(g.message.all) != kept {
		t.Errorf("%d containers; the message: %s", len(g.message.all), got)
	}
}

// TestEndsWithWorker ends a guard beside a NodeManager that still runs, and beside one that has ended. Only then the
// containers that it listed ended with the worker.
func TestEndsWithWorker(t *testing.T) {
	d := proc(t.TempDir())
	g := testGuard(t, "http://127.0.0.1:1")
	g.processes.proc = string(d)
	d.add(t, process{pid: 7, start: 100}, "java "+managerClass, "PATH=/bin")
	if err := g.processes.find(time.Now(), 0); err != nil || g.processes.manager.pid != 7 {
		t.Fatalf("process %d, %v", g.processes.manager.pid, err)
	}
	for id, c := range map[string]shed.Container{
		"container_1_0001_01_000001": {Known: true, Holds: true, Master: true},
		"container_1_0001_01_000002": {Known: true, Holds: true},
		"container_1_0001_01_000003": {Known: true, Ended: true},
		"container_1_0001_01_000004": {Known: true}, // an opportunistic one that never began
	} {
		c.ID = id
		g.listing.known[id] = &listed{Container: c, user: "alice"}
	}
	g.hits["container_1_0001_01_000002"] = []hit{{at: time.Now(), signal: shed.Terminate, reason: "DeadlineMissed"}}
	if g.end(time.Now()); len(g.records.all) > 0 {
		t.Errorf("the NodeManager runs, and there are records: %+v", g.records.all)
	}
	d.remove(t, 7)
	g.end(time.Now())
	all := g.records.all
	if len(all) != 2 || !all[0].Master || !all[0].Left || !all[0].WithWorker || all[0].User != "alice" ||
		all[1].Container != "container_1_0001_01_000002" || len(all[1].Tried) != 1 ||
		all[1].Tried[0].Reason != "DeadlineMissed" || len(g.message.all) != 2 {
		t.Errorf("%+v", all)
	}
}

// TestLeftOnce ends a container whose processes are gone before the NodeManager says so. Its end is recorded once, with
// what was tried.
func TestLeftOnce(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	c := yarn.Container{ID: "container_1_0001_01_000002", State: "RUNNING", ExitCode: -1000, User: "alice"}
	now := time.Now()
	g.take(t.Context(), answer{asked: now, containers: []yarn.Container{c}})
	g.hits[c.ID] = []hit{{at: now, signal: shed.Terminate, reason: "DeadlineMissed"}}
	g.processes.at = now.Add(time.Second)
	g.recordEnds(now.Add(time.Second))
	c.State, c.ExitCode = "DONE", 143
	g.take(t.Context(), answer{asked: now.Add(2 * time.Second), containers: []yarn.Container{c}})
	if all := g.records.all; len(all) != 1 || !all[0].Left || len(all[0].Tried) != 1 {
		t.Errorf("%+v", all)
	}
}
