package guard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/yarn"
	"github.com/waterline-io/waterline/test/poll"
)

// TestIDs checks what is read from the ids of containers.
func TestIDs(t *testing.T) {
	for _, c := range []struct {
		id, application string
		valid, master   bool
	}{
		{"container_1795520061459_0001_01_000001", "application_1795520061459_0001", true, true},
		{"container_e17_1795520061459_0001_02_000001", "application_1795520061459_0001", true, true},
		{"container_e17_1795520061459_12345_01_1000011", "application_1795520061459_12345", true, false},
		{"container_1795520061459_0001_01_000011", "application_1795520061459_0001", true, false},
		{"container_1795520061459_0001_01", "", false, false},
		{"container_1_2_3_../../etc", "application_1_2", false, false},
		{"container_e1_" + strings.Repeat("1", 100) + "_1_1_1", "", false, false},
		{"", "", false, false},
	} {
		if got := guardlog.IsContainer(c.id); got != c.valid {
			t.Errorf("%q: an id: %v", c.id, got)
		}
		if c.valid && (guardlog.Application(c.id) != c.application || master(c.id) != c.master) {
			t.Errorf("%q: of %q, a master: %v", c.id, guardlog.Application(c.id), master(c.id))
		}
	}
}

// TestAllowance checks what the guard takes the file for, and that it keeps the last allowance that it understood.
func TestAllowance(t *testing.T) {
	until := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	f := allowanceFile{path: filepath.Join(t.TempDir(), "allowance")}
	good := shed.Allowance{MemoryMiB: 4096, VCores: 4, Until: until}
	const gone = "no file"
	for _, c := range []struct {
		text    string
		want    shed.Allowance
		changed bool
		fails   bool
	}{
		{gone, shed.Allowance{}, false, false}, // there was none yet
		{"", shed.Allowance{}, false, false},
		{`[]`, shed.Allowance{}, false, true},
		{gone, shed.Allowance{}, false, false},
		{`{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}`, good, true, false},
		{gone, good, false, true}, // a deadline outlives its file
		{"\n", good, false, true},
		{`{"memoryMiB":4096,"vcores":4,"until":"2026-11-25T09:00:00Z"}`, good, false, false},
		{`{"memoryMiB":4096,"vc`, good, false, true},
		{`{"memoryMiB":4096,"vcores":4,"until":"tomorrow"}`, good, false, true},
		{`{"memoryMiB":-1,"vcores":4}`, good, false, true},
		{`{"vcores":4}`, good, false, true},
		{`[]`, good, false, true},
		{`{"memoryMiB":0,"vcores":0}`, shed.Allowance{}, true, false},
		{`{"memoryMiB":1,"vcores":0}`, shed.Allowance{MemoryMiB: 1}, true, false},
		{"", shed.Allowance{MemoryMiB: 1}, false, true},
	} {
		err := os.WriteFile(f.path, []byte(c.text), 0o644)
		if c.text == gone {
			err = os.RemoveAll(f.path)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, changed, err := f.read()
		if got != c.want || changed != c.changed || (err != nil) != c.fails {
			t.Errorf("%q: %+v, changed %v, %v", c.text, got, changed, err)
		}
	}
}

// TestRecorded checks what the guard knows after the recorded answer of a NodeManager of Hadoop 3.5.0, and what it
// knows when that NodeManager answers no more.
func TestRecorded(t *testing.T) {
	recorded, err := os.ReadFile("../yarn/testdata/rm/containers.http")
	if err != nil {
		t.Fatal(err)
	}
	silent := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent || r.URL.Path != "/ws/v1/node/containers" {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(recorded)), r)
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		_, _ = io.Copy(w, answer.Body)
	}))
	defer server.Close()
	g := testGuard(t, server.URL)
	const id = "container_1795520061459_0001_01_000001"
	now := time.Now()
	g.take(t.Context(), g.ask(t.Context()))
	g.processes.at = now
	want := shed.Container{ID: id, Known: true, Master: true, MemoryMiB: 256, VCores: 1, Holds: true}
	if all := g.containers(now); len(all) != 1 || all[0] != want {
		t.Errorf("%+v", all)
	}
	// What nobody lists does not count, and counts as a master's while the NodeManager is silent.
	silent = true
	g.take(t.Context(), g.ask(t.Context()))
	const foreign = "container_1795520061459_0002_01_000007"
	g.processes.of = map[string]*group{
		id:       {members: []process{{pid: 1}, {pid: 2}}, started: now},
		foreign:  {members: []process{{pid: 3}}, started: now},
		"forged": {members: []process{{pid: 4}}, started: now},
	}
	if all := g.containers(now); len(all) != 1 || all[0].Processes != 2 {
		t.Errorf("%+v", all)
	}
	all := g.containers(now.Add(silentAfter + time.Second))
	unknown := shed.Container{ID: foreign, Master: true, Started: now, Processes: 1}
	if len(all) != 2 || all[0].ID != id || !all[0].Known || all[1] != unknown {
		t.Errorf("%+v", all)
	}
}

func testGuard(t *testing.T, nm string) *Guard {
	t.Helper()
	g, err := New(Options{
		Settings: shed.DefaultSettings(), Allowance: filepath.Join(t.TempDir(), "none"), NodeManager: nm, Out: io.Discard,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestRefusals has the ResourceManager refuse the ends of two containers before a round. Both count as not tried.
func TestRefusals(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	now := time.Now()
	const first, second = "container_1_0001_01_000002", "container_1_0001_01_000003"
	for _, id := range []string{first, second} {
		g.listing.known[id] = &listed{Container: shed.Container{ID: id, Known: true, Holds: true}}
		g.state.Tried = append(g.state.Tried, shed.Tried{Container: id, Terminated: now})
		g.state.Ended = append(g.state.Ended, now)
		g.hits[id] = []hit{{at: now, signal: shed.Terminate, remote: true}}
	}
	for _, id := range []string{first, second} {
		g.heard(t.Context(), asked{id, now, errors.New("refused")})
	}
	for range 3 {
		g.round(t.Context(), now)
	}
	if s := g.state; len(s.Ended)+len(g.hits)+len(g.failed) > 0 || !s.Tried[0].Terminated.IsZero() ||
		!s.Tried[1].Terminated.IsZero() {
		t.Errorf("%+v, hits %v, to tell %v", s, g.hits, g.failed)
	}
}

// TestMasters checks that one container of an attempt at most is a master by its environment.
func TestMasters(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	now := time.Now()
	g.listing.at, g.processes.at = now, now
	g.processes.of = map[string]*group{}
	for id, claims := range map[string]bool{
		"container_1_0001_01_000002": true, "container_1_0001_01_000003": true, // both claim, and the first one is it
		"container_1_0002_01_000002": false, "container_1_0002_01_000005": true,
	} {
		g.listing.known[id] = &listed{Container: shed.Container{ID: id, Known: true, Holds: true}}
		g.processes.of[id] = &group{members: []process{{pid: 1}}, master: claims, started: now}
	}
	got := ""
	for _, c := range g.containers(now) {
		if c.Master {
			got += c.ID + " "
		}
	}
	if got != "container_1_0001_01_000002 container_1_0002_01_000005 " {
		t.Errorf("masters: %s", got)
	}
}

// TestLeftBehind checks that a container which the NodeManager does not list any more stays known while it has
// processes, as one that has ended.
func TestLeftBehind(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	now := time.Now()
	const id = "container_1_0001_01_000002"
	g.listing.known[id] = &listed{Container: shed.Container{ID: id, Known: true, Holds: true}}
	g.processes.of = map[string]*group{id: {members: []process{{pid: 1}}, started: now}}
	g.listing.take(answer{asked: now})
	g.processes.at = now.Add(time.Second)
	if all := g.containers(now); len(all) != 1 || !all[0].Ended || all[0].Holds {
		t.Errorf("%+v", all)
	}
	g.processes.of = nil
	if all := g.containers(now); len(all) != 0 || len(g.listing.known) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestNoManager checks that containers which have ended are forgotten while no NodeManager is found, so that processes
// cannot be looked at, but its web services answer.
func TestNoManager(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	now := time.Now()
	for i := range 100 {
		now = now.Add(listEvery)
		g.listing.take(answer{asked: now, containers: []yarn.Container{{ID: fmt.Sprintf("container_1_0001_01_%06d", i)}}})
		g.containers(now)
	}
	if n := len(g.listing.known); n > 20 {
		t.Errorf("%d containers are remembered", n)
	}
}

// TestEvades sends signals to containers of which no process is there any more, as of a chain of short ones. After two
// of them in turn, others have their turn.
func TestEvades(t *testing.T) {
	const chain, other = "container_1_0001_01_000002", "container_1_0001_01_000003"
	g := testGuard(t, "http://127.0.0.1:1")
	now := time.Now()
	g.processes.of = map[string]*group{}
	for i, id := range []string{chain, other} {
		g.processes.of[id] = &group{members: []process{{pid: 1<<30 + i}}}
	}
	for i, step := range []struct {
		to      string
		refused bool
	}{{chain, false}, {other, false}, {chain, false}, {chain, true}} {
		g.last = shed.Decision{Container: step.to, Signal: shed.Terminate}
		if g.deliver(t.Context(), now); g.refused[step.to].Equal(now) != step.refused {
			t.Errorf("step %d: refused %v", i, g.refused)
		}
	}
}

// TestReused checks that a process gets no signal that has the number of one which was found, but is another: it
// started at another time, or runs as another user.
func TestReused(t *testing.T) {
	c := exec.Command("sleep", "1000")
	const id = "container_1_0001_01_000002"
	c.Env = []string{"A=" + strings.Repeat("x", 5000), "CONTAINER_ID=" + id}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	s := scanner{proc: "/proc"}
	var found process
	var err error
	if !poll.Until(time.Minute, time.Millisecond, func() bool { // until it is sleep
		if found, err = s.read(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		name, _, _ := s.container(found.pid)
		return name == id
	}) {
		t.Fatal("the environment of the process does not show")
	}
	if found.pid != c.Process.Pid || found.parent != os.Getpid() || int(found.uid) != os.Getuid() {
		t.Errorf("found %+v, as process %d", found, os.Getpid())
	}
	other, later := found, found
	other.uid++
	later.start++
	for name, try := range map[string]struct {
		p process
		n unix.Signal
	}{
		"another user": {other, unix.SIGKILL}, "another start": {later, unix.SIGKILL}, "no executor": {found, unix.SIGPWR},
	} {
		if sent, err := s.send(try.p, try.n); sent || err != nil {
			t.Errorf("%s: sent %v, %v", name, sent, err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("the process ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if sent, err := s.send(found, unix.SIGTERM); !sent || err != nil {
		t.Errorf("sent %v, %v", sent, err)
	}
	var exit *exec.ExitError
	if err := <-done; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGTERM {
		t.Errorf("the process ended with %v", err)
	}
	if sent, err := s.send(found, unix.SIGTERM); sent || err != nil {
		t.Errorf("a process that is gone: sent %v, %v", sent, err)
	}
}

// TestParseStat checks names that look like other fields.
func TestParseStat(t *testing.T) {
	const rest = " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2"
	for _, name := range []string{"(java)", "(a) S 9 9)", "(())", "(\n)"} {
		p, err := parseStat([]byte("42 " + name + rest))
		if err != nil || p.pid != 42 || p.parent != 7 || p.start != 4711 {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for _, text := range []string{"", "42 (java) S 7", "42", "x (java)" + rest, "42 (java) S x" + rest} {
		if p, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// FuzzEnvironment checks that no environment makes the guard panic, or find what is not there.
func FuzzEnvironment(f *testing.F) {
	f.Add([]byte("A=B\x00CONTAINER_ID=container_1_0001_01_000002\x00"))
	f.Add([]byte("CONTAINER_ID="))
	f.Fuzz(func(t *testing.T, environment []byte) {
		id, _ := parseEnvironment(environment)
		if id != "" && !bytes.Contains(environment, []byte("CONTAINER_ID="+id)) {
			t.Errorf("%q of %q", id, environment)
		}
		_ = guardlog.IsContainer(id)
	})
}

// TestRecords checks that the last 200 records are kept, and what is served.
func TestRecords(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	var out bytes.Buffer
	g.records.out = &out
	for i := range kept + 5 {
		g.write(context.Background(), guardlog.Record{Container: fmt.Sprint("c", i), Signal: "TERM"})
	}
	if n := strings.Count(out.String(), "\n"); n != kept+5 {
		t.Errorf("%d lines", n)
	}
	g.round(t.Context(), time.Now())
	get := func(path string, into any) {
		to := httptest.NewRecorder()
		g.Handler().ServeHTTP(to, httptest.NewRequest("GET", path, nil))
		if err := json.Unmarshal(to.Body.Bytes(), into); err != nil || to.Code != 200 {
			t.Errorf("%s: %d %s, %v", path, to.Code, to.Body, err)
		}
	}
	var all []guardlog.Record
	if get("/records", &all); len(all) != kept || all[0].Container != "c5" || all[kept-1].Container != "c204" {
		t.Errorf("%d records", len(all))
	}
	var state view
	if get("/state", &state); state.Settings != shed.DefaultSettings() {
		t.Errorf("%+v", state)
	}
}

// TestLeavers checks which ends of containers are recorded: those by others, 30 a minute at most, with what the worker
// might use if it had to shrink, and none of what a tenant writes breaks a line.
func TestLeavers(t *testing.T) {
	g := testGuard(t, "http://127.0.0.1:1")
	g.allowance.last = shed.Allowance{MemoryMiB: 1024, VCores: 2}
	container := func(n int, state string, exit int) yarn.Container {
		return yarn.Container{
			ID: fmt.Sprintf("container_1_0001_01_%06d", n), State: state, ExitCode: exit, User: "alice",
			Diagnostics: "killed\n\x1b[31mby " + strings.Repeat("x", 500),
		}
	}
	codes := []int{0, yarn.ExitByMaster, yarn.ExitByRM, 143, yarn.ExitAfterApplication}
	list := func(state string, first int) {
		a := answer{asked: time.Now()}
		for i, exit := range codes {
			if state == "RUNNING" {
				exit = -1000
			}
			a.containers = append(a.containers, container(first+i, state, exit))
		}
		g.take(t.Context(), a)
	}
	list("RUNNING", 0)
	list("DONE", 0)
	if all := g.records.all; len(all) != 2 || all[0].Exit != yarn.ExitByRM || all[0].Allowed != nil {
		t.Errorf("while nothing is over: %+v", all)
	}
	g.last.Closely = true
	list("RUNNING", 10)
	list("DONE", 10)
	list("DONE", 10)
	all := g.records.all[2:]
	if len(all) != 2 || all[0].Exit != yarn.ExitByRM || all[1].Exit != 143 || !all[0].Left || all[0].User != "alice" ||
		*all[0].Allowed != g.allowance.last || all[0].Application != "application_1_0001" {
		t.Fatalf("%+v", all)
	}
	if why := all[0].Why; !strings.HasPrefix(why, "killed [31mby xx") || len(why) != 200 {
		t.Errorf("%q", why)
	}
	for i := range leaversPerMinute {
		list("RUNNING", 100+10*i)
		list("DONE", 100+10*i)
	}
	if n := len(g.records.all); n != leaversPerMinute {
		t.Errorf("%d records within a minute", n)
	}
}

// TestOptions checks that bad settings are refused.
func TestOptions(t *testing.T) {
	for _, s := range []shed.Settings{{KillsPerMinute: -1, HardPercent: 95}, {HardPercent: 10}, {HardPercent: 101}} {
		if _, err := New(Options{Settings: s}); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
}
