package kernel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waterline-io/waterline/internal/cgroup"
	"github.com/waterline-io/waterline/internal/decide/node/shed"
	"github.com/waterline-io/waterline/internal/guard"
	"github.com/waterline-io/waterline/internal/guard/guardlog"
	"github.com/waterline-io/waterline/internal/model"
	"github.com/waterline-io/waterline/internal/observe/host"
	"github.com/waterline-io/waterline/test/poll"
)

const (
	executorClass = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
	containerOf   = "container_1795520061459_0001_01_%06d"
)

// worker is a NodeManager that lists what a test says, and a guard beside it.
type worker struct {
	*testNode
	dir       string // cgroup of the containers
	manager   *exec.Cmd
	allowance string // path
	lines     *lockedBuffer

	mu     sync.Mutex
	listed map[string]string // state by container
}

// lockedBuffer collects what the guard writes.
type lockedBuffer struct {
	mu  sync.Mutex
	all []guardlog.Record
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	var r guardlog.Record
	if err := json.Unmarshal(p, &r); err != nil {
		return 0, fmt.Errorf("%q is no record: %w", p, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, r)
	return len(p), nil
}

// signals returns the records so far, as "SIGNAL n" or "left n" with the number of the container.
func (b *lockedBuffer) signals() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.all {
		what := r.Signal
		if r.Left {
			what = "left"
		}
		all = append(all, what+" "+strings.TrimLeft(r.Container[len(r.Container)-6:], "0"))
	}
	return all
}

func newWorker(t *testing.T) *worker {
	n := newBatchNode(t)
	w := &worker{
		testNode: n, allowance: filepath.Join(t.TempDir(), "allowance"), lines: &lockedBuffer{}, listed: map[string]string{},
	}
	w.dir = n.pod(model.BestEffort, "w", 0, "0123456789cc") + "/0123456789cc"
	w.manager = w.start("", "sleep 1000")
	return w
}

// start runs a script as a tenant does: with the id of a container in the environment, in a session of its own.
func (w *worker) start(container, script string, words ...string) *exec.Cmd {
	w.t.Helper()
	c := exec.Command("/bin/sh", append([]string{"-c", script}, words...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "BEFORE=x"}
	if container != "" {
		c.Env = append(c.Env, "CONTAINER_ID="+container)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	w.t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL); <-done })
	return c
}

// list makes the NodeManager list containers as running.
func (w *worker) list(numbers ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range numbers {
		w.listed[fmt.Sprintf(containerOf, n)] = "RUNNING"
	}
}

// ServeHTTP answers as a NodeManager does.
func (w *worker) ServeHTTP(to http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []map[string]any
	for id, state := range w.listed {
		all = append(all, map[string]any{
			"id": id, "state": state, "user": "root", "totalMemoryNeededMB": 1024, "totalVCoresNeeded": 1,
			"executionType": "GUARANTEED",
		})
	}
	to.Header().Set("Content-Type", "application/json;charset=utf-8")
	_ = json.NewEncoder(to).Encode(map[string]any{"containers": map[string]any{"container": all}})
}

// guard runs a guard until the test ends.
func (w *worker) guard(settings shed.Settings) {
	w.t.Helper()
	server := httptest.NewServer(w)
	w.t.Cleanup(server.Close)
	g, err := guard.New(guard.Options{
		Settings: settings, Allowance: w.allowance, NodeManager: server.URL, PID: w.manager.Process.Pid, Cgroup: w.view(),
		Out: w.lines, Log: slog.New(slog.NewTextHandler(testLog{w.t}, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// view returns the directory of the worker's cgroup, as a container sees it.
func (w *worker) view() string {
	w.t.Helper()
	if w.mount.Version != cgroup.V1 {
		return w.path(w.dir)
	}
	dir := w.t.TempDir()
	for controller, from := range map[string]string{
		"cpu": w.path(w.dir), "memory": filepath.Join(w.mount.Memory, w.dir),
		"cpuacct": w.mount.Cpuacct, // the machine's: the tests' groups have none
	} {
		if err := os.Symlink(from, filepath.Join(dir, controller)); err != nil {
			w.t.Fatal(err)
		}
	}
	return dir
}

// testLog writes into the log of a test.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("guard: %s", p)
	return len(p), nil
}

// allow writes what the worker may use, as the kubelet does: a new file in place of the old one.
func (w *worker) allow(mib int, until time.Duration) {
	w.t.Helper()
	text := fmt.Sprintf(`{"memoryMiB":%d,"vcores":99,"until":%q}`, mib, time.Now().Add(until).Format(time.RFC3339Nano))
	err := errors.Join(os.WriteFile(w.allowance+".new", []byte(text), 0o644), os.Rename(w.allowance+".new", w.allowance))
	if err != nil {
		w.t.Fatal(err)
	}
}

// alive reports whether a process runs.
func alive(c *exec.Cmd) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(state), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// waitFor waits until the guard has written these records, and no others.
func (w *worker) waitFor(want ...string) {
	w.t.Helper()
	var got []string
	poll.Until(5*time.Minute, 50*time.Millisecond, func() bool {
		got = w.lines.signals()
		return slices.Equal(got, want) || len(got) > len(want)
	})
	if !slices.Equal(got, want) {
		w.t.Fatalf("the guard wrote %q, want %q", got, want)
	}
}

// TestGuardLadder checks the way from Spark's decommission signal to SIGKILL on real processes, and whom it spares:
// what a tenant says of itself must not lead a signal to others.
func TestGuardLadder(t *testing.T) {
	liveKernel(t, "signals are the same with cgroup v2")
	w := newWorker(t)
	asked := filepath.Join(t.TempDir(), "asked")
	const forever = "while :; do sleep 0.2; done"
	id := func(n int) string { return fmt.Sprintf(containerOf, n) }
	master := w.start(id(1), forever)
	time.Sleep(30 * time.Millisecond) // start times count in hundredths of a second
	obedient := w.start(id(2), "setsid sh -c '"+forever+"' & "+forever)
	time.Sleep(30 * time.Millisecond)
	stubborn := w.start(id(3), "trap '' TERM; "+forever)
	time.Sleep(30 * time.Millisecond)
	deaf := w.start(id(4), forever, executorClass) // SIGPWR would kill it
	time.Sleep(30 * time.Millisecond)
	executor := w.start(id(5), "trap 'echo >"+asked+"; exit 0' PWR; "+forever, executorClass)
	w.list(1, 2, 3, 4, 5)
	// A tenant's process of another user with the id of a container, and one with an id that the NodeManager never listed.
	other := exec.Command("/bin/sh", "-c", forever)
	other.Env = []string{"PATH=" + os.Getenv("PATH"), "CONTAINER_ID=" + id(3)}
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = other.Wait(); close(done) }()
	t.Cleanup(func() { _ = syscall.Kill(-other.Process.Pid, syscall.SIGKILL); <-done })
	unlisted := w.start(fmt.Sprintf(containerOf, 99), forever)

	w.allow(4096, time.Hour)
	w.guard(shed.DefaultSettings())
	w.waitFor("PWR 5", "left 5")
	if _, err := os.Stat(asked); err != nil {
		t.Errorf("the executor did not notice: %v", err)
	}
	if alive(executor) || !alive(deaf) {
		t.Error("the executor runs on, or the one that catches no SIGPWR does not")
	}

	w.mu.Lock()
	delete(w.listed, id(5))
	w.mu.Unlock()
	w.allow(2048, -15*time.Second) // the ResourceManager had its turn
	w.waitFor("PWR 5", "left 5", "TERM 4", "left 4", "TERM 3", "KILL 3", "left 3")
	time.Sleep(3 * time.Second)
	w.waitFor("PWR 5", "left 5", "TERM 4", "left 4", "TERM 3", "KILL 3", "left 3")
	if alive(deaf) || alive(stubborn) {
		t.Error("a container runs that was ended")
	}
	for name, c := range map[string]*exec.Cmd{
		"the master": master, "a container that fits": obedient, "another user's process": other,
		"a process of no container": unlisted, "the NodeManager": w.manager,
	} {
		if !alive(c) {
			t.Errorf("%s was ended", name)
		}
	}

	w.allow(1024, -15*time.Second)
	w.waitFor("PWR 5", "left 5", "TERM 4", "left 4", "TERM 3", "KILL 3", "left 3", "TERM 2", "left 2")
	if left := named(id(2)); len(left) > 0 {
		t.Errorf("processes %v of container 2 are left, in sessions of their own", left)
	}
	if !alive(master) {
		t.Error("the master was ended")
	}
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	for _, r := range w.lines.all {
		if r.Signal == "KILL" && (r.Reason != string(model.TermIgnored) || len(r.Tried) != 1 || r.Tried[0].Signal != "TERM") {
			t.Errorf("the KILL does not say why, and what was tried: %+v", r)
		}
	}
}

// named returns the processes with a container's id in their environment.
func named(id string) (all []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if content, err := os.ReadFile(f); err == nil && strings.Contains(string(content), "CONTAINER_ID="+id+"\x00") {
			all = append(all, f)
		}
	}
	return all
}

// holders starts the processes of two containers, 2 and then 3. The older one has 64 MiB.
func (w *worker) holders() (old, young *holder) {
	w.t.Helper()
	var all []*holder
	for n := 2; n <= 3; n++ {
		if err := os.Setenv("CONTAINER_ID", fmt.Sprintf(containerOf, n)); err != nil {
			w.t.Fatal(err)
		}
		h := w.hold(w.dir)
		os.Unsetenv("CONTAINER_ID")
		if n == 2 {
			h.do("anon")
			time.Sleep(30 * time.Millisecond) // so that it is the older one by the kernel's clock
		}
		all = append(all, h)
	}
	w.list(2, 3)
	return all[0], all[1]
}

// TestGuardMemory checks that page cache ends nobody, and that memory at the hard mark ends the youngest container at
// once, although everything fits.
func TestGuardMemory(t *testing.T) {
	w := newWorker(t)
	if w.mount.Memory == "" {
		t.Skip("no memory controller")
	}
	old, young := w.holders()
	w.set(w.dir, model.MemoryMax, 192<<20)
	if file := filepath.Join(t.TempDir(), "cache"); host.InMemory(filepath.Dir(file)) {
		t.Log("no disk to write a file to")
	} else {
		young.do("write " + file)
		young.do("read " + file)
	}
	w.guard(shed.Settings{KillsPerMinute: 0, HardPercent: 60})
	time.Sleep(4 * time.Second)
	w.waitFor()
	young.do("anon")
	w.waitFor("TERM 3", "left 3")
	if old.ended() {
		t.Error("the older container was ended")
	}
}

// TestGuardOOM lets a container's memory grow without end, as a whole NodeManager's cgroup has a limit. Without a guard
// the kernel kills, on v2 with the kubelet's memory.oom.group every container. With one, the youngest container ends,
// and nothing is killed.
func TestGuardOOM(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		t.Run(fmt.Sprintf("Guard=%v", guarded), func(t *testing.T) {
			w := newWorker(t)
			if w.mount.Memory == "" {
				t.Skip("no memory controller")
			}
			old, young := w.holders()
			w.set(w.dir, model.MemoryMax, 256<<20)
			group := w.mount.Version == cgroup.V2
			if group {
				if err := os.WriteFile(w.path(w.dir, "memory.oom.group"), []byte("1"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if guarded {
				w.guard(shed.Settings{KillsPerMinute: 0, HardPercent: 75})
				time.Sleep(2 * time.Second)
			}
			rate := "256" // KiB in 10 ms
			if guarded {
				rate = "64" // from the hard mark, it is 10 s to the kernel's limit, whatever else the machine does
			}
			young.do("grow " + rate)
			select {
			case <-young.done:
			case <-time.After(10 * time.Minute):
				t.Fatal("the container grew for ten minutes")
			}
			oldEnded, kills := old.ended(), w.oomKills()
			t.Logf("%d OOM kills; the older container ended: %v", kills, oldEnded)
			switch {
			case guarded && (kills > 0 || oldEnded):
				t.Error("the guard was too late")
			case !guarded && (kills == 0 || group && !oldEnded):
				t.Error("the kernel did not kill: this shows nothing")
			case guarded:
				w.waitFor("TERM 3", "left 3")
			}
		})
	}
}

// oomKills returns how many processes the kernel killed in the worker's cgroup because of its memory limit.
func (w *worker) oomKills() (n int) {
	w.t.Helper()
	file := w.path(w.dir, "memory.events")
	if w.mount.Version == cgroup.V1 {
		file = filepath.Join(w.mount.Memory, w.dir, "memory.oom_control")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
			return n
		}
	}
	w.t.Fatalf("%s does not count kills: %s", file, content)
	return 0
}
